"""Annotated videos of three datasets as records: ActivityNet Captions, YouCook2, HiREST.

Each video of a source file is a record or a named removal. A record keeps where it came from:

    provenance   {source, files, split}
    annotations  [{annotator, file, segments}]: all annotators' segments as they stand in the files
    metadata     title and the segments that are used
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vrjax.errors import InputError
from vrjax.evaluation.official_files import youtube_id
from vrjax.records import VideoRecord, load_json, parse_records

Annotation = Literal["first", "second", "most_segments", "all"]
ACTIVITYNET, YOUCOOK2, HIREST = "ActivityNet Captions", "YouCook2", "HiREST"


@dataclass
class SourceVideos:
    """records and removals ({video_id, source, reason, detail}) together are all videos of the files."""

    records: list[VideoRecord] = field(default_factory=list)
    removed: list[dict[str, Any]] = field(default_factory=list)

    def remove(self, video: str, source: str, reason: str, detail: str = "") -> None:
        self.removed.append({"video_id": video, "source": source, "stage": "read", "reason": reason, "detail": detail})


def read_activitynet(paths: Sequence[Path], use: Annotation = "first", split: str = "val") -> SourceVideos:
    """ActivityNet Captions, {"v_<id>": {duration, timestamps, sentences}}, a file an annotator.

    use: whose segments are used; `first` falls to the next annotator where a video has no segment by the first. Raises
    InputError naming file, video and field.
    """
    found = SourceVideos()
    files = [(path, _object(path)) for path in paths]
    for video in dict.fromkeys(video for _, content in files for video in content):
        annotations, durations = [], []
        for number, (path, content) in enumerate(files, 1):
            if video in content:
                duration, segments = _captions(path, video, content[video])
                annotations.append({"annotator": str(number), "file": path.name, "segments": segments})
                durations.append(duration)
        _add(found, video, ACTIVITYNET, split, "", durations, annotations, use)
    return found


def read_youcook2(path: Path, subset: str = "validation", split: str = "val") -> SourceVideos:
    """YouCook2, in its official form ({"database": {id: {duration, subset, annotations}}}) or that of PDVC.

    Videos of the official file that are of another subset are removals.
    """
    content, found = _object(path), SourceVideos()
    if "database" not in content:
        for video, entry in content.items():
            duration, segments = _captions(path, video, entry)
            annotations = [{"annotator": "1", "file": path.name, "segments": segments}]
            _add(found, _bare(video), YOUCOOK2, split, "", [duration], annotations)
        return found
    for video, entry in _mapping(path, "database", content["database"]).items():
        entry = _mapping(path, video, entry)
        if entry.get("subset") != subset:
            found.remove(video, YOUCOOK2, "other_subset", str(entry.get("subset")))
            continue
        segments = [
            _segment(path, video, number, one, "segment", "sentence")
            for number, one in enumerate(_list(path, video, "annotations", entry.get("annotations")))
        ]
        annotations = [{"annotator": "1", "file": path.name, "segments": segments}]
        _add(found, video, YOUCOOK2, split, "", [entry.get("duration")], annotations)
    return found


def read_hirest(path: Path, ground_truth: Path | None = None, split: str = "val") -> SourceVideos:
    """HiREST, {title: {"<id>.mp4": {relevant, clip, v_duration, bounds, steps}}}.

    ground_truth: the formatted step labels ({"<id>.mp4": {captions: [{start, end, sentence}]}}), which the test split
    needs: its own file has placeholders (bounds 0 to 1, no steps), and these are never taken for annotations. Videos
    without step labels, or without a duration (negative samples), are removals.
    """
    content, found = _object(path), SourceVideos()
    labels = _object(ground_truth) if ground_truth is not None else {}
    seen: set[str] = set()
    for title, videos in content.items():
        for name, entry in _mapping(path, title, videos).items():
            entry = _mapping(path, f"{title}: {name}", entry)
            video = name.removesuffix(".mp4")
            if video in seen:
                found.remove(video, HIREST, "duplicate_id", f"again under {title!r}")
                continue
            seen.add(video)
            if not entry:
                found.remove(video, HIREST, "negative_sample", title)
                continue
            label_file = path
            if ground_truth is not None and name in labels:
                label_file = ground_truth
                given = _mapping(ground_truth, name, labels[name]).get("captions")
                segments = [
                    _segment(ground_truth, video, number, one, ("start", "end"), "sentence")
                    for number, one in enumerate(_list(ground_truth, video, "captions", given))
                ]
            else:
                segments = [
                    _segment(path, video, number, one, "absolute_bounds", "heading")
                    for number, one in enumerate(_list(path, video, "steps", entry.get("steps", [])))
                ]
            if not segments:
                placeholder = "placeholder bounds" if entry.get("bounds") == [0, 1] else "no steps"
                found.remove(video, HIREST, "unlabelled", placeholder)
                continue
            annotations = [{"annotator": "1", "file": label_file.name, "segments": segments}]
            _add(found, video, HIREST, split, title, [entry.get("v_duration")], annotations)
    if unknown := sorted(labels.keys() - {f"{video}.mp4" for video in seen}):
        raise InputError(
            f"{ground_truth}: {unknown[0]} is not a video of {path.name}. Give the ground truth of the same split."
        )
    return found


def join_sources(sources: Sequence[SourceVideos]) -> SourceVideos:
    """All sources as one; a video that an earlier source has (by its YouTube id) is a removal."""
    found, owner = SourceVideos(), dict[str, str]()
    for source in sources:
        found.removed += source.removed
        for record in source.records:
            key = youtube_id(record.video_id)
            if key in owner:
                found.remove(record.video_id, record.data_source, "duplicate_id", f"also in {owner[key]}")
            else:
                owner[key] = record.data_source
                found.records.append(record)
    return found


def _add(
    found: SourceVideos, video: str, source: str, split: str, title: str, durations: Sequence[Any],
    annotations: list[dict[str, Any]], use: Annotation = "first",
) -> None:  # fmt: skip
    known = [one for one in durations if isinstance(one, int | float) and math.isfinite(one) and one > 0]
    if not known:
        found.remove(video, source, "no_duration", f"{durations[0]!r}" if durations else "")
        return
    row = {
        "video_id": video,
        "video_path": f"videos/{video}.mp4",
        "duration": max(known),
        "data_source": source,
        "metadata": {"title": title, "segments": _used(annotations, use)},
        "questions": [],
        "provenance": {"source": source, "files": [one["file"] for one in annotations], "split": split},
        "annotations": annotations,
    }
    found.records += parse_records([row], source)


def _used(annotations: Sequence[Mapping[str, Any]], use: Annotation) -> list[dict[str, Any]]:
    if use == "all":
        return [segment for one in annotations for segment in one["segments"]]
    if use == "most_segments":
        return max(annotations, key=lambda one: len(one["segments"]))["segments"]
    wanted = [one for one in annotations if (one["annotator"] == "1") == (use == "first") and one["segments"]]
    return (wanted or [one for one in annotations if one["segments"]] or annotations)[0]["segments"]


def _captions(path: Path, video: str, entry: Any) -> tuple[Any, list[dict[str, Any]]]:
    entry = _mapping(path, video, entry)
    times = _list(path, video, "timestamps", entry.get("timestamps"))
    texts = _list(path, video, "sentences", entry.get("sentences"))
    if len(times) != len(texts):
        raise InputError(f"{path}: {video}: {len(times)} timestamps and {len(texts)} sentences. Correct the record.")
    pairs = zip(times, texts, strict=True)
    return entry.get("duration"), [
        _segment(path, video, number, {"t": time, "s": text}, "t", "s") for number, (time, text) in enumerate(pairs)
    ]


def _segment(
    path: Path, video: str, number: int, entry: Any, times: str | tuple[str, str], text: str
) -> dict[str, Any]:
    entry = _mapping(path, f"{video}: segment {number}", entry)
    span = [entry.get(name) for name in times] if isinstance(times, tuple) else entry.get(times)
    fine = isinstance(span, list) and len(span) == 2
    if not fine or not all(isinstance(one, int | float) and math.isfinite(one) for one in span):
        raise InputError(f"{path}: {video}: segment {number}: {span!r} are no two times in seconds. Correct them.")
    if not isinstance(entry.get(text), str):
        raise InputError(f"{path}: {video}: segment {number}: the description is no text. Correct it.")
    return {"timestamp": span, "description": entry[text]}


def _bare(video: str) -> str:
    return video.removeprefix("v_") if len(video) == 13 else video


def _object(path: Path) -> dict[str, Any]:
    return _mapping(path, "the file", load_json(path, unique_keys=True))


def _mapping(path: Path, where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {where}: expected an object, found {type(value).__name__}. Is it another source's?")
    return value


def _list(path: Path, video: str, field: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(
            f"{path}: {video}: {field}: expected a list, found {type(value).__name__}. Correct the record."
        )
    return value
