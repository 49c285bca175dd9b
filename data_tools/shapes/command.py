"""`vrjax-data shapes`: make clips, and say how far guessing gets on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shapes:
    """Make mp4 clips of coloured shapes with questions, answers and timed evidence in the EG-VQA format.

    The same options give the same bytes. A folder that is already complete is left as it is. At the end a table shows
    how many answers and how much of the evidence a guess gets right that reads the question but not the video.

    Examples::

      vrjax-data shapes --out data/shapes --clips 2000 --seed 0
      vrjax-data shapes --out data/large --clips 100 --size 112 --fps 8 --workers 4
    """

    out: Path
    """Folder to write: videos/, train.json, val.json, test.json, dataset.json."""
    clips: int = 2000
    """Clips to train on."""
    val_clips: int = 40
    """Clips for validation while training."""
    test_clips: int = 240
    """Held-out clips."""
    seed: int = 0
    """Clips depend on this number and the options only."""
    fps: int = 2
    """Frames a second."""
    size: int = 56
    """Height and width of a frame in pixels, a multiple of 56."""
    min_seconds: int = 10
    """Shortest clip, whole seconds, at least 8."""
    max_seconds: int = 12
    """Longest clip, whole seconds."""
    clock: bool = True
    """Draw the time MM:SS in the top left corner."""
    workers: int = 2
    """Processes that make clips."""
    json: bool = False
    """Print the figures as JSON instead of a table."""

    def run(self) -> int:
        import json
        import time
        from dataclasses import asdict

        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Table

        from data_tools.shapes.dataset import ClipOptions, DatasetOptions, make_dataset
        from data_tools.shapes.question_only import ceilings
        from vrjax.records import load_records

        options = DatasetOptions(
            train=self.clips,
            val=self.val_clips,
            test=self.test_clips,
            seed=self.seed,
            clip=ClipOptions(self.fps, self.size, self.min_seconds, self.max_seconds, self.clock),
        )
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        began = time.monotonic()
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("clips", total=len(options.clips))
            made = make_dataset(
                self.out,
                options,
                workers=self.workers,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
            bar.update(task, completed=len(options.clips))
        seconds = time.monotonic() - began
        console.print(
            f"{len(options.clips)} clips in {self.out}: "
            + (f"made in {seconds:.1f} s" if made else "already complete, nothing written")
        )
        if not (self.clips and self.test_clips):
            return 0
        found = ceilings(load_records(self.out / "train.json"), load_records(self.out / "test.json"))
        if self.json:
            rows = {guess: {kind: asdict(row) for kind, row in kinds.items()} for guess, kinds in found.items()}
            print(json.dumps({"made": made, "seconds": round(seconds, 2), "question_only": rows}, indent=1))
            return 0
        table = Table(title="Best guesses without the video (test split)")
        for heading in ("guess from", "type", "questions", "answer", "soft EG-F1, Sim = 1"):
            table.add_column(heading)
        for guess, kinds in found.items():
            for kind, row in kinds.items():
                table.add_row(guess, kind, str(row.questions), f"{row.answer:.3f}", f"{row.soft_eg_f1:.3f}")
        Console().print(table)
        return 0
