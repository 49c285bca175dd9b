"""Several rewards as one: a weighted sum that knows when it is not known."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Iterator, Mapping, Sequence

from vrjax.errors import InputError
from vrjax.evidence import RewardVariant, Similarity
from vrjax.rewards.evidence import EvidenceReward
from vrjax.rewards.format import format_reward
from vrjax.rewards.reward import Reward, RewardFunction, RewardItem, RewardPrompt, RewardRecord


class CompositeReward:
    """value = Σ weight·part. It is unscored where any part of non-zero weight is; the parts that are known are kept.

    `parts` of the result holds each part's value by its name, and what that is made of as `name.part`. A part of weight
    0 is worked out and reported, and does not touch the value; leave it out to save its cost.

    Args:
        parts: (weight, reward) by name, for instance {"format": (.1, format_reward), "answer": (.6, RuleAnswer())}.

    Raises:
        InputError: no parts, a name with a full stop, a weight that is negative or not finite, or none above 0.
    """

    def __init__(self, parts: Mapping[str, tuple[float, RewardFunction]]) -> None:
        for name, (weight, _) in parts.items():
            if not name or "." in name:
                raise InputError(f"the reward part {name!r} needs a name without full stops.")
            if not (math.isfinite(weight) and weight >= 0):
                raise InputError(f"the weight of the reward part {name!r} must be at least 0, found {weight}.")
        if not any(weight for weight, _ in parts.values()):
            raise InputError("a composite reward needs at least one part with a weight above 0.")
        self.weights: Mapping[str, float] = {name: float(weight) for name, (weight, _) in parts.items()}
        self.rewards: Mapping[str, RewardFunction] = {name: reward for name, (_, reward) in parts.items()}

    @property
    def settings(self) -> dict[str, object]:
        """Weights and rewards by name, for a run's configuration file."""
        return {name: {"weight": self.weights[name], "reward": reward} for name, reward in self.rewards.items()}

    def __call__(self, prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward | Awaitable[Reward]:
        """The sum; awaitable where a part is. RewardRunner calls the parts one by one instead, to guard each."""
        results: dict[str, Reward | Awaitable[Reward]] = {}
        try:
            for name, reward in self.rewards.items():
                results[name] = reward(prompt, response, record)
        except BaseException:
            for result in results.values():
                if inspect.iscoroutine(result):
                    result.close()
            raise
        if any(inspect.isawaitable(result) for result in results.values()):
            return self._gather(results)
        return self.combine(results)  # type: ignore[arg-type]

    async def _gather(self, results: Mapping[str, Reward | Awaitable[Reward]]) -> Reward:
        async def settled(result: Reward | Awaitable[Reward]) -> Reward:
            return result if isinstance(result, Reward) else await result

        scored = await asyncio.gather(*(settled(result) for result in results.values()))
        return self.combine(dict(zip(results, scored, strict=True)))

    def combine(self, scored: Mapping[str, Reward]) -> Reward:
        """The sum of parts that are already scored, by name."""
        parts: dict[str, float | None] = {}
        for name in self.weights:
            parts[name] = scored[name].value
            parts |= {f"{name}.{inner}": value for inner, value in scored[name].parts.items()}
        note = "; ".join(f"{name}: {scored[name].note}" for name in self.weights if scored[name].note)
        missing = [name for name, weight in self.weights.items() if weight and scored[name].value is None]
        if missing:
            return Reward.unscored(note, "+".join(f"{name}.{scored[name].fault}" for name in missing), parts)
        total = math.fsum(weight * (scored[name].value or 0.0) for name, weight in self.weights.items())
        return Reward(total, parts, note)

    def prepare(self, items: Sequence[RewardItem]) -> None:
        """Let each part that can be prepared see the whole batch."""
        for reward in leaves(self):
            prepare = getattr(reward, "prepare", None)
            if prepare is not None:
                prepare(items)


def leaves(reward: RewardFunction) -> Iterator[RewardFunction]:
    """The rewards that a reward is made of: itself, or its parts, and theirs."""
    if isinstance(reward, CompositeReward):
        for part in reward.rewards.values():
            yield from leaves(part)
    else:
        yield reward


def eg_reasoner_reward(
    answer: RewardFunction,
    similarity: Similarity,
    *,
    format_weight: float = 0.1,
    answer_weight: float = 0.6,
    evidence_weight: float = 0.3,
    variant: RewardVariant = "paper",
    soft: bool = True,
) -> CompositeReward:
    """EG-Reasoner's reward: .1·format + .6·answer + .3·evidence (EG-VQA, appendix C.3).

    Args:
        answer: `JudgedAnswer(judge)` as in the paper, or `RuleAnswer()` where there is no judge.
        similarity: of descriptions, for the evidence.
        format_weight, answer_weight, evidence_weight: of the parts; `evidence_weight=0` is the ablation without
            evidence reward, which still reports it.
        variant: of the evidence reward, "paper" or "released".
        soft: False is the ablation without its soft part (see `EvidenceReward`).
    """
    return CompositeReward(
        {
            "format": (format_weight, format_reward),
            "answer": (answer_weight, answer),
            "evidence": (evidence_weight, EvidenceReward(similarity, variant, soft=soft)),
        }
    )
