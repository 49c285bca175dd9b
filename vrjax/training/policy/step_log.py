"""What is noted of each step: metrics, samples, damaged questions, alarms, pages, and evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from vrjax.errors import RunError
from vrjax.models.parameters import cast_parameters
from vrjax.rewards import RewardRunner
from vrjax.run_directory import DAMAGE, RunDirectory
from vrjax.training.logging import RunLog
from vrjax.training.policy.alarms import Alarms
from vrjax.training.policy.batch import PolicyBatch
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.figures import (
    StepTimes,
    Work,
    peak_flops,
    response_figures,
    reward_figures,
    shown_figures,
    speed_figures,
)
from vrjax.training.policy.group_page import write_group_page
from vrjax.training.policy.groups import Group, group_row
from vrjax.training.policy.journal import SAMPLES
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.rollouts import StepBatch
from vrjax.training.processes import gather_texts, in_batch_order
from vrjax.training.state import TrainState
from vrjax.video import ReaderPool


def _frame_patches(groups: Sequence[Group]) -> int:
    """Patches of the largest frame that was shown."""
    grids = [item.grid for group in groups if group.item.prompt for item in group.item.prompt.vision]
    return max((height * width for _, height, width in grids), default=0)


@dataclass
class StepLog:
    """damaged: names of questions that could not be asked so far; metrics: of the last step."""

    config: GrpoConfig
    prepared: PreparedPolicy
    run: RunDirectory
    log: RunLog
    pool: ReaderPool
    alarms: Alarms
    damaged: set[str]
    metrics: dict[str, float] = field(default_factory=dict)

    def enter(
        self,
        step: int,
        batch: StepBatch,
        packed: PolicyBatch,
        rewards: Float[np.ndarray, "B G"],
        advantages: Float[np.ndarray, "B G"],
        sums: Mapping[str, Array],
        audit: Mapping[str, float],
        times: StepTimes,
        runner: RewardRunner,
    ) -> dict[str, float]:
        """Note a finished step; returns its metrics. Raises RunError where an alarm stops the run, or too many records
        are damaged.
        """
        groups, config = batch.groups, self.config
        metrics = reward_figures(groups, rewards) | response_figures(groups)
        metrics |= {name: float(value) for name, value in sums.items()} | dict(audit)
        metrics |= {"epoch": batch.epoch, "dropped_groups": batch.dropped, "reward_retries": runner.counts.retries}
        metrics |= self._speed(batch, packed, times)
        metrics["seconds"] = sum(times.seconds.values())
        rows = [
            {"step": step, **group_row(group), "advantages": np.round(row, 6).tolist()}
            for group, row in zip(groups, advantages, strict=True)
        ]
        # Of all processes: one file has them all, and too many damaged records stop all.
        told = [json.loads(text) for text in gather_texts(json.dumps([rows, batch.damaged]))]
        self._note_damage(step, [pair for _, damaged in told for pair in damaged])
        self.log.metrics(step, metrics)
        self.log.advance(step, shown_figures(metrics))
        self.run.append(SAMPLES, in_batch_order([rows for rows, _ in told]))
        if config.page_every and step % config.page_every == 0 and self.run.writes and groups:
            self._page(step, groups, advantages)
        for sentence in self.alarms.look(metrics):
            self.log.say(f"step {step}: {sentence}")
            if config.alarms.stop:
                raise RunError(f"step {step}: {sentence}. alarms.stop ends the run; its last checkpoint holds.")
        self.metrics = metrics
        return metrics

    def _speed(self, batch: StepBatch, packed: PolicyBatch, times: StepTimes) -> dict[str, float]:
        groups, work = batch.groups, Work(self.prepared.model.config)
        shapes = [(len(group.item.prompt or ()), group.lengths) for group in groups]
        rows = [
            (prompt, lengths[start :: self.config.split_groups])
            for prompt, lengths in shapes
            for start in range(self.config.split_groups)
        ]
        seconds = dict(times.seconds)
        forward, tokens = work.forward(rows), sum(prompt + sum(lengths) for prompt, lengths in rows)
        inner = self.config.inner_epochs
        counted: dict[str, float] = {"reference": tokens, "update": tokens * inner}
        flops = {"reference": forward, "update": forward * inner * (4 if self.config.remat else 3)}
        if batch.work is not None:
            seconds |= batch.work.seconds
            counted |= batch.work.tokens
            flops |= {
                "vision": work.vision(batch.work.tokens["vision"], _frame_patches(groups)),
                "prefill": work.prefill([prompt for prompt, _ in shapes]),
                "decode": work.decode(shapes),
            }
        counted["reward"] = sum(sum(lengths) for _, lengths in shapes)
        return speed_figures(seconds, counted, flops, peak_flops())

    def _note_damage(self, step: int, found: Sequence[tuple[str, str]]) -> None:
        new = {name: message for name, message in found if name not in self.damaged}
        if not new:
            return
        self.run.append(DAMAGE, [{"step": step, "record": name, "message": text} for name, text in new.items()])
        for name, message in new.items():
            self.log.say(f"question {name} cannot be asked: {message}")
        self.damaged.update(new)
        survey, most = self.prepared.corpus.survey, self.config.input.max_damaged_share
        share = (len(survey.damaged) + len(self.damaged)) / survey.questions
        if share > most:
            name, message = list(new.items())[-1]
            raise RunError(
                f"step {step}: {share:.1%} of the questions cannot be asked, more than the share of {most:g} that "
                f"input.max_damaged_share allows. The last: {name}: {message}"
            )

    def _page(self, step: int, groups: Sequence[Group], advantages: Float[np.ndarray, "B G"]) -> None:
        path = self.run.path / "groups" / f"step_{step:06d}.html"
        write_group_page(path, step, groups, advantages, self.prepared.plan_of, self.pool)

    def evaluate(self, step: int, state: TrainState, last: bool) -> dict[str, float]:
        """What the configuration's `evaluate` measures, where it is due."""
        config = self.config
        due = last or (config.evaluate_every > 0 and step % config.evaluate_every == 0)
        if config.evaluate is None or not due:
            return {}
        policy = self.prepared.policy
        params: Any = cast_parameters(policy.parameters(state.params, state.frozen), policy.options.dtype)
        measured = dict(config.evaluate(replace(self.prepared.model, params=params), step, self.run.path))
        self.log.metrics(step, measured)
        self.log.say(f"step {step}: " + "  ".join(f"{name} {value:.4f}" for name, value in measured.items()))
        return measured
