"""Questions in EG-VQA's form, asked of a model and scored: answers, evidence, and what remains without the video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vrjax.evaluation.mismatch import other_video
from vrjax.evaluation.responder import Ask, Reply, Responder
from vrjax.evidence import (
    QuestionScore,
    ScoredItem,
    Similarity,
    exact_match,
    reference_evidence,
    score_questions,
    summarise,
)
from vrjax.generation.sampling import SamplingOptions
from vrjax.records import Question, VideoRecord

# full: as recorded. question_only: no video at all. mismatched: another record's video. blank: a grey video of the
# same form, which shows what a model that was never trained without a video knows from the question alone.
Condition = Literal["full", "question_only", "mismatched", "blank"]


@dataclass(frozen=True)
class AskedQuestion:
    """One question with the reply and its scores."""

    record: VideoRecord
    question: Question
    reply: Reply
    score: QuestionScore


def ask_questions(
    records: Sequence[VideoRecord],
    root: Path,
    responder: Responder,
    similarity: Similarity,
    sampling: SamplingOptions,
    condition: Condition = "full",
    seed: int = 0,
) -> list[AskedQuestion]:
    """Ask every question of every record and score each; `root` is the folder that video paths are relative to."""
    videos: list[Path | None] = [root / record.video_path for record in records]
    if condition == "question_only":
        videos = [None] * len(records)
    elif condition == "mismatched":
        videos = [videos[index] for index in other_video(len(records), seed)]
    pairs = [(record, question, video) for record, video in zip(records, videos, strict=True)
             for question in record.questions]  # fmt: skip
    asks = [Ask(question.question_id, question.question, video, condition == "blank") for _, question, video in pairs]
    replies = responder.ask(asks, sampling, seed=seed)
    items = [scored_item(question, reply) for (_, question, _), reply in zip(pairs, replies, strict=True)]
    scores = score_questions(items, similarity)
    return [
        AskedQuestion(record, question, reply, score)
        for (record, question, _), reply, score in zip(pairs, replies, scores, strict=True)
    ]


def scored_item(question: Question, reply: Reply) -> ScoredItem:
    """A reply ready for the scorer; the answer counts 1 where it equals the reference after normalisation, else 0."""
    response = reply.responses[0] if reply.responses else None
    answer = None if response is None else float(exact_match(response.answer, question.answer))
    return ScoredItem(question.question_id, reference_evidence(question.evidence), response, answer, reply.problem)


def summary_of(asked: Sequence[AskedQuestion], similarity: Similarity) -> dict[str, Any]:
    """The numbers of a table (see `evidence.summarise`), over all questions and by type."""
    summary = summarise([one.score for one in asked], similarity.name, "exact_match")
    kinds = sorted({one.question.type for one in asked})
    summary["by_type"] = {
        kind: {
            key: value
            for key, value in summarise(
                [one.score for one in asked if one.question.type == kind], similarity.name, "exact_match"
            ).items()
            if key in ("n", "answer", "soft_eg_f1", "eg_f1_0.3_0.5", "avg_event_f1")
        }
        for kind in kinds
    }
    return summary
