"""Curation: segments put right, and videos left out, each with its reason (EG-VQA, section 3.1 and appendix A.1).

The paper names the aims; the rules and their defaults are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from vrjax.records import TimedText, VideoRecord


@dataclass(frozen=True)
class CurationRules:
    """Each rule can be turned off."""

    strip_text: bool = True
    """Take spaces at the ends of descriptions, and double ones, out."""
    swap_reversed: bool = True
    """Turn a segment that ends before it starts; otherwise it is dropped."""
    cut_to_duration: bool = True
    """Cut segments at 0 and at the video's end; otherwise those that lie past them are dropped."""
    drop_empty_text: bool = True
    """Drop segments without a description."""
    shortest: float = 0.0
    """Drop segments that are not longer than so many seconds (0: those of length zero)."""
    drop_repeated: bool = True
    """Drop a segment with the times and the description of an earlier one."""
    sort_by_time: bool = True
    """Put segments into the order of their starts."""
    min_events: int = 3
    """Leave out videos with fewer different descriptions than this."""
    max_repeated_share: float = 0.5
    """Leave out videos in which more than this share of the descriptions are repetitions."""


class SegmentEdit(BaseModel):
    """A person's correction of one segment, by its number in the record that was read; None leaves a part as it is."""

    model_config = ConfigDict(extra="allow")
    video_id: str
    segment: int
    timestamp: tuple[float, float] | None = None
    description: str | None = None
    drop: bool = False
    editor: str = ""


@dataclass
class Curated:
    """records that stay; removed: {video_id, source, stage, reason, detail}; corrections: {video_id, segment, rule,
    before, after}, where `segment` is the number in the record that was read, and `after` None for a dropped one."""

    records: list[VideoRecord] = field(default_factory=list)
    removed: list[dict[str, Any]] = field(default_factory=list)
    corrections: list[dict[str, Any]] = field(default_factory=list)


def curate(
    records: Iterable[VideoRecord],
    rules: CurationRules,
    edits: Mapping[str, Sequence[SegmentEdit]] | None = None,
    unreadable: Mapping[str, str] | None = None,
) -> Curated:
    """Apply people's edits, then the rules. unreadable: video id → reason, of videos to leave out."""
    found = Curated()
    for record in records:
        if unreadable and record.video_id in unreadable:
            _remove(found, record, "unreadable", unreadable[record.video_id])
            continue
        segments = _segments(record, rules, (edits or {}).get(record.video_id, ()), found.corrections)
        texts = [_normal(segment.description) for segment in segments]
        different = len(set(texts))
        if not segments:
            _remove(found, record, "no_segments", f"{len(record.metadata.segments)} before curation")
        elif different < rules.min_events:
            _remove(found, record, "few_events", f"{different} different of {len(texts)}")
        elif 1 - different / len(texts) > rules.max_repeated_share:
            _remove(found, record, "repeated_events", f"{different} different of {len(texts)}")
        else:
            metadata = record.metadata.model_copy(update={"segments": tuple(segments)})
            found.records.append(record.model_copy(update={"metadata": metadata}))
    return found


def unreadable_videos(records: Iterable[VideoRecord], folder: Path, workers: int = 2) -> dict[str, str]:
    """Videos that are missing from the folder or cannot be decoded: video id → reason, by `vrjax.video.inspection`."""
    from vrjax.video.inspection import inspect_files

    ids = {str(folder / Path(record.video_path).name): record.video_id for record in records}
    return {ids[one.path]: f"{one.kind}: {one.message}" for one in inspect_files(list(ids), workers) if not one.ok}


def _remove(found: Curated, record: VideoRecord, reason: str, detail: str) -> None:
    where = {"video_id": record.video_id, "source": record.data_source, "stage": "curate"}
    found.removed.append({**where, "reason": reason, "detail": detail})


def _segments(
    record: VideoRecord, rules: CurationRules, edits: Sequence[SegmentEdit], log: list[dict[str, Any]]
) -> list[TimedText]:
    kept: list[TimedText] = []
    by_number = {edit.segment: edit for edit in edits}
    for number, segment in enumerate(record.metadata.segments):
        for rule, after in _steps(segment, record.duration, rules, by_number.get(number)):
            if after != segment:
                log.append(_correction(record, number, rule, segment, after))
            if after is None:
                break
            segment = after
        else:
            if rules.drop_repeated and segment in kept:
                log.append(_correction(record, number, "repeated", segment, None))
            else:
                kept.append(segment)
    return sorted(kept, key=lambda one: one.timestamp) if rules.sort_by_time else kept


def _steps(segment: TimedText, duration: float, rules: CurationRules, edit: SegmentEdit | None):
    """(rule, the segment after it, or None where it is dropped), one after the other."""
    if edit is not None:
        if edit.drop:
            yield f"edited by {edit.editor}" if edit.editor else "edited", None
            return
        segment = _with(segment, edit.timestamp or segment.timestamp, edit.description)
        yield (f"edited by {edit.editor}" if edit.editor else "edited"), segment
    if rules.strip_text:
        segment = _with(segment, segment.timestamp, " ".join(segment.description.split()))
        yield "strip_text", segment
    if rules.drop_empty_text and not _normal(segment.description):
        yield "empty_text", None
        return
    start, end = segment.timestamp
    if start > end:
        if not rules.swap_reversed:
            yield "reversed", None
            return
        start, end = end, start
        segment = _with(segment, (start, end))
        yield "swap_reversed", segment
    if start < 0 or end > duration:
        if not rules.cut_to_duration or start >= duration or end <= 0:
            yield "outside_the_video", None
            return
        start, end = max(0.0, start), min(end, duration)
        segment = _with(segment, (start, end))
        yield "cut_to_duration", segment
    if end - start <= rules.shortest:
        yield ("zero_length" if end == start else "too_short"), None


def _with(segment: TimedText, timestamp: tuple[float, float], description: str | None = None) -> TimedText:
    update = {"timestamp": timestamp} | ({} if description is None else {"description": description})
    return segment.model_copy(update=update)


def _correction(
    record: VideoRecord, number: int, rule: str, before: TimedText, after: TimedText | None
) -> dict[str, Any]:
    return {
        "video_id": record.video_id,
        "segment": number,
        "rule": rule,
        "before": before.model_dump(mode="json"),
        "after": None if after is None else after.model_dump(mode="json"),
    }


def _normal(text: str) -> str:
    """Words alone, in lower case."""
    return " ".join(re.findall(r"\w+", text.lower()))
