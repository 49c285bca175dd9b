"""What one sees of a run: a progress line, `metrics.jsonl`, TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from vrjax.errors import InputError
from vrjax.ledger import LedgerEntry
from vrjax.run_directory import CONFIG, LEDGER, METRICS, RunDirectory

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class MetricsWriter(Protocol):
    """Anywhere metrics can go beside `metrics.jsonl`."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardWriter:
    """TensorBoard events in the run directory; steps past a resumed one are purged."""

    def __init__(self, run: RunDirectory, resumed_at: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(
            str(run.path / "tensorboard"), purge_step=resumed_at + 1 if resumed_at else None, write_to_disk=run.writes
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbWriter:
    """Weights & Biases, where its package is installed; the run goes on under the name of its directory."""

    def __init__(self, run: RunDirectory) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError("wandb is on, but its package is not installed: pip install wandb") from error
        self._run = wandb.init(dir=str(run.path), id=run.path.name, resume="allow", config=run.read_json(CONFIG))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class RunLog:
    """Progress on the terminal (loss, tokens a second, time left) and metrics to all writers. Close it at the end."""

    def __init__(
        self, run: RunDirectory, *, tensorboard: bool = True, progress: bool = True, wandb: bool = False
    ) -> None:
        from rich.console import Console

        self._run = run
        self._tensorboard, self._wandb = tensorboard and run.writes, wandb and run.writes
        self._shows = progress and run.writes
        self._console = Console(stderr=True)
        self._writers: list[MetricsWriter] = []
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def start(self, steps: int, resumed_at: int) -> None:
        """Open the files. Lines of `metrics.jsonl` past `resumed_at` are dropped: a resumed run doubles none."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._run.keep_until(METRICS, resumed_at)
        if self._tensorboard:
            self._writers.append(TensorBoardWriter(self._run, resumed_at))
        if self._wandb:
            self._writers.append(WandbWriter(self._run))
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._shows,
        )
        self._task = self._progress.add_task("step", total=steps, completed=resumed_at, shown="")
        self._progress.start()

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row; names with a slash (`validation/loss`) are grouped by TensorBoard."""
        self._run.append(METRICS, [{"step": step, **metrics}])
        for writer in self._writers:
            writer.write(step, metrics)

    def advance(self, step: int, shown: str) -> None:
        """Move the progress bar; `shown` are the figures beside it."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=step, shown=shown)

    def say(self, message: str) -> None:
        """A line on the terminal, above the progress bar."""
        if self._shows:
            self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        for writer in self._writers:
            writer.close()


def enter_program(run: RunDirectory, log: RunLog, entry: LedgerEntry) -> None:
    """A program was compiled: note it in the run's ledger, and say so where it was not expected."""
    run.append(LEDGER, [entry.as_row()])
    if entry.after_warm_up:
        log.say(
            f"{entry.program} was compiled after warm-up, in {entry.seconds:.1f} s, for {entry.shapes}. See `vrjax "
            "buckets` for what the data needs; --recompilation stop ends a run here."
        )
