"""Clips of MovieChat-1K with their metadata and short questions. Their captions are not taken up anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.official_files import read_ids
from vrjax.records import load_json

# Of a row in HERMES' form; `caption` is left out on purpose: the paper found the captions wrong and uneven.
METADATA = ("class", "frame_length", "original_fps", "fps", "height", "width")
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Clip:
    """name: without suffix. metadata: what the dataset says of the file. system1: the short questions and answers."""

    name: str
    split: str
    metadata: Mapping[str, Any]
    system1: tuple[tuple[str, str], ...]

    @property
    def file(self) -> str:
        return f"{self.name}.mp4"


def read_clips(path: Path, split: str) -> list[Clip]:
    """Clips of one file: HERMES' form ({"<clip>_1": {video, question, answer, class, …}}) or one clip's official form
    ({info, global, breakpoint}).

    Where a clip's rows differ in metadata, the first counts. Raises InputError naming the file and the record.
    """
    content = load_json(path, unique_keys=True)
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: expected an object with questions of MovieChat-1K. Check the file.")
    if "global" in content:
        info = content.get("info") or {}
        name = Path(str(info.get("video_path", path.stem))).stem
        metadata = {key: value for key, value in info.items() if key != "video_path"}
        asked = tuple(_pair(path, f"{name} global {n}", row) for n, row in enumerate(content["global"]))
        return [Clip(name, split, metadata, asked)]
    found: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {}
    for key, row in content.items():
        if not isinstance(row, dict) or not isinstance(row.get("video"), str) or not row["video"]:
            raise InputError(f"{path}: record {key}: has no video. Give MovieChat-1K as HERMES ships it.")
        metadata, asked = found.setdefault(row["video"], ({}, []))
        for name in METADATA:
            if name in row:
                metadata.setdefault(name, row[name])
        asked.append(_pair(path, key, row))
    return [Clip(name, split, metadata, tuple(asked)) for name, (metadata, asked) in found.items()]


def join_clips(parts: Iterable[Iterable[Clip]], test_list: Path | None = None) -> list[Clip]:
    """All clips, each once. test_list: names of the clips that are for testing, instead of the files' own splits.

    Raises InputError for a clip that is in two files, or a name in the list that is no clip.
    """
    clips = [clip for part in parts for clip in part]
    names = [clip.name for clip in clips]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the clip {twice!r} is in two files, so that its split is not clear. Keep one.")
    if test_list is None:
        return clips
    wanted = {Path(name).stem if name.endswith(".mp4") else name for name in read_ids(test_list)}
    if unknown := sorted(wanted - set(names)):
        raise InputError(f"{test_list}: {unknown[0]!r} is no clip of these files. Check the list.")
    return [Clip(one.name, SPLITS[one.name in wanted], one.metadata, one.system1) for one in clips]


def find_video(folder: Path, clip: Clip) -> Path | None:
    """The clip's file in a folder, whatever its suffix; None where it is missing."""
    from vrjax.video.inspection import VIDEO_SUFFIXES

    exact = folder / clip.file
    if exact.is_file():
        return exact
    return next((folder / f"{clip.name}{suffix}" for suffix in sorted(VIDEO_SUFFIXES)
                 if (folder / f"{clip.name}{suffix}").is_file()), None)  # fmt: skip


def _pair(path: Path, name: str, row: Any) -> tuple[str, str]:
    question, answer = (row.get("question"), row.get("answer")) if isinstance(row, dict) else (None, None)
    if not isinstance(question, str) or not isinstance(answer, str):
        raise InputError(f"{path}: record {name}: needs a question and an answer in words. Correct the record.")
    return question, answer
