"""A group: one prompt, its G responses, and what they were worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from vrjax.generation.requests import Sample
from vrjax.rewards import Reward, RewardPrompt, RewardRecord
from vrjax.training.policy.prompts import PromptItem


@dataclass(frozen=True)
class Group:
    """item: the question with its prompt; samples: G responses in order; sampled_at: updates that the policy which
    drew them had seen; rewards: one a sample, empty until they are scored.
    """

    item: PromptItem
    samples: tuple[Sample, ...]
    sampled_at: int
    rewards: tuple[Reward, ...] = ()

    @property
    def values(self) -> list[float]:
        """Rewards as numbers; NaN for a response that could not be scored."""
        return [float("nan") if reward.value is None else reward.value for reward in self.rewards]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each response, the end token included."""
        return [len(sample.tokens) for sample in self.samples]

    def scored(self, rewards: Sequence[Reward]) -> Group:
        if len(rewards) != len(self.samples):
            raise ValueError(f"{self.item.name}: {len(rewards)} rewards for {len(self.samples)} responses")
        return replace(self, rewards=tuple(rewards))

    @property
    def reward_record(self) -> RewardRecord:
        return RewardRecord(self.item.record, self.item.question)

    @property
    def reward_prompt(self) -> RewardPrompt:
        return RewardPrompt.of(self.reward_record)


def reward_matrix(groups: Sequence[Group], group: int) -> Float[np.ndarray, "B G"]:
    """Rewards [B, G], NaN where a response could not be scored. group: G, where there may be no groups."""
    return np.array([each.values for each in groups], np.float64).reshape(-1, group)


def group_row(group: Group) -> dict[str, Any]:
    """A group as JSON, without its prompt and arrays: what it says and what it got."""
    return {
        "name": group.item.name,
        "sampled_at": group.sampled_at,
        "texts": [sample.text for sample in group.samples],
        "lengths": group.lengths,
        "finished": [sample.finished for sample in group.samples],
        "rewards": [reward.as_row() for reward in group.rewards],
    }


def group_arrays(group: Group) -> dict[str, np.ndarray]:
    """The numbers of a group's samples, one after the other."""
    return {
        "tokens": np.concatenate([sample.tokens for sample in group.samples]),
        "raw": np.concatenate([sample.raw_log_probs for sample in group.samples]),
        "processed": np.concatenate([sample.processed_log_probs for sample in group.samples]),
    }


def group_from(item: PromptItem, row: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Group:
    """The group that `group_row` and `group_arrays` took apart."""
    bounds = np.cumsum(row["lengths"])[:-1]
    parts = {name: np.split(array, bounds) for name, array in arrays.items()}
    samples = tuple(
        Sample(text, parts["tokens"][i], parts["raw"][i], parts["processed"][i], finished)
        for i, (text, finished) in enumerate(zip(row["texts"], row["finished"], strict=True))
    )
    return Group(item, samples, row["sampled_at"], tuple(Reward.from_row(reward) for reward in row["rewards"]))
