"""Batches of scored groups, step by step: sampled now, taken from the journal, or sampled a step ahead.

    iterator ─▶ prompts ─▶ sampler ─▶ groups ─▶ judges (beside the sampling) ─▶ journal ─▶ update

With `lookahead` the judges of one step work while the next is sampled:

    sample s+1 (policy s) ╥ judges s ──▶ update s ──▶ sample s+2 (policy s+1) ╥ judges s+1 ──▶ update s+1 …
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vrjax.errors import RunError
from vrjax.rewards import RewardBatch, RewardRunner
from vrjax.training.advantages import varied_groups
from vrjax.training.buckets import RowSize
from vrjax.training.policy.groups import Group, reward_matrix
from vrjax.training.policy.journal import Journal
from vrjax.training.policy.prompts import PromptBatch, PromptItem, PromptIterator
from vrjax.training.policy.sampler import PhaseWork, Sampler
from vrjax.training.processes import all_agree, total
from vrjax.training.state import TrainState


class Stopped(Exception):
    """The run was asked to end while it was sampling."""


@dataclass(frozen=True)
class StepBatch:
    """This process's scored groups of one step.

    iterator_state: after the prompts of this step; bucket: that holds all its prompts; damaged: (name, message) of
    questions that could not be asked; dropped: groups that were replaced because they teach nothing; work: of the
    sampler, None where the groups come from the journal; reward_s: seconds that the judges took beyond the sampling.
    """

    step: int
    groups: tuple[Group, ...]
    iterator_state: dict[str, Any]
    bucket: RowSize
    epoch: int
    damaged: tuple[tuple[str, str], ...] = ()
    dropped: int = 0
    work: PhaseWork | None = None
    reward_s: float = 0.0


@dataclass
class _Sampled:
    """A step whose groups are drawn; their rewards may still be on the way."""

    step: int
    groups: list[Group]
    rewards: RewardBatch | None
    iterator_state: dict[str, Any]
    bucket: RowSize
    epoch: int
    damaged: list[tuple[str, str]] = field(default_factory=list)
    dropped: int = 0
    work: PhaseWork | None = None
    complete: bool = False  # scored and in the journal


class Rollouts:
    """Makes the batch of each step. `asked_to_stop` is looked at while sampling; it raises Stopped."""

    def __init__(
        self,
        sampler: Sampler,
        iterator: PromptIterator,
        runner: RewardRunner,
        journal: Journal,
        item_of: Callable[[str], PromptItem],
        *,
        resample_rounds: int,
        seed: int,
        asked_to_stop: Callable[[], bool],
        ahead: bool = False,
        replay: Journal | None = None,
    ) -> None:
        """ahead: steps are drawn before the update of the one before."""
        self._sampler, self._iterator, self._runner, self._journal = sampler, iterator, runner, journal
        self._item_of, self._rounds, self._seed = item_of, resample_rounds, seed
        self._asked_to_stop, self._ahead, self._replay = asked_to_stop, ahead, replay
        self._pending: dict[int, _Sampled] = {}

    # ---- one step at a time

    def draw(self, step: int, state: TrainState) -> tuple[Sequence[Group], RowSize] | None:
        """See that the groups of `step` are there and on their way to the judges, by the policy of `state` where they
        are not. Returns those that were drawn just now, and the bucket that holds their prompts.
        """
        if step in self._pending:
            return None
        recorded = self._recorded(step)
        sampled = self._pending[step] = recorded or self._sample(step, state)
        return None if recorded else (sampled.groups, sampled.bucket)

    def take(self, step: int, state: TrainState) -> StepBatch:
        """The scored groups of `step`, which `draw` has seen to. state: for prompts that stand in for others."""
        return self._finish(self._pending.pop(step), state)

    # ---- journal

    def _recorded(self, step: int) -> _Sampled | None:
        journal = self._replay or self._journal
        if not all_agree(journal.has(step)):
            if self._replay is not None:
                raise RunError(f"{journal.path(step)}: is not there. Replay a run that took at least {step + 1} steps.")
            return None
        groups, note = journal.read(step, self._item_of)
        self._iterator.restore(note["iterator"])
        scored = all_agree(all(group.rewards for group in groups))
        return _Sampled(
            step, groups, None if scored else self._score(groups), note["iterator"], RowSize(*note["bucket"]),
            note["epoch"], [tuple(pair) for pair in note["damaged"]], note["dropped"], complete=scored,
        )  # fmt: skip

    @staticmethod
    def _note(sampled: _Sampled) -> dict[str, Any]:
        return {
            "iterator": sampled.iterator_state,
            "bucket": [*vars(sampled.bucket).values()],
            "epoch": sampled.epoch,
            "damaged": sampled.damaged,
            "dropped": sampled.dropped,
        }

    def _score(self, groups: Sequence[Group]) -> RewardBatch:
        return self._runner.start(
            [group.reward_prompt for group in groups],
            [[sample.text for sample in group.samples] for group in groups],
            [group.reward_record for group in groups],
        )

    # ---- sampling and scoring

    def _sample(self, step: int, state: TrainState) -> _Sampled:
        self._sampler.load(state)
        batch = next(self._iterator)
        groups, rewards = self._draw(batch, step, state)
        sampled = _Sampled(
            step, groups, rewards, batch.state, batch.bucket, batch.epoch, damaged_of(batch), 0,
            self._sampler.take_work(),
        )  # fmt: skip
        if self._ahead:  # before the update that makes this policy unavailable
            self._journal.write(step, groups, self._note(sampled))
        return sampled

    def _draw(self, batch: PromptBatch, step: int, state: TrainState) -> tuple[list[Group], RewardBatch]:
        items = [item for item in batch.items if item.prompt is not None]
        rewards = self._runner.open()

        def finished(number: int, group: Group) -> None:
            texts = [sample.text for sample in group.samples]
            rewards.submit(number, group.reward_prompt, texts, group.reward_record)
            if self._asked_to_stop():
                rewards.cancel()
                raise Stopped

        return self._sampler.sample(
            items, step=step, seed=self._seed, sampled_at=int(state.step), on_finished=finished
        ), rewards

    def _finish(self, sampled: _Sampled, state: TrainState) -> StepBatch:
        groups, waited = self._with_rewards(sampled.groups, sampled.rewards)
        for _ in range(0 if sampled.complete else self._rounds):
            keep = [group for group in groups if _teaches(group)]
            missing = len(groups) - len(keep)
            if not sum(total([missing])):
                break
            # Every process draws another batch, so that their iterators stay together; only what is missing is kept.
            self._sampler.load(state)
            batch = next(self._iterator)
            drawn, more_waited = self._with_rewards(*self._draw(batch, sampled.step, state))
            fresh = [group for group in drawn if _teaches(group)][:missing]
            rest = [group for group in groups if group not in keep][: missing - len(fresh)]
            groups, waited = [*keep, *fresh, *rest], waited + more_waited
            sampled.iterator_state, sampled.epoch = batch.state, batch.epoch
            sampled.bucket = sampled.bucket.joined(batch.bucket)
            sampled.damaged += damaged_of(batch)
            sampled.dropped += len(fresh)
        if not sampled.complete:
            self._journal.write(sampled.step, groups, self._note(sampled))
        return StepBatch(
            sampled.step, tuple(groups), sampled.iterator_state, sampled.bucket, sampled.epoch,
            tuple(sampled.damaged), sampled.dropped, sampled.work, waited,
        )  # fmt: skip

    def _with_rewards(self, groups: Sequence[Group], rewards: RewardBatch | None) -> tuple[list[Group], float]:
        if rewards is None:
            return list(groups), 0.0
        start = time.perf_counter()
        found = rewards.result() if groups else []
        waited = time.perf_counter() - start
        return [group.scored(row) for group, row in zip(groups, found, strict=True)], waited


def _teaches(group: Group) -> bool:
    """Whether its rewards differ."""
    return bool(varied_groups(reward_matrix([group], len(group.samples)))[0])


def damaged_of(batch: PromptBatch) -> list[tuple[str, str]]:
    """(name, message) of the questions of a batch whose video could not be read."""
    return [(item.name, item.damage) for item in batch.items if item.prompt is None]
