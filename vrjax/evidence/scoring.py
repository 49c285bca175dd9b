"""From questions to the numbers of a table: per question, mean over questions, and over the corpus as one set.

F1 values are fractions in [0, 1]; GAS is in [0, 100], as in EG-VQA's tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vrjax.evidence.matching import (
    EVENT_THRESHOLDS,
    MatchScore,
    event_matches,
    hard_match,
    pair_matrices,
    soft_match,
)
from vrjax.evidence.response import Fault, Response
from vrjax.evidence.similarity import Similarity
from vrjax.evidence.spans import Evidence, Span
from vrjax.records import TimedText

EG_THRESHOLDS = ((0.3, 0.5), (0.3, 0.75), (0.5, 0.75))  # (α, β): least IoU, least similarity

EG_KEYS = tuple(f"eg_f1_{alpha}_{beta}" for alpha, beta in EG_THRESHOLDS)
EVENT_KEYS = tuple(f"event_f1_{threshold}" for threshold in EVENT_THRESHOLDS)
MATCH_KEYS = ("soft_eg_f1", *EG_KEYS, *EVENT_KEYS)


def reference_evidence(pieces: Iterable[TimedText]) -> tuple[Evidence, ...]:
    """Reference evidence of a record; one with reversed times keeps its place in G, with a span of None."""
    return tuple(
        Evidence(Span(piece.start, piece.end) if piece.start <= piece.end else None, piece.description)
        for piece in pieces
    )


@dataclass(frozen=True)
class ScoredItem:
    """One question to score. `response` is None where there is none, and `unanswered` then says why.

    `answer_score` is in [0, 1]; None is an answer that could not be scored.
    """

    question_id: str
    references: tuple[Evidence, ...]
    response: Response | None
    answer_score: float | None = None
    unanswered: str | None = None


@dataclass(frozen=True)
class QuestionScore:
    """The scores of one question, by the keys of `MATCH_KEYS`."""

    item: ScoredItem
    matches: Mapping[str, MatchScore]
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether there was a response."""
        return self.item.response is not None

    def value(self, key: str) -> float:
        """F1 under a key, or the mean of several (`avg_eg_f1`, `avg_event_f1`); an unanswered question has 0."""
        return averaged(key, lambda k: self.matches[k].f1) if self.answered else 0.0

    def as_row(self) -> dict[str, Any]:
        """The scores as a flat JSON row."""
        return {
            "question_id": self.item.question_id,
            "unanswered": self.item.unanswered,
            "well_formed": self.answered and self.item.response.well_formed,  # type: ignore[union-attr]
            **{key: self.value(key) for key in SUMMARY_KEYS},
            "answer_score": self.item.answer_score,
            "faults": dict(self.faults),
        }


_AVERAGES = {"avg_eg_f1": EG_KEYS, "avg_event_f1": EVENT_KEYS}
SUMMARY_KEYS = ("soft_eg_f1", *EG_KEYS, "avg_eg_f1", *EVENT_KEYS, "avg_event_f1")


def averaged(key: str, value: Callable[[str], float]) -> float:
    """`value(key)`, or the mean over the keys that the average `key` stands for."""
    keys = _AVERAGES.get(key, (key,))
    return sum(value(k) for k in keys) / len(keys)


def score_question(item: ScoredItem, similarity: Similarity) -> QuestionScore:
    """Score the evidence of one response; an unanswered question has no predictions."""
    predictions = item.response.evidence if item.response else ()
    overlap, similar = pair_matrices(item.references, predictions, similarity)
    hard = [hard_match(overlap, similar, alpha, beta) for alpha, beta in EG_THRESHOLDS]
    matches = dict(zip(MATCH_KEYS, (soft_match(overlap, similar), *hard, *event_matches(overlap)), strict=True))
    faults = {str(name): count for name, count in item.response.faults.items()} if item.response else {}
    return QuestionScore(item, matches, faults)


def score_questions(items: Sequence[ScoredItem], similarity: Similarity) -> list[QuestionScore]:
    """Score many questions; all descriptions are announced to the similarity first, so that they are batched."""
    similarity.prepare(
        piece.description
        for item in items
        if item.response
        for piece in (*item.references, *item.response.evidence)
        if piece.span is not None
    )
    return [score_question(item, similarity) for item in items]


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


def _means(scores: Sequence[QuestionScore]) -> dict[str, float | None]:
    means: dict[str, float | None] = {"format": _mean(float(s.answered and _well_formed(s)) for s in scores)}
    for key in SUMMARY_KEYS:
        means[key] = _mean(score.value(key) for score in scores)
    return means


def _well_formed(score: QuestionScore) -> bool:
    return score.item.response is not None and score.item.response.well_formed


def grounded_answer_score(pairs: Iterable[tuple[float, float]]) -> float | None:
    """GAS = 100·mean(a_i · softF1_i) over (answer score, soft EG-F1) pairs (EG-VQA, appendix D.4).

    Multiplied per question before averaging. None where there are no pairs.
    """
    products = _mean(answer * soft for answer, soft in pairs)
    return None if products is None else 100 * products


def corpus_score(matches: Sequence[MatchScore]) -> MatchScore:
    """All questions as one set: summed matches over summed references and predictions."""
    return MatchScore(
        sum(match.matched for match in matches),
        sum(match.references for match in matches),
        sum(match.predictions for match in matches),
    )


def summarise(scores: Sequence[QuestionScore], similarity_name: str, answer_score_name: str) -> dict[str, Any]:
    """The numbers of a table, ready for JSON.

    Top level: means over all n questions, an unanswered one counting 0 (the official rule). `scored_only`: means over
    answered questions. `corpus`: all questions as one set. `answer` and `gas` count an unscored answer as 0 at the top
    level; in `scored_only` they are over scored answers, whose number is `answers_scored`. `faults` has every name.
    """
    answered = [score for score in scores if score.answered]
    with_answer = [score for score in answered if score.item.answer_score is not None]
    soft = {score.item.question_id: score.value("soft_eg_f1") for score in scores}

    def answers(chosen: Sequence[QuestionScore]) -> dict[str, float | None]:
        given = [(score.item.answer_score or 0.0, soft[score.item.question_id]) for score in chosen]
        return {"answer": _mean(a for a, _ in given), "gas": grounded_answer_score(given)}

    no_answers = {"answer": None, "gas": None}
    faults: Counter[str] = Counter()
    for score in scores:
        faults.update(score.faults)
    by_key = {key: corpus_score([score.matches[key] for score in scores]) for key in MATCH_KEYS}
    return {
        "n": len(scores),
        "scored": len(answered),
        "coverage": len(answered) / len(scores) if scores else None,
        "unanswered": dict(Counter(score.item.unanswered for score in scores if not score.answered)),
        **_means(scores),
        **(answers(scores) if with_answer else no_answers),
        "answers_scored": len(with_answer),
        "scored_only": {**_means(answered), **(answers(with_answer) if with_answer else no_answers)},
        "corpus": {key: averaged(key, lambda k: by_key[k].f1) for key in SUMMARY_KEYS},
        "references": by_key["soft_eg_f1"].references,
        "predictions": by_key["soft_eg_f1"].predictions,
        "faults": {str(fault): faults[fault] for fault in Fault},
        "reference_faults": {
            "reversed": sum(piece.span is None for score in scores for piece in score.item.references),
            "zero_length": sum(
                piece.span is not None and piece.span.length == 0 for s in scores for piece in s.item.references
            ),
        },
        "similarity": similarity_name,
        "answer_score": answer_score_name,
    }
