"""ACE (Agentic Choice Enhancement, MovieCORE section 5): a video model's beams, re-ranked by a small language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrjax.errors import InputError
from vrjax.reranking.scorer import Scorer


@dataclass(frozen=True)
class Candidate:
    """A possible answer. beam_score: of the model that wrote it, None where it has none (given texts, endpoints)."""

    text: str
    beam_score: float | None = None


@dataclass(frozen=True)
class AceResult:
    """candidates in their given order, best beam first; scores: the scorer's, None where it gave none; winner: index.

    notes: of candidates that got no score, or were cut. decided: whether any score was read; where none was, the first
    candidate wins, and this says so.
    """

    candidates: tuple[Candidate, ...]
    scores: tuple[float | None, ...]
    winner: int
    notes: tuple[str, ...]
    decided: bool

    @property
    def text(self) -> str:
        return self.candidates[self.winner].text

    @property
    def changed(self) -> bool:
        """Whether another candidate than the first one won."""
        return self.winner != 0


def choose(scores: Sequence[float | None]) -> int:
    """Index of the highest score; among equals the first, which is the better beam; 0 where there is none."""
    best = max((score for score in scores if score is not None), default=None)
    return 0 if best is None else scores.index(best)


class Reranker:
    """Chooses between candidates by a scorer."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def rerank(self, asked: Sequence[tuple[str, Sequence[Candidate]]]) -> list[AceResult]:
        """The winner of each (question, candidates). Candidates stand in the order of their beam scores, best first.

        Raises InputError where beam scores are out of order, and as `Scorer.score`.
        """
        for question, candidates in asked:
            given = [one.beam_score for one in candidates if one.beam_score is not None]
            if given != sorted(given, reverse=True):
                raise InputError(
                    f"candidates for {question[:60]!r} are not in the order of their beam scores. Sort them."
                )
        found = self.scorer.score([(question, [one.text for one in candidates]) for question, candidates in asked])
        results = []
        for (_, candidates), scored in zip(asked, found, strict=True):
            scores = tuple(one.score for one in scored)
            notes = [f"candidate {number}: {one.note}" for number, one in enumerate(scored, 1) if one.note]
            notes += [f"candidate {number}: {one.cut} tokens cut" for number, one in enumerate(scored, 1) if one.cut]
            decided = any(score is not None for score in scores)
            results.append(AceResult(tuple(candidates), scores, choose(scores), tuple(notes), decided))
        return results
