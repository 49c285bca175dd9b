"""The answer reward: does the answer say what the reference says?

What is scored is the text of the answer block. Without any, the response is worth 0 and no judge is asked; without a
reference answer nothing can be said, and the response is unscored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from vrjax.errors import InputError
from vrjax.evidence import exact_match, parse_response, token_f1
from vrjax.records import TimedText
from vrjax.rewards.reward import Reward, RewardPrompt, RewardRecord

if TYPE_CHECKING:
    from vrjax.llm.judge import Judgement

NO_REFERENCE = "no_reference"
JUDGE_FAILED = "judge_failed"
# AnswerJudge puts the kind of the failure (timeout, bad_reply, …) before its sentence.
_KIND = re.compile(r"([a-z_]+): ")
_RULES = {"exact": exact_match, "token_f1": token_f1}


class Judge(Protocol):
    """What `JudgedAnswer` asks: vrjax.llm.AnswerJudge, or anything with its method."""

    async def judge(
        self, question: str, reference: str, response: str, title: str, segments: Sequence[TimedText]
    ) -> Judgement: ...


@dataclass(frozen=True)
class RuleAnswer:
    """An answer reward by rule, for where no judge is at hand.

    kind: normalised exact match, or F1 of normalised words (SQuAD v1.1).

    Raises:
        InputError: another kind.
    """

    kind: Literal["exact", "token_f1"] = "exact"

    def __post_init__(self) -> None:
        if self.kind not in _RULES:
            raise InputError(f"the answer rule must be one of {', '.join(_RULES)}, found {self.kind!r}.")

    def __call__(self, prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
        answer = parse_response(response).answer
        return _without_judging(answer, record) or Reward(_RULES[self.kind](record.question.answer, answer))


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer reward by a judge that reads question, reference, answer, title and segments (EG-VQA, appendix C.1).

    The score is the judge's: 1, .5, 0, or .1 for one that is right at too great a length. A judge that fails leaves the
    response unscored, with its note and the kind of its failure; it is not asked again here, since its client has
    retries of its own.
    """

    judge: Judge

    async def __call__(self, prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
        answer = parse_response(response).answer
        settled = _without_judging(answer, record)
        if settled is not None:
            return settled
        metadata = record.video.metadata
        verdict = await self.judge.judge(
            prompt.question, record.question.answer, answer, metadata.title, metadata.segments
        )
        if verdict.score is None:
            kind = _KIND.match(verdict.note)
            return Reward.unscored(verdict.note, kind[1] if kind else JUDGE_FAILED)
        return Reward(verdict.score, note=verdict.note)


def _without_judging(answer: str, record: RewardRecord) -> Reward | None:
    if not record.question.answer.strip():
        return Reward.unscored(f"{record.name}: the record has no reference answer", NO_REFERENCE)
    if not answer:
        return Reward(0.0, note="no answer")
    return None
