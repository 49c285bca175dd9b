"""A judge of answers in five dimensions, 0 to 5 each (MovieCORE, section 6 and appendix IV).

The prompts are our own, after the paper's rubrics; each dimension is asked for by itself, as there. A judgement that
cannot be had is no score, never 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from vrjax.evaluation.reference_judging import DATA_RULE, ReferenceJudge, WholeScore

# Part of each request, and of the name that verdicts are kept under: raise it with any change to the prompts.
PROMPT_VERSION = 1
DIMENSIONS = ("accuracy", "comprehensiveness", "depth", "evidence", "coherence")

_OPENING = (
    "You grade one aspect of an answer to a question about a film clip. You cannot see the clip; the reference answer "
    "tells you what is right. Grade this aspect alone, whatever you think of the others.\n"
)
_CLOSING = f'{DATA_RULE}\nReply with a JSON object {{"reason": one short sentence, "score": a whole number, 0 to 5}}.'

_ASPECTS: Mapping[str, str] = MappingProxyType(
    {
        "accuracy": (
            "The aspect is accuracy: does the answer mean what the reference answer means? Other words for the same "
            "thing are as good, slips of spelling and grammar do not matter, and every part of the question counts.\n"
            "5: the same meaning throughout\n"
            "4: right on the whole, with a small error or omission\n"
            "3: right in part; some of the key content is there\n"
            "2: mostly wrong, though something in it bears on the reference\n"
            "1: wrong, or about something else\n"
            "0: there is no answer, or nothing in it has to do with the question\n"
        ),
        "comprehensiveness": (
            "The aspect is comprehensiveness: how much of what the reference answer covers does the answer cover? Look "
            "for each of its main points, its supporting details and examples, and each part of the question. Length "
            "by itself is worth nothing.\n"
            "5: every key point and the details that matter\n"
            "4: nearly all of them\n"
            "3: about half: the main points in part, several details missing\n"
            "2: few of them\n"
            "1: hardly any\n"
            "0: none, or there is no answer\n"
        ),
        "depth": (
            "The aspect is depth of reasoning: does the answer go beyond what is plainly to be seen? Look for causes "
            "and motives, links between scenes, consequences, other readings, and fitting knowledge from outside the "
            "clip, and compare with the reference answer.\n"
            "5: unusually deep, with more insight than the reference\n"
            "4: as deep as the reference in most respects\n"
            "3: some analysis beyond the surface\n"
            "2: little: mostly states the obvious\n"
            "1: superficial\n"
            "0: there is no answer, or it has nothing to do with the question\n"
        ),
        "evidence": (
            "The aspect is evidence: does the answer rest its claims on things that happen in the clip? Look for named "
            "scenes, actions, dialogue and details that fit the reference answer and bear on the claim. What the "
            "reference contradicts is no evidence.\n"
            "5: strong and fitting throughout, more than in the reference\n"
            "4: strong and fitting, like the reference's\n"
            "3: some, but it could be closer to the point or more of it\n"
            "2: little, or weak\n"
            "1: next to none\n"
            "0: none, or none that bears on the question\n"
        ),
        "coherence": (
            "The aspect is coherence: is the answer clear, in a sensible order, and easy to follow from one thought to "
            "the next? Compare with the reference answer; whether it is right does not matter here.\n"
            "5: outstanding, clearer than the reference\n"
            "4: clear and well ordered, like the reference\n"
            "3: mostly clear, with small breaks\n"
            "2: hard to follow in places\n"
            "1: largely disconnected\n"
            "0: cannot be followed at all, or there is no answer\n"
        ),
    }
)


class DimensionVerdict(BaseModel):
    """What the judge is asked to write. The reason comes first, so that the score follows from it."""

    reason: str = ""
    score: WholeScore


@dataclass(frozen=True)
class Rating:
    """score: 0 to 5, None where there is no judgement; note: the judge's reason, or why there is none."""

    score: float | None
    note: str = ""

    def as_row(self) -> dict[str, Any]:
        return {"score": self.score, "reason": self.note}


class DimensionJudge(ReferenceJudge):
    """Rates answers by a chat; wrap the backend in a ChatClient for concurrency, retries, cache and budget."""

    @property
    def name(self) -> str:
        """What verdicts are kept under: the chat, and the version of the prompts."""
        return f"{self.chat.name}, dimensions v{PROMPT_VERSION}"

    async def rate(self, dimension: str, question: str, reference: str, response: str) -> Rating:
        """Rate one dimension of one response. Never raises for a failing judge: the score is None then."""
        verdict, note = await self.verdict(
            f"{_OPENING}{_ASPECTS[dimension]}{_CLOSING}",
            DimensionVerdict,
            f"{dimension}_verdict_v{PROMPT_VERSION}",
            question,
            reference,
            response,
        )
        return Rating(None, note) if verdict is None else Rating(float(verdict.score), verdict.reason)

    async def rate_all(
        self, question: str, reference: str, response: str, dimensions: Iterable[str] = DIMENSIONS
    ) -> dict[str, Rating]:
        """Ratings by dimension, asked for side by side."""
        wanted = list(dimensions)
        ratings = await asyncio.gather(*(self.rate(one, question, reference, response) for one in wanted))
        return dict(zip(wanted, ratings, strict=True))
