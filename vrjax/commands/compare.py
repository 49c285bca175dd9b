"""`vrjax compare`: evaluations of one benchmark beside each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Compare:
    """Compare evaluations of one benchmark; the first is what the others are compared with.

    Prints the paper's table with official values, differences of strict values with 95% intervals (bootstrap over
    videos) and p (paired permutation test over videos), differences by type, and the items whose verdict changed.

    Examples::

        vrjax compare runs/eval_base runs/eval_sft
        vrjax compare runs/eval_base runs/eval_sft runs/eval_grpo --metrics answer_relaxed avg_eg_f1 --out compare.html
        vrjax compare runs/eval_full runs/eval_question_only --json
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that `vrjax evaluate` wrote."""
    metrics: tuple[str, ...] = ()
    """Strict values to compare; by default all."""
    changed: int = 20
    """Items that changed which are listed."""
    out: Path | None = None
    """Also write a page (.html)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of tables, with all items that changed."""

    def run(self) -> int:
        """Compare, print, and return the exit code."""
        from vrjax.evaluation.comparison import compare_runs

        found = compare_runs(self.runs, self.metrics)
        if self.json:
            print(json.dumps(found, indent=1))
        if self.json and self.out is None:
            return 0
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        from vrjax.evaluation.comparison_tables import comparison_tables, write_comparison

        tables = comparison_tables(found, self.changed)
        if self.out is not None:
            write_comparison(self.out, found, tables)
        if self.json:
            return 0
        console = Console()
        for table in tables:
            shown = Table(title=escape(table.title), caption=escape("\n".join(table.text)) or None)
            for place, column in enumerate(table.columns):
                shown.add_column(escape(column), justify="left" if place == 0 else "right", overflow="fold")
            for row in table.rows:
                shown.add_row(*(escape(cell) for cell in row))
            console.print(shown)
        return 0
