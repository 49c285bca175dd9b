"""`vrjax ace-dataset`: ACE over the questions of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vrjax.commands.devices import Devices
from vrjax.video import FrameOptions

if TYPE_CHECKING:
    from vrjax.evaluation.responder import Responder
    from vrjax.reranking import ReadOut, Scorer


@dataclass(frozen=True)
class AceDataset:
    """Candidates and scores of every question of a benchmark, and predictions for each beam width and read-out.

    All candidates are kept, so that widths and read-outs are compared offline: `vrjax score moviecore` on the files in
    OUT/predictions. Safe to kill: started again, it goes on where it was.

    Examples::

        vrjax ace-dataset moviecore --data test.json --videos films --model DIR --scorer smollm2 --out runs/ace
        vrjax ace-dataset moviecore --data test.json --videos films --model DIR --scorer smollm2 --out runs/ace \\
            --beam-widths 3 5 7 --read-outs expected_digit log_likelihood
    """

    benchmark: tyro.conf.Positional[str]
    """Name of a benchmark with open answers (moviecore, moviechat, eg_vqa), or a Python file that defines one."""
    data: Path
    """Its questions: a folder or file in the official form."""
    model: str
    """Video model that writes candidates: model directory, Hugging Face id, or run directory (its best checkpoint)."""
    scorer: str
    """Text model that scores them: a directory or Hugging Face id."""
    out: Path
    """Folder for candidates, scores and predictions."""
    videos: Path | None = None
    """Folder of the videos; by default that of --data."""
    beam_widths: tuple[int, ...] = (3, 5, 7)
    """Numbers of candidates, each a search of its own."""
    read_outs: tuple[Literal["expected_digit", "generated_number", "log_likelihood"], ...] = ("expected_digit",)
    """How the scorer's opinion is read."""
    length_penalty: float = 1.0
    """Beams' scores are divided by length to this power."""
    max_tokens: int = 256
    """Longest candidate, in tokens."""
    too_long: Literal["error", "cut"] = "error"
    """What to do with a candidate that exceeds the scorer's context."""
    instruction: str | None = None
    """Text behind the question. Default: what the checkpoint was trained with, else none."""
    limit: int | None = None
    """Only the first so many questions."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the summary as JSON."""
    frames: FrameOptions = field(default_factory=FrameOptions)
    """Which frames, and at what size. A checkpoint trained by vrjax brings its own; flags override them."""
    devices: Devices = field(default_factory=Devices)
    """Devices that hold --model; by default the first, where the scorer is."""

    def run(self) -> int:
        """Search, score, choose, print, and return the exit code."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from vrjax.evaluation.own_benchmark import find_benchmark, make_benchmark
        from vrjax.evaluation.video_files import VideoFolder
        from vrjax.generation.beam_search import BeamOptions
        from vrjax.reranking.dataset import AceOptions, rerank_benchmark

        benchmark = make_benchmark(find_benchmark(self.benchmark))
        items = benchmark.read(self.data)[: self.limit]
        folder = VideoFolder(self.videos or (self.data if self.data.is_dir() else self.data.parent))
        beams = BeamOptions(max_tokens=self.max_tokens, length_penalty=self.length_penalty)
        options = AceOptions(out=self.out, widths=self.beam_widths, beams=beams)
        settings = {
            "model": self.model, "scorer": self.scorer, "instruction": self.instruction, "too_long": self.too_long,
        }  # fmt: skip
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            tasks: dict[str, int] = {}

            def show(part: str, done: int, total: int) -> None:
                if part not in tasks:
                    tasks[part] = bar.add_task(part, total=total)
                bar.update(tasks[part], completed=done, total=total)  # pyright: ignore[reportArgumentType]

            scorers: dict[ReadOut, Callable[[], Scorer]] = {
                name: partial(self._scorer, name) for name in self.read_outs
            }
            summary = rerank_benchmark(benchmark, items, folder, self._responder, scorers, settings, options, show)
        if self.json:
            print(json.dumps(summary, indent=1))
        else:
            _show(summary, self.out)
        return 0

    def _responder(self) -> Responder:
        from vrjax.evaluation.responder import Responder
        from vrjax.generation.recipe import PromptRecipe

        model = self.devices.load(self.model)
        recipe = PromptRecipe.read(model.directory) or PromptRecipe(instruction="")
        if self.frames != FrameOptions():
            recipe = replace(recipe, frames=self.frames)
        return Responder(model, replace(recipe, instruction=self.instruction or recipe.instruction))

    def _scorer(self, read_out: ReadOut) -> Scorer:
        from vrjax.generation import Engine
        from vrjax.loading import load
        from vrjax.reranking import Scorer, ScorerOptions

        return Scorer(Engine(load(self.scorer)), ScorerOptions(read_out=read_out, too_long=self.too_long))


def _show(summary: dict, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("predictions", "not the top beam", "undecided", "unread candidates", "tokens cut")
    for name, row in summary["choices"].items():
        cells = (row["not_the_top_beam"], row["undecided"], row["unread_candidates"], row["tokens_cut"])
        table.add_row(name, *map(str, cells))
    console.print(table)
    unanswered = ", ".join(f"{count} with {width} beams" for width, count in summary["unanswered"].items())
    console.print(
        f"{summary['questions']} questions; without candidates: {unanswered}. Files in {out / 'predictions'}."
    )
