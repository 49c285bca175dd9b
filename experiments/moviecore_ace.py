"""ACE as MovieCORE's Tables 2 and 3 have it: beams of a video model, chosen between by a small language model.

    python -m experiments.moviecore_ace --data data/moviecore/test.json --videos data/moviecore/videos

Beam widths 3, 5 and 7 and every read-out, all candidates kept (`vrjax ace-dataset`); then each file of predictions
beside the top beam. Text metrics need no judge; the five judged dimensions:

    vrjax score moviecore runs/moviecore_ace/predictions/*/moviecore_predictions.json --judge openai:gpt-4o-mini
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.command import run_command
from vrjax.commands.ace_dataset import AceDataset
from vrjax.evaluation.benchmarks.moviecore import MovieCore
from vrjax.evaluation.captions import score_captions
from vrjax.reranking.dataset import PREDICTIONS
from vrjax.reranking.scorer import READ_OUTS

console = Console()
METRICS = ("bleu_4", "cider")


@dataclass(frozen=True)
class MovieCoreAce:
    """Run ACE on MovieCORE and compare widths and read-outs.

    Examples::

        python -m experiments.moviecore_ace --data test.json --videos films
        python -m experiments.moviecore_ace --data test.json --videos films --model runs/moviecore_sft --scorer smollm2
    """

    data: Path = Path("data/moviecore/test.json")
    """Questions in MovieCORE's form."""
    videos: Path = Path("data/moviecore/videos")
    """Folder of the films."""
    out: Path = Path("runs/moviecore_ace")
    """Folder for candidates, scores and predictions."""
    model: str = "Qwen/Qwen2.5-VL-7B-Instruct"
    """Video model: directory, Hugging Face id or run directory."""
    scorer: str = "meta-llama/Llama-3.2-1B"
    """Text model that scores candidates."""
    beam_widths: tuple[int, ...] = (3, 5, 7)
    """Numbers of candidates."""
    max_tokens: int = 256
    """Longest candidate, in tokens."""


def run(options: MovieCoreAce) -> int:
    AceDataset(
        benchmark="moviecore",
        data=options.data,
        videos=options.videos,
        model=options.model,
        scorer=options.scorer,
        out=options.out,
        beam_widths=options.beam_widths,
        read_outs=READ_OUTS,
        max_tokens=options.max_tokens,
    ).run()
    rows = text_metrics(options.data, options.out)
    (options.out / "text_metrics.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    table = Table("predictions", *METRICS)
    for name, row in rows.items():
        table.add_row(name, *(f"{row[metric]:.3f}" for metric in METRICS))
    console.print(table)
    return 0


def text_metrics(data: Path, out: Path) -> dict[str, dict[str, float]]:
    """BLEU-4 and CIDEr of every file of predictions in `out`."""
    benchmark = MovieCore()
    items = benchmark.read(data)
    references = {item.id: [str((item.reference or {})["answer"])] for item in items}
    rows = {}
    for file in sorted((out / PREDICTIONS).glob(f"*/{benchmark.submission}")):
        answers = {one.id: one.text or "" for one in benchmark.read_submission(file, items)}
        scores = score_captions(answers, {name: references[name] for name in answers}, ("bleu", "cider"))
        rows[file.parent.name] = {metric: scores.corpus[metric] for metric in METRICS}
    return rows


if __name__ == "__main__":
    run_command(MovieCoreAce, run, "experiments.moviecore_ace")
