"""`vrjax report`: a training run, or several beside each other, as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from vrjax.errors import InputError


@dataclass(frozen=True)
class Report:
    """Write a page about a training run: its curves, its step times with those that stand out, every compiled program,
    and the phases of a step where the run was profiled (`--profile 3` of `vrjax train`).

    The page is one file that is readable offline. With several runs their median step times are compared with the
    first one's, phase by phase. Runs may still be going on.

    Examples::

        vrjax report runs/shapes
        vrjax report runs/before runs/after --out compared.html
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories of `vrjax train`."""
    out: Path | None = None
    """The page; by default report.html in the first run's directory."""

    def run(self) -> int:
        """Write the page, say where it lies, and return the exit code."""
        from vrjax.training.run_report import report_runs

        if not self.runs:
            raise InputError("no run was named. Give one run directory or more.")
        print(f"{report_runs(self.runs, self.out)}: written")
        return 0
