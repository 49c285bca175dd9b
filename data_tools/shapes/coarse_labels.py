"""Blur the times of records, as hurried annotators would."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from vrjax.errors import InputError
from vrjax.records import TimedText, VideoRecord


def coarse_labels(
    records: Sequence[VideoRecord], seed: int, probability: float = 0.7, widen_s: float = 1.0
) -> list[VideoRecord]:
    """Move each boundary of each event outwards by `widen_s` seconds with `probability`, but not past the clip's ends.

    An event keeps one pair of boundaries throughout its video, in the segments and in every question's evidence. The
    draw depends on the seed, the video's id and the event only, not on the order of the records.
    Raises InputError where `probability` is outside [0, 1] or `widen_s` is negative.
    """
    if not 0 <= probability <= 1 or widen_s < 0:
        raise InputError(f"probability must lie in [0, 1] and widen_s must not be negative: {probability}, {widen_s}.")
    return [_coarse_record(record, seed, probability, widen_s) for record in records]


def _coarse_record(record: VideoRecord, seed: int, probability: float, widen_s: float) -> VideoRecord:
    def widen(texts: Sequence[TimedText]) -> tuple[TimedText, ...]:
        return tuple(_coarse_text(text, record, seed, probability, widen_s) for text in texts)

    questions = tuple(
        question.model_copy(update={"evidence": widen(question.evidence)}) for question in record.questions
    )
    metadata = record.metadata.model_copy(update={"segments": widen(record.metadata.segments)})
    return record.model_copy(update={"metadata": metadata, "questions": questions})


def _coarse_text(text: TimedText, record: VideoRecord, seed: int, probability: float, widen_s: float) -> TimedText:
    address = f"{record.video_id}\n{text.start}\n{text.end}\n{text.description}"
    early, late = np.random.default_rng([seed, zlib.crc32(address.encode())]).random(2) < probability
    start = max(0.0, text.start - widen_s) if early else text.start
    end = max(text.end, min(record.duration, text.end + widen_s)) if late else text.end
    return text.model_copy(update={"timestamp": (start, end)})
