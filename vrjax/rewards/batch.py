"""The rewards of one batch of groups, while they are on their way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from vrjax.rewards.reward import Reward, RewardItem, RewardPrompt, RewardRecord

Groups: TypeAlias = Sequence[Sequence[RewardItem]]
Rewards: TypeAlias = list[list[Reward]]


class RewardBatch:
    """Groups handed in by index, and their rewards [B][G] in the order of the indices; made by `RewardRunner.open`.

    Meant for one thread.
    """

    def __init__(
        self, schedule: Callable[[Groups], Future[Rewards]], account: Callable[[Rewards, float], None]
    ) -> None:
        self._schedule = schedule
        self._account = account
        self._waiting: list[tuple[Sequence[int], Future[Rewards]]] = []
        self._indices: set[int] = set()
        self._rewards: Rewards | None = None

    def submit(self, index: int, prompt: RewardPrompt, responses: Sequence[str], record: RewardRecord) -> None:
        """Start scoring one group, the batch's `index`-th, at once.

        Raises:
            ValueError: the index was used before, the prompt is not the record's, or the results were already taken.
        """
        self.submit_all([index], [prompt], [responses], [record])

    def submit_all(
        self,
        indices: Sequence[int],
        prompts: Sequence[RewardPrompt],
        responses: Sequence[Sequence[str]],
        records: Sequence[RewardRecord],
    ) -> None:
        """Start scoring several groups, prepared together; arguments as for `submit`, one entry a group."""
        if not len(indices) == len(prompts) == len(responses) == len(records):
            raise ValueError(
                f"each group needs a prompt, responses and a record, found {len(prompts)} prompts, "
                f"{len(responses)} groups of responses and {len(records)} records for {len(indices)} groups"
            )
        if self._rewards is not None:
            raise ValueError("the batch is complete: its results were taken")
        groups = [group_items(*group) for group in zip(prompts, responses, records, strict=True)]
        for index in indices:
            if index in self._indices:
                raise ValueError(f"group {index} was submitted twice")
            self._indices.add(index)
        if groups:
            self._waiting.append((list(indices), self._schedule(groups)))

    @property
    def done(self) -> bool:
        """Whether `result` would return at once."""
        return all(future.done() for _, future in self._waiting)

    def result(self) -> Rewards:
        """Wait for all groups that were submitted: rewards [B][G], by index.

        Raises:
            ValueError: the indices are not 0 to B - 1.
            InputError: the reward cannot work as it is set up.
            RunError: too many samples are unscored (see `RewardRunner`). A second call returns the rewards.
        """
        return self._collect(time.perf_counter())

    async def result_async(self) -> Rewards:
        """`result`, without blocking the caller's event loop."""
        began = time.perf_counter()
        if self._waiting:
            await asyncio.wait([asyncio.wrap_future(future) for _, future in self._waiting])
        return self._collect(began)

    def cancel(self) -> None:
        """Give up what is not scored yet. `result` then raises CancelledError."""
        for _, future in self._waiting:
            future.cancel()

    def _collect(self, began: float) -> Rewards:
        if self._rewards is None:
            if self._indices != set(range(len(self._indices))):
                missing = sorted(set(range(max(self._indices) + 1)) - self._indices)
                raise ValueError(f"the groups of a batch are numbered from 0; never submitted: {missing}")
            by_index: dict[int, list[Reward]] = {}
            try:
                for indices, future in self._waiting:
                    by_index.update(zip(indices, future.result(), strict=True))
            except Exception:
                self.cancel()
                raise
            self._rewards = [by_index[index] for index in range(len(by_index))]
            self._account(self._rewards, time.perf_counter() - began)
        return self._rewards


def group_items(prompt: RewardPrompt, responses: Sequence[str], record: RewardRecord) -> list[RewardItem]:
    """A group as items to score. Raises ValueError where prompt and record do not belong together."""
    record = RewardRecord(*record)
    if prompt.name != record.name:
        raise ValueError(f"the prompt {prompt.name!r} was given the record of {record.name!r}")
    if isinstance(responses, str):
        raise ValueError(f"{prompt.name}: a group is a list of responses, found one text")
    return [RewardItem(prompt, response, record) for response in responses]
