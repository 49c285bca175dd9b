"""Checkpoints of a training run, each evaluated once as it appears; the metric against the step; the best by name.

OUT/steps/000500/   an evaluation (see `runner`) of the checkpoint of step 500
OUT/watch.json      values by step, the best, checkpoints that could not be read, whether training has ended
OUT/metric.png      the metric against the step
OUT/report.html     the same as a page

All that is remembered is on disk: killed and started again, the watch goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from vrjax.checkpoints import TrainingCheckpoints
from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, Tools
from vrjax.evaluation.native_subject import NativeSubject
from vrjax.evaluation.report import Figure, Table, curves, write_report
from vrjax.evaluation.result_files import SCORES, load_scored_run
from vrjax.evaluation.runner import EvaluationOptions, run
from vrjax.evaluation.score_tables import number
from vrjax.loading import CHECKPOINTS, LoadedModel, load_run
from vrjax.run_directory import RunDirectory

STEPS, WATCH, PLOT = "steps", "watch.json", "metric.png"


def watch(
    benchmark: Benchmark,
    checkpoints: Path,
    options: EvaluationOptions,
    tools: Tools,
    make_subject: Callable[[LoadedModel, str], NativeSubject],
    *,
    mesh: Mesh | None = None,
    metric: str | None = None,
    poll_s: float = 10.0,
    patience_s: float = 0.0,
    say: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Evaluate every finished checkpoint of a run until its training has ended; returns what watch.json holds.

    checkpoints: RUN/checkpoints, or RUN; neither need be there yet. mesh: of devices that hold the model. metric:
    strict value that ranks checkpoints, the higher the better; default the headline. patience_s: leave after so long
    without a new checkpoint (0: never), for runs that died. make_subject: called once; later checkpoints go into the
    same subject, so that nothing is compiled twice. A checkpoint that cannot be read is tried again once it has changed
    and at the end, and named if it stays so.

    Raises InputError for data and options that cannot be used, and for a metric that the benchmark does not have.
    """
    run_directory = checkpoints.parent if checkpoints.name == CHECKPOINTS else checkpoints
    training = RunDirectory(run_directory, writes=False)
    state = _State(benchmark, run_directory, options, metric or benchmark.headline)
    subject: NativeSubject | None = None
    tried: dict[int, Any] = {}
    last_new = clock()
    say(f"watching {training.checkpoints}")
    while True:
        ended = training.last_step()  # asked first: whatever was saved before the end is then listed
        new = [step for step in _finished_steps(training.checkpoints) if step not in state.values]
        for step in new:
            files = _files(training.checkpoints / str(step))
            if tried.get(step) == files and ended is None:
                continue  # nothing was written to it since it could not be read
            tried[step] = files
            try:
                model, _ = load_run(run_directory, step=step, mesh=mesh)
            except MemoryError:
                raise
            except Exception as error:  # half-written, or deleted while it was read: Orbax raises many kinds
                if step not in state.unreadable:
                    say(f"step {step}: cannot be read yet ({_first_line(error)})")
                state.unreadable[step] = _first_line(error)
                continue
            state.unreadable.pop(step, None)
            label = f"{run_directory.resolve().name} step {step}"
            if subject is None:
                subject = make_subject(model, label)
            else:
                subject.renew(model, label)
            run(benchmark, subject, replace(options, out=state.folder(step)), tools)
            state.read(step)
            state.write(ended=False)
            best, value = state.best()
            shown = f"{state.metric} {number(state.values[step])}"
            say(f"step {step}: {shown}; the best is step {best} with {number(value)}")
            last_new = clock()
        if ended is not None:
            break
        if patience_s and clock() - last_new > patience_s:
            say(f"no new checkpoint for {patience_s:g} s, and training has not said that it ended: leaving.")
            break
        sleep(poll_s)
    found = state.write(ended=ended is not None)
    for step, reason in sorted(state.unreadable.items()):
        say(f"step {step}: could not be read ({reason})")
    if state.values:
        best, value = state.best()
        say(f"{len(state.values)} checkpoints; the best by {state.metric} is step {best} with {number(value)}")
    else:
        say(f"{training.checkpoints}: there was no checkpoint that could be evaluated.")
    return found


def _finished_steps(folder: Path) -> list[int]:
    """Committed checkpoints, oldest first: they are deleted in that order."""
    if not folder.is_dir():
        return []
    with TrainingCheckpoints(folder, read_only=True) as checkpoints:
        return checkpoints.steps()


