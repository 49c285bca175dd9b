"""`report.html` of a training run: its curves, its step times, what was compiled, and its profile where there is one.

With several runs the others are compared with the first, phase by phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.report import Figure, Section, Table, curves, svg_of, write_report
from vrjax.run_directory import LEDGER, METRICS, RunDirectory
from vrjax.training.phase_table import COLUMNS, explained, table_rows
from vrjax.training.profile import PHASES
from vrjax.training.step_times import SLOW, WINDOW, median_phases, slow_steps, timed_rows

REPORT = "report.html"
# Curves by panel and line, of those metrics that a run has.
PANELS = {
    "loss": {"training": "loss", "validation": "validation/loss"},
    "reward": {"mean": "reward"},
    "gradient norm": {"norm": "grad_norm"},
    "entropy": {"nats a token": "entropy"},
    "response length": {"tokens": "response_length"},
}
MOST_LISTED = 50


@dataclass(frozen=True)
class Run:
    """What a run directory says of itself."""

    path: Path
    metrics: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    profile: dict[str, Any] | None

    @property
    def name(self) -> str:
        return str(self.path)


def read_run(path: Path) -> Run:
    """Raises InputError where there is no training run."""
    directory = RunDirectory(path, writes=False)
    metrics = directory.read_lines(METRICS)
    if not metrics:
        raise InputError(f"{path}: holds no training run with a finished step ({METRICS} is not there, or empty).")
    return Run(path, metrics, directory.read_lines(LEDGER), directory.read_json(PHASES))


def report_runs(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of one run or several, by default into the first one's directory; returns where it lies."""
    runs = [read_run(path) for path in paths]
    sections: list[Section] = [compared(runs)] if len(runs) > 1 else []
    for run in runs:
        sections += sections_of(run, f"{run.name}: " if len(runs) > 1 else "")
    out = out or runs[0].path / REPORT
    steps = max(row["step"] for row in runs[0].metrics)
    title = "Training run" if len(runs) == 1 else f"{len(runs)} training runs"
    write_report(out, title, f"{', '.join(run.name for run in runs)}; the first has taken {steps} step(s).", sections)
    return out


def sections_of(run: Run, prefix: str) -> list[Section]:
    """The sections of one run; prefix: in front of their titles."""
    sections: list[Section] = []
    if panels := _panels(run.metrics):
        sections.append(Figure(f"{prefix}Curves", curves(panels)))
    if rows := timed_rows(run.metrics):
        sections += step_time_sections(rows, prefix)
    sections.append(ledger_table(run.ledger, prefix))
    if run.profile is not None:
        title = f"{prefix}Phases of a step, profiled"
        sections.append(Table(title, COLUMNS, table_rows(run.profile), explained(run.profile)))
    return sections


def _panels(metrics: Sequence[dict[str, Any]]) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    panels = {}
    for title, lines in PANELS.items():
        found = {}
        for name, key in lines.items():
            points = [(row["step"], row[key]) for row in metrics if isinstance(row.get(key), int | float)]
            points = [(step, value) for step, value in points if math.isfinite(value)]
            if points:
                found[name] = ([step for step, _ in points], [value for _, value in points])
        if found:
            panels[title] = found
    return panels


def step_time_sections(rows: Sequence[Any], prefix: str) -> list[Section]:
    """Seconds of each step with their median, slow ones marked; then the slow ones with the phase that grew."""
    from matplotlib.figure import Figure as Canvas

    slow, usual = slow_steps(rows), median_phases(rows)
    canvas = Canvas(figsize=(9, 2.6), layout="constrained")
    axis = canvas.subplots()
    axis.plot([row["step"] for row in rows], [row["seconds"] for row in rows], linewidth=1.2)
    axis.axhline(usual["step"], color="grey", linewidth=0.8, linestyle="--")
    axis.scatter([one.step for one in slow], [one.seconds for one in slow], color="#b3382c", zorder=3, s=18)
    axis.set_xlabel("step", fontsize=8)
    axis.set_ylabel("seconds", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    parts = ", ".join(f"{name} {value:.3f}" for name, value in usual.items() if name != "step")
    text = [f"Median {usual['step']:.3f} s" + (f" ({parts})." if parts else ".")]
    if not slow:
        text.append(f"No step took more than {SLOW:g} times the median of the {WINDOW} before it.")
        return [Figure(f"{prefix}Step times", svg_of(canvas), text)]
    listed = [
        [
            str(one.step),
            f"{one.seconds:.3f}",
            f"{one.usual:.3f}",
            f"{one.seconds / one.usual:.1f}",
            f"{one.phase}: {one.phase_seconds:.3f} s, else {one.phase_usual:.3f} s" if one.phase else "not noted",
        ]
        for one in sorted(slow, key=lambda one: -one.seconds / one.usual)[:MOST_LISTED]
    ]
    about = f"{len(slow)} step(s) took more than {SLOW:g} times the median of up to {WINDOW} before them."
    columns = ("step", "seconds", "median before", "times", "phase that grew most")
    return [
        Figure(f"{prefix}Step times", svg_of(canvas), text),
        Table(f"{prefix}Slow steps", columns, listed, (about,)),
    ]


def ledger_table(ledger: Sequence[dict[str, Any]], prefix: str) -> Table:
    """Every compiled program; those that came unexpectedly are marked."""
    late = [number for number, row in enumerate(ledger) if row["after_warm_up"]]
    seconds = sum(row["seconds"] for row in ledger)
    text = [f"{len(ledger)} program(s), {seconds:.1f} s in all; {len(late)} came unexpectedly after warm-up (in red)."]
    rows = [
        [row["program"], row["shapes"], f"{row['seconds']:.2f}", "yes" if row["after_warm_up"] else ""]
        for row in ledger
    ]
    columns = ("program", "shapes", "seconds", "after warm-up")
    return Table(f"{prefix}Compiled programs", columns, rows, text, marked=tuple(late))


def compared(runs: Sequence[Run]) -> Table:
    """Median seconds of a step and its phases in each run, and how many times those of the first; slower by a tenth or
    more is marked.
    """
    medians = [median_phases(timed_rows(run.metrics)) for run in runs]
    rows, marked = [], []
    for name in dict.fromkeys(name for found in medians for name in found):
        first, cells = medians[0].get(name), [name]
        for number, found in enumerate(medians):
            value = found.get(name)
            cells.append("" if value is None else f"{value:.4f}")
            if number:
                ratio = value / first if value is not None and first else None
                cells.append("" if ratio is None else f"{ratio:.2f}")
                if ratio is not None and ratio >= 1.1:
                    marked.append(len(rows))
        rows.append(cells)
    columns = ["median seconds", runs[0].name]
    for run in runs[1:]:
        columns += [run.name, "times the first"]
    text = ("Over all steps but the first; slower by a tenth or more is red.",)
    return Table("Runs beside each other", columns, rows, text, marked=tuple(dict.fromkeys(marked)))
