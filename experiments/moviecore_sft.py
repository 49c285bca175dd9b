"""Supervised fine-tuning on MovieCORE (the lower half of its Table 2): plain answers, the 4,080 training questions.

    vrjax train experiments/moviecore_sft.py --run-dir runs/moviecore_sft

Needs `data/moviecore/train.json`, the questions of MovieChat's training films in MovieCORE's form, and the films in
`data/moviecore/videos`. The questions are put in the words of the benchmark, so that training and evaluation see the
same prompts.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import PromptForm
from vrjax.evaluation.benchmarks.moviecore import OPEN_ANSWER
from vrjax.evaluation.movie_questions import MovieQuestion, load_movie_questions
from vrjax.records import Question, VideoRecord, save_records
from vrjax.training import (
    BatchConfig,
    DatasetConfig,
    InputConfig,
    ModelDirectory,
    OptimizerConfig,
    ResponseTemplate,
    SftConfig,
)
from vrjax.video import FrameOptions, ReaderPool, probe

READERS = 2
DATA = Path("data/moviecore")
FRAMES = FrameOptions(fps=1.0, max_frames=128, max_pixels=128 * 28 * 28)


def instruction_of(prompt: PromptForm) -> str:
    """What a prompt form puts behind the question. Raises InputError where it puts something before it, too."""
    before, _, behind = prompt.template.partition("{question}")
    if before:
        raise InputError(f"the prompt {prompt.name!r} begins before the question, which training cannot do.")
    return behind


def to_records(annotations: Path, videos: Path) -> list[VideoRecord]:
    """Questions of a file in MovieCORE's form as records; files lie in `videos`, and give their own durations.

    Raises InputError for a question without an answer, or a video that is not there or cannot be read.
    """
    by_video: dict[str, list[MovieQuestion]] = defaultdict(list)
    for one in load_movie_questions(annotations):
        if not one.answer:
            raise InputError(f"{annotations}: {one.id} has no answer to learn from. Give the training split.")
        by_video[one.video_file].append(one)
    paths = [videos / name for name in by_video]
    if missing := [path for path in paths if not path.is_file()]:
        raise InputError(f"{missing[0]}: no such video, but {annotations} asks about it ({len(missing)} are missing).")
    with ReaderPool(READERS) as pool, ThreadPoolExecutor(READERS) as threads:
        durations = list(threads.map(lambda path: probe(path, pool=pool).duration, paths))
    records = []
    for path, duration, found in zip(paths, durations, by_video.values(), strict=True):
        questions = tuple(
            Question(question_id=one.id, question=one.question, type=one.classification, answer=one.answer or "")
            for one in found
        )
        record = VideoRecord(
            video_id=found[0].video, video_path=str(path.resolve()), duration=duration, data_source="MovieCORE",
            questions=questions,
        )  # fmt: skip
        records.append(record)
    return records


def make_config(records: Path, run_dir: Path) -> SftConfig:
    """Qwen2.5-VL-7B on records that `to_records` made."""
    return SftConfig(
        run_dir=run_dir,
        model=ModelDirectory("Qwen/Qwen2.5-VL-7B-Instruct"),
        data=(DatasetConfig(records),),
        frames=FRAMES,
        template=ResponseTemplate("plain_answer", instruction=instruction_of(OPEN_ANSWER)),
        batch=BatchConfig(videos=16, questions=5),
        optimizer=OptimizerConfig(learning_rate=1e-5, warmup=20, weight_decay=1e-2),
        epochs=3.0,
        input=InputConfig(threads=8, cache_dir=Path("cache/patches")),
    )


def __getattr__(name: str) -> SftConfig:
    if name == "config":  # made when asked for: it reads the films
        records = DATA / "train_records.json"
        if not records.exists():
            save_records(records, to_records(DATA / "train.json", DATA / "videos"))
        return make_config(records, Path("runs/moviecore_sft"))
    raise AttributeError(name)
