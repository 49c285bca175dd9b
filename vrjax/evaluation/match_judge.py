"""A judge that says whether a short answer matches the reference, yes or no, and how well, 0 to 5.

The protocol of Video-ChatGPT (Maaz et al. 2023), which MovieChat-1K and HERMES score by; the prompt is our own. A
judgement that cannot be had is no score, never a "no".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator

from vrjax.evaluation.reference_judging import DATA_RULE, ReferenceJudge, WholeScore

# Part of each request, and of the name that verdicts are kept under: raise it with any change to the prompt.
PROMPT_VERSION = 1

INSTRUCTION = (
    "You decide whether an answer to a question about a video is correct. You cannot see the video; the reference "
    "answer tells you what is right.\n"
    "An answer is correct where it means what the reference answer means as far as the question asks. Synonyms, other "
    "wordings and further details that do not contradict it are fine.\n"
    "Then say how well the two match, as a whole number: 5 the same meaning, 0 no match at all.\n"
    f"{DATA_RULE}\n"
    'Reply with a JSON object {"reason": one short sentence, "correct": "yes" | "no", "score": a whole number, 0 to 5}.'
)


def _yes_or_no(value: Any) -> Any:
    return value.strip().strip(".").lower() if isinstance(value, str) else value


class MatchVerdict(BaseModel):
    """What the judge is asked to write. The reason comes first, so that the rest follows from it."""

    reason: str = ""
    correct: Annotated[Literal["yes", "no"], BeforeValidator(_yes_or_no)]
    score: WholeScore


@dataclass(frozen=True)
class Match:
    """correct: None where there is no judgement, and `note` says why; score: 0 to 5; note: the judge's reason."""

    correct: bool | None
    score: float | None
    note: str = ""

    def as_row(self) -> dict[str, Any]:
        return {"correct": self.correct, "score": self.score, "reason": self.note}


class MatchJudge(ReferenceJudge):
    """Judges answers by a chat; wrap the backend in a ChatClient for concurrency, retries, cache and budget."""

    @property
    def name(self) -> str:
        """What verdicts are kept under: the chat, and the version of the prompt."""
        return f"{self.chat.name}, match v{PROMPT_VERSION}"

    async def match(self, question: str, reference: str, response: str) -> Match:
        """Judge one response. Never raises for a failing judge: both values are None then."""
        verdict, note = await self.verdict(
            INSTRUCTION, MatchVerdict, f"match_verdict_v{PROMPT_VERSION}", question, reference, response
        )
        if verdict is None:
            return Match(None, None, note)
        return Match(verdict.correct == "yes", float(verdict.score), verdict.reason)
