"""Make a whole set of clips with questions: mp4 files and one EG-VQA file a split.

    DIR/dataset.json                what the set was made with, and whether it is complete
    DIR/videos/shapes_s7_test_00012.mp4 …
    DIR/train.json  val.json  test.json

A clip depends on (seed, split, number) and the clip options only, so the same call gives the same bytes whatever the
number of workers, and a set that was cut short goes on where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from data_tools.shapes.encode import encode_mp4
from data_tools.shapes.questions import ask, timed_texts
from data_tools.shapes.render import render
from data_tools.shapes.sampler import sample_script
from data_tools.shapes.world import CANVAS, Script
from vrjax.errors import InputError, RunError
from vrjax.records import VideoMetadata, VideoRecord, load_json, save_records

SPLITS = ("train", "val", "test")
DATA_SOURCE = "shapes"
_FORMAT = 3  # raised whenever the same options would give other clips or questions
_SCRIPT, _QUESTIONS, _NOISE = range(3)  # streams of random numbers, one a purpose


@dataclass(frozen=True)
class ClipOptions:
    """What every clip is like: frames a second, frame height and width (pixels), length limits (seconds), clock."""

    fps: int = 2
    size: int = CANVAS
    min_seconds: int = 10
    max_seconds: int = 12
    clock: bool = True

    def __post_init__(self) -> None:
        if self.fps < 1:
            raise InputError(f"fps must be at least 1, not {self.fps}.")
        if self.size < CANVAS or self.size % CANVAS:
            raise InputError(f"The frame size must be a multiple of {CANVAS} pixels, not {self.size}.")
        if not 8 <= self.min_seconds <= self.max_seconds <= 59:
            raise InputError(
                f"Clip lengths must satisfy 8 <= min <= max <= 59 s, not {self.min_seconds} and {self.max_seconds}."
            )


@dataclass(frozen=True)
class DatasetOptions:
    """How many clips each split holds, the seed, and what the clips are like."""

    train: int
    val: int
    test: int
    seed: int = 0
    clip: ClipOptions = ClipOptions()

    def __post_init__(self) -> None:
        if min(self.train, self.val, self.test) < 0 or self.train + self.val + self.test == 0:
            raise InputError("Ask for at least one clip, and for no negative number of clips.")
        if self.seed < 0:
            raise InputError(f"The seed must not be negative, but is {self.seed}.")

    @property
    def clips(self) -> tuple[tuple[str, int], ...]:
        """(split, number) of every clip, in the order of the files."""
        return tuple((split, number) for split in SPLITS for number in range(getattr(self, split)))


def clip_id(seed: int, split: str, number: int) -> str:
    return f"shapes_s{seed}_{split}_{number:05d}"


def clip_script(options: DatasetOptions, split: str, number: int) -> Script:
    """The script of one clip."""
    clip = options.clip
    return sample_script(_stream(options, split, number, _SCRIPT), clip.min_seconds, clip.max_seconds)


def clip_record(options: DatasetOptions, split: str, number: int) -> VideoRecord:
    """One clip's record; `video_path` is relative to the dataset's folder and the segments are all of its events."""
    script = clip_script(options, split, number)
    name = clip_id(options.seed, split, number)
    return VideoRecord(
        video_id=name,
        video_path=f"videos/{name}.mp4",
        duration=float(script.duration),
        data_source=DATA_SOURCE,
        metadata=VideoMetadata(title="Coloured shapes", segments=timed_texts(script.events)),
        questions=ask(script, name, _stream(options, split, number, _QUESTIONS)),
    )


def make_dataset(
    folder: str | Path,
    options: DatasetOptions,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> bool:
    """Write the set into `folder`; `progress(done, total)` is called as clips are finished.

    Returns False, and writes nothing, where `folder` already holds the whole set. More than one worker means new
    processes, which import the caller's main module: call from under `if __name__ == "__main__"`.
    Raises InputError where `folder` holds a set made otherwise; RunError where a file cannot be written.
    """
    if workers < 1:
        raise InputError(f"The number of workers must be at least 1, not {workers}.")
    folder = Path(folder)
    manifest = folder / "dataset.json"
    wanted = json.loads(json.dumps({"kind": DATA_SOURCE, "format": _FORMAT, **asdict(options)}))
    if manifest.exists():
        found = load_json(manifest)
        complete = bool(found.pop("complete", False)) if isinstance(found, dict) else False
        if found != wanted:
            raise InputError(
                f"{folder}: holds a set that was made with other options. Choose another folder, or empty it."
            )
        if complete and all(
            (folder / "videos" / f"{clip_id(options.seed, *clip)}.mp4").exists() for clip in options.clips
        ):
            return False
    elif folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty and holds no clips made by this command. Choose another folder.")
    try:
        (folder / "videos").mkdir(parents=True, exist_ok=True)
        _write_manifest(manifest, {**wanted, "complete": False})
        total = len(options.clips)
        for done, _ in enumerate(_make_clips(folder, options, workers), 1):
            if progress is not None:
                progress(done, total)
        for split in SPLITS:
            count = getattr(options, split)
            if count:
                save_records(folder / f"{split}.json", [clip_record(options, split, number) for number in range(count)])
        _write_manifest(manifest, {**wanted, "complete": True})
    except OSError as error:
        raise RunError(
            f"{folder}: the set cannot be written ({error}). Check the folder and the free space."
        ) from error
    return True


def _stream(options: DatasetOptions, split: str, number: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([options.seed, SPLITS.index(split), number, purpose])


def _make_clip(clip: tuple[str, int], folder: Path, options: DatasetOptions) -> None:
    split, number = clip
    path = folder / "videos" / f"{clip_id(options.seed, split, number)}.mp4"
    if path.exists():  # clips appear under their names only when whole
        return
    noise = _stream(options, split, number, _NOISE)
    look = options.clip
    frames = render(clip_script(options, split, number), noise, fps=look.fps, size=look.size, clock=look.clock)
    encode_mp4(frames, path, look.fps)


def _make_clips(folder: Path, options: DatasetOptions, workers: int) -> Iterator[None]:
    make = partial(_make_clip, folder=folder, options=options)
    if workers == 1:
        yield from map(make, options.clips)
        return
    # Spawned, not forked: the caller may run threads (JAX does), and a fork beside threads can hang.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(make, options.clips, chunksize=16)


def _write_manifest(path: Path, content: dict) -> None:
    partial_path = path.with_name(f".{path.name}.partial")
    partial_path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(partial_path, path)
