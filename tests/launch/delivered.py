"""What the processes of a run trained on: notes that a test's experiment file has its processes make."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HELD_S = 6.0  # in which a SIGTERM reaches all: JAX looks for one every second


def note_rows(folder: Path, hold: int = -1) -> None:
    """Have `sft` note the rows of every batch that it trains on, as they come out of the iterator, in a file a process.

    hold: number of the batch before which it waits, so that a test can send a signal.
    """
    import jax

    from vrjax.training import supervised
    from vrjax.training.data import HostBatch

    folder.mkdir(parents=True, exist_ok=True)
    ahead = supervised.placed_ahead

    def noted(batches: Iterator[HostBatch], mesh: Any) -> Iterator[Any]:
        for batch, rows in ahead(batches, mesh):
            line = {"batch": batch.number, "epoch": batch.epoch, "processes": jax.process_count()}
            with (folder / f"process_{jax.process_index()}.jsonl").open("a") as file:
                file.write(json.dumps({**line, "rows": _row_names(batch.rows)}) + "\n")
            if batch.number == hold:
                time.sleep(HELD_S)
            yield batch, rows

    supervised.placed_ahead = noted


def read_otherwise(process: int, record: str, *, fails: bool) -> None:
    """Have one process read a record's video otherwise than the others: not at all, or with one pixel changed.

    process: its number; -1: all of them.
    """
    import jax

    from vrjax.errors import VideoError
    from vrjax.training.data import Corpus

    vision = Corpus.vision

    def otherwise(self: Corpus, row: int) -> Any:
        found = vision(self, row)
        if self.survey.rows[row].name != record or process not in (-1, jax.process_index()):
            return found
        if fails:
            raise VideoError("the test's video took too long", "timeout")
        patches = found[0].patches.copy()
        patches[0, 0] ^= 1
        return [replace(found[0], patches=patches), *found[1:]]

    Corpus.vision = otherwise


def hold_rollout(folder: Path, hold: int) -> None:
    """Have `grpo` wait before it takes the groups of step `hold`, having said so in a file."""
    from vrjax.training.policy.rollouts import Rollouts

    folder.mkdir(parents=True, exist_ok=True)
    take = Rollouts.take

    def held(self: Rollouts, step: int, state: Any) -> Any:
        if step == hold:
            (folder / f"held_{hold}").write_text("here\n")
            time.sleep(HELD_S)
        return take(self, step, state)

    Rollouts.take = held


def _row_names(rows: Any) -> list[str]:
    """A name for the content of each row: its tokens and pixels, without padding."""
    names = []
    for tokens, segment, patches in zip(rows.text.tokens, rows.text.segment, rows.vision.patches, strict=True):
        used = np.asarray(patches)[np.asarray(patches).any(-1)]
        names.append(hashlib.sha256(tokens[segment > 0].tobytes() + used.tobytes()).hexdigest()[:16])
    return names


def delivered(folder: Path) -> list[dict]:
    """Batches in the order of the run: number, epoch, processes, and rows; once where processes read the same part."""
    lines = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    batches = []
    for number in sorted({line["batch"] for line in lines}):
        parts = [line for line in lines if line["batch"] == number]
        assert {part["processes"] for part in parts} == {len(parts)}  # each process trained on it, and only once
        rows = {tuple(part["rows"]) for part in parts}
        batches.append({**parts[0], "rows": sorted(row for part in rows for row in part)})
    return batches


def seen(batches: list[dict]) -> dict[int, Counter[str]]:
    """How often each row was seen, by epoch."""
    found: dict[int, Counter[str]] = {}
    for batch in batches:
        found.setdefault(batch["epoch"], Counter()).update(batch["rows"])
    return found
