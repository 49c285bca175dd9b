"""Rows of a benchmark: how they are measured, printed and written."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One comparison. Seconds are medians of runs taken in turn; `ratio` is peer_s / ours_s; `memory_mb`: our peak."""

    name: str
    ours_s: float
    peer: str
    peer_s: float
    ratio: float
    memory_mb: float
    note: str = ""


def in_turn(sides: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """Median seconds of each side; one warm-up of each, then `runs` rounds in which every side runs once."""
    for side in sides:
        side()
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(runs):
        for side, taken in zip(sides, seconds, strict=True):
            start = time.perf_counter()
            side()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]


def run_benchmark(
    description: str | None, measure: Callable[[argparse.Namespace], list[Row]], runs: int,
    arguments: Sequence[str] | None = None, extra: Callable[[argparse.ArgumentParser], object] | None = None,
) -> int:  # fmt: skip
    """The command line that all benchmarks share: --json FILE, --runs N, and what `extra` adds."""
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--runs", type=int, default=runs, help=f"rounds, each side once a round (default {runs})")
    if extra is not None:
        extra(parser)
    options = parser.parse_args(arguments)
    rows = measure(options)
    table = Table("name", "ours ms", "peer ms", "ratio", "memory MB", "peer", "note")
    for row in rows:
        cells = (f"{row.ours_s * 1e3:.0f}", f"{row.peer_s * 1e3:.0f}", f"{row.ratio:.2f}", f"{row.memory_mb:.0f}")
        table.add_row(row.name, *cells, row.peer, row.note)
    Console(width=170).print(table)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0