def _files(folder: Path) -> tuple[int, int, int]:
    """Changes whenever something in the folder is written: files, bytes, latest change in nanoseconds."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # deleted meanwhile
            found.append(path.stat())
    return len(found), sum(one.st_size for one in found), max((one.st_mtime_ns for one in found), default=0)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class _State:
    """values: the metric of each evaluated step; scores: all of their scores.json; unreadable: step → why."""

    def __init__(self, benchmark: Benchmark, run: Path, options: EvaluationOptions, metric: str) -> None:
        self.metric, self._run, self._out = metric, run, options.out
        self._shown = [metric, benchmark.answering or benchmark.headline]
        self._shown += [benchmark.grounding[0]] if benchmark.grounding else []
        self.values: dict[int, float] = {}
        self.scores: dict[int, Mapping[str, Any]] = {}
        self.unreadable: dict[int, str] = {}
        for folder in sorted((self._out / STEPS).glob("*")):
            if folder.name.isdigit() and (folder / SCORES).is_file():
                self.read(int(folder.name))

    def folder(self, step: int) -> Path:
        return self._out / STEPS / f"{step:06d}"

    def read(self, step: int) -> None:
        if not (self.folder(step) / SCORES).is_file():
            raise InputError(f"{self.folder(step)}: was not scored: these questions have no labels.")
        scores = load_scored_run(self.folder(step)).scores
        if self.metric not in scores["strict"]:
            known = ", ".join(scores["strict"])
            raise InputError(f"{self.metric!r} is no metric of {scores['benchmark']}. Choose one of: {known}.")
        self.values[step], self.scores[step] = scores["strict"][self.metric], scores

    def best(self) -> tuple[int, float]:
        """The step with the highest value, of equals the later."""
        value, step = max((value, step) for step, value in self.values.items())
        return step, value

    def write(self, ended: bool) -> dict[str, Any]:
        best = self.best() if self.values else None
        found = {
            "run": str(self._run),
            "metric": self.metric,
            "steps": {str(step): dict(self.scores[step]["strict"]) for step in sorted(self.values)},
            "best": None if best is None else {"step": best[0], "value": best[1]},
            "unreadable": {str(step): reason for step, reason in sorted(self.unreadable.items())},
            "ended": ended,
        }
        RunDirectory(self._out).write_json(WATCH, found)
        if best is not None:
            self._plot(best)
            self._page(best, ended)
        return found

    def _line(self, metric: str) -> tuple[list[int], list[float]]:
        steps = [step for step in sorted(self.scores) if metric in self.scores[step]["strict"]]
        return steps, [self.scores[step]["strict"][metric] for step in steps]

    def _plot(self, best: tuple[int, float]) -> None:
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(7, 4), layout="constrained")
        axis = canvas.subplots()
        steps, values = self._line(self.metric)
        bounds = [self.scores[step]["intervals"][self.metric] for step in steps]
        axis.fill_between(steps, [b["low"] for b in bounds], [b["high"] for b in bounds], alpha=0.18, color="#2f5d9b")
        axis.plot(steps, values, marker="o", markersize=4, color="#2f5d9b")
        axis.plot([best[0]], [best[1]], marker="o", markersize=9, color="#c2571a", linestyle="")
        axis.set_title(f"{self.metric}: the best is step {best[0]} with {best[1]:.4f}", fontsize=11, parse_math=False)
        axis.set_xlabel("step")
        axis.spines[["top", "right"]].set_visible(False)
        partial = self._out / f".{PLOT}.partial"
        canvas.savefig(partial, format="png", dpi=120)
        os.replace(partial, self._out / PLOT)

    def _page(self, best: tuple[int, float], ended: bool) -> None:
        shown = list(dict.fromkeys(self._shown))
        columns = ("step", *shown, f"95% of {self.metric}", "answered in full")
        rows = []
        for step in sorted(self.scores):
            scores = self.scores[step]
            bounds = scores["intervals"][self.metric]
            rows.append(
                (
                    f"{step} (best)" if step == best[0] else str(step),
                    *(number(scores["strict"].get(metric)) for metric in shown),
                    f"{number(bounds['low'])} to {number(bounds['high'])}",
                    f"{100 * scores['coverage']:.1f}%",
                )
            )
        lines = {metric: {metric: self._line(metric)} for metric in shown}
        text = [f"step {step} could not be read: {reason}" for step, reason in sorted(self.unreadable.items())]
        write_report(
            self._out / "report.html",
            f"Checkpoints of {self._run.resolve().name}",
            f"{len(rows)} evaluated; the best by {self.metric} is step {best[0]} with {best[1]:.4f}. "
            + ("Training has ended." if ended else "Training goes on."),
            [Figure("Against the step", curves(lines)), Table("Checkpoints", columns, rows, text)],
        )
