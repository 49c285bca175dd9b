"""Screened questions and people's decisions become the records of the dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from vrjax.errors import InputError
from vrjax.records import Question, TimedText, VideoRecord

SAME_S = 0.01  # two times that differ by less are the same


class Decision(BaseModel):
    """What a person decided about a question; edited parts replace the candidate's."""

    model_config = ConfigDict(extra="allow")
    question_id: str
    decision: Literal["accept", "reject"]
    question: str | None = None
    answer: str | None = None
    evidence: tuple[TimedText, ...] | None = None


def assemble(
    records: Sequence[VideoRecord], screened: Iterable[Mapping[str, Any]], decisions: Mapping[str, Decision]
) -> tuple[list[VideoRecord], Counter[str]]:
    """(records with their questions, what became of every candidate). A person's decision outweighs the judges'.

    Evidence whose times a person set, within the video and over the segment of the same words, becomes a segment of the
    record, marked `"set_by": "people"`, so that all evidence is segments of its record. Questions are numbered
    `<video_id>_q01` …; `candidate_id` keeps the earlier name. Queued questions without a decision stay out, and are
    counted. Raises InputError where a decision is about no candidate, or its evidence is neither of the two.
    """
    by_video: dict[str, list[Question]] = {}
    counts: Counter[str] = Counter()
    by_id = {record.video_id: record for record in records}
    known: set[str] = set()
    added: dict[str, list[TimedText]] = {}
    for row in screened:
        question = Question.model_validate(row["question"])
        known.add(question.question_id)
        decision = decisions.get(question.question_id)
        if decision is None:
            counts[f"{row['decision']} by the judges" if row["decision"] != "queued" else "waiting for people"] += 1
            keep = row["decision"] == "accepted"
        else:
            keep = decision.decision == "accept"
            edited = [name for name in ("question", "answer", "evidence") if getattr(decision, name) is not None]
            counts[f"{'accepted' if keep else 'rejected'} by people{', edited' if keep and edited else ''}"] += 1
            question = question.model_copy(update={name: getattr(decision, name) for name in edited})
        if keep:
            record = by_id[row["video_id"]]
            new = _new_segments(record, question, edited=decision is not None and decision.evidence is not None)
            counts["segments set by people"] += len(new)
            added.setdefault(record.video_id, []).extend(new)
            by_video.setdefault(record.video_id, []).append(question)
    if unknown := [name for name in decisions if name not in known]:
        raise InputError(f"the decision about {unknown[0]} is about no candidate. Give decisions of this dataset.")
    found = []
    for record in records:
        questions = tuple(
            one.model_copy(update={"question_id": f"{record.video_id}_q{n:02d}", "candidate_id": one.question_id})
            for n, one in enumerate(by_video.get(record.video_id, ()), 1)
        )
        counts["videos" if questions else "videos without a question"] += 1
        if questions:
            found.append(_with_segments(record, added[record.video_id]).model_copy(update={"questions": questions}))
    return found, +counts


def _with_segments(record: VideoRecord, new: Sequence[TimedText]) -> VideoRecord:
    """The record with more segments, in the order of time; the same one without any."""
    segments = list(record.metadata.segments)
    for piece in new:
        if not any(_same(piece, segment) for segment in segments):
            segments.append(TimedText.model_validate({**piece.model_dump(), "set_by": "people"}))
    if len(segments) == len(record.metadata.segments):
        return record
    segments.sort(key=lambda one: one.timestamp)
    return record.model_copy(update={"metadata": record.metadata.model_copy(update={"segments": tuple(segments)})})


def _new_segments(record: VideoRecord, question: Question, edited: bool) -> list[TimedText]:
    """Evidence that is not among the record's segments (spaces at the ends aside), as people may set it.

    Raises InputError for any other.
    """
    new = []
    if not question.evidence:
        raise InputError(f"{question.question_id}: has no evidence. Give at least one segment, or reject it.")
    for piece in question.evidence:
        if any(_same(piece, segment) for segment in record.metadata.segments):
            continue
        inside = 0 <= piece.start < piece.end <= record.duration + SAME_S
        if not (edited and inside and any(_moved(piece, segment) for segment in record.metadata.segments)):
            raise InputError(
                f"{question.question_id}: the evidence {piece.start:g} to {piece.end:g} {piece.description!r} is no "
                "segment of the record. Choose segments, or set the times of one within the video, over its own."
            )
        new.append(piece)
    return new


def _moved(piece: TimedText, segment: TimedText) -> bool:
    """Whether a piece is a segment with other times: the same words, and they overlap."""
    overlap = min(piece.end, segment.end) - max(piece.start, segment.start)
    return piece.description.strip() == segment.description.strip() and overlap > 0


def _same(first: TimedText, second: TimedText) -> bool:
    times = zip(first.timestamp, second.timestamp, strict=True)
    return first.description.strip() == second.description.strip() and all(abs(a - b) < SAME_S for a, b in times)
