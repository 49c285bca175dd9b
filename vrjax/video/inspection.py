"""Which files will fail, and why, before a run of days finds out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from vrjax.errors import InputError, VideoError
from vrjax.video.decoding import check_ends, check_file, probe_file
from vrjax.video.frame_plan import plan_frames
from vrjax.video.pool import ReaderPool

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".flv", ".wmv", ".3gp", ".ogv"}
)
KINDS = {
    "missing": "there is no such file",
    "unreadable": "it cannot be opened or is no video",
    "empty": "it has no bytes",
    "not_a_file": "it is a folder, a pipe or a device",
    "no_video_stream": "it holds no video, only audio or data",
    "unsupported_codec": "no decoder for its codec",
    "truncated": "it holds fewer frames than it announces, or its end does not decode",
    "no_frames": "its video stream is empty",
    "one_frame": "it holds a single frame, which is given twice",
    "zero_fps": "it has neither a frame rate nor frame times",
    "aspect_ratio": "one side is more than 200 times the other",
    "size_changes": "its frames change size on the way",
    "changed": "it was written to between planning and reading",
    "hang": "it gave no answer within the time limit",
    "crash": "the decoder crashed on it",
    "out_of_memory": "its frames do not fit in memory",
    "bad_option": "the sampling options do not fit it",
}


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The verdict on one file: `kind` is `ok` or a key of KINDS, `message` a sentence, `notes` substitutions made."""

    path: str
    kind: str
    message: str = ""
    notes: tuple[str, ...] = ()
    frames: int = 0
    seconds: float = 0.0
    codec: str = ""

    @property
    def ok(self) -> bool:
        return self.kind == "ok"


def inspect_here(path: str) -> dict[str, Any]:
    """Inspect a file in this process: facts as JSON. Raises VideoError with its kind where the file fails."""
    info = probe_file(path)
    plan = plan_frames(info)
    check_ends(info)
    if info.total_frames == 1:
        raise VideoError(f"{path}: holds a single frame, given twice if used. Leave it out.", "one_frame")
    facts = {"frames": info.total_frames, "seconds": info.duration, "codec": info.codec, "notes": list(plan.notes)}
    return facts


def inspect_file(path: str, pool: ReaderPool) -> Inspection:
    """Inspect a file in one of the pool's processes. Never raises for what the file does."""
    try:
        check_file(path)
        facts, _ = pool.run("inspect", path)
    except VideoError as error:
        return Inspection(path, error.kind, str(error))
    return Inspection(path, "ok", "", tuple(facts["notes"]), facts["frames"], facts["seconds"], facts["codec"])


def find_videos(paths: Iterable[str | Path]) -> list[str]:
    """List the given files, and for each folder the video files under it (by suffix), sorted.

    A file given by name is listed whatever its suffix, even if missing: its inspection says so.
    Raises InputError where a folder holds no video.
    """
    found: list[str] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(str(path))
            continue
        inside = sorted(str(file) for file in path.rglob("*") if file.suffix.lower() in VIDEO_SUFFIXES)
        if not inside:
            raise InputError(f"{path}: no video files under this folder. Give another, or name the files.")
        found += inside
    return list(dict.fromkeys(found))


def inspect_files(paths: Iterable[str], workers: int = 2, time_limit_s: float = 30.0) -> Iterator[Inspection]:
    """Yield an Inspection for each file as it is known, `workers` at a time, each within `time_limit_s` seconds."""
    with (
        ReaderPool(workers=workers, time_limit_s=time_limit_s) as pool,
        ThreadPoolExecutor(workers) as executor,
    ):
        for future in as_completed([executor.submit(inspect_file, path, pool) for path in paths]):
            yield future.result()
