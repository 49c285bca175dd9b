"""Where a policy run stands, and how it is kept: parameters, optimiser, reference, and the place in the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from vrjax.checkpoints import TrainingCheckpoints
from vrjax.training.state import TrainState


@dataclass(frozen=True)
class Progress:
    """updates: taken so far, over all steps; iterator: state of the prompts after the last whole step; old: log-probs
    of the policy before the first of `inner` updates on the step's responses, where the run stands between them;
    audit: its figures of that step; alarms: what they have seen; damaged: names of questions that could not be asked.
    """

    updates: int = 0
    inner_epochs: int = 1
    iterator: dict[str, Any] | None = None
    old: list[list[float]] | None = None
    audit: Mapping[str, float] = field(default_factory=dict)
    alarms: Mapping[str, list[float]] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Whole steps done."""
        return self.updates // self.inner_epochs

    @property
    def inner(self) -> int:
        """Updates done of the step in hand."""
        return self.updates % self.inner_epochs

    def after_update(self) -> Progress:
        done = replace(self, updates=self.updates + 1)
        return done if done.inner else replace(done, old=None)


class PolicyCheckpoint:
    """Saves and restores a policy run. Checkpoints are numbered by updates.

    adapters: only what is trained is kept (the base model is loaded again). keeps_reference: the reference policy
    changes as the run goes on, and is kept too.
    """

    def __init__(self, checkpoints: TrainingCheckpoints, *, adapters: bool, keeps_reference: bool) -> None:
        self._checkpoints, self._adapters, self._keeps_reference = checkpoints, adapters, keeps_reference

    def _params(self, state: TrainState) -> nnx.State:
        return state.params if self._adapters else state.all_params()

    def _rest(self, state: TrainState, reference: Any) -> Any:
        return {"optimizer": state.optimizer, "reference": reference} if self._keeps_reference else state.optimizer

    def save(self, state: TrainState, reference: Any, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Start saving; see TrainingCheckpoints.save. Where the run stands at its last checkpoint nothing is done."""
        if progress.updates in self._checkpoints.steps():
            return
        extra = {"progress": asdict(progress)}
        self._checkpoints.save(progress.updates, self._params(state), self._rest(state, reference), extra, metrics)

    def restore(
        self, state: TrainState, reference: Any, inner_epochs: int
    ) -> tuple[TrainState, Any, Progress, tuple[str, ...]]:
        """(state, reference, progress, notes) of the last checkpoint; those given where there is none."""
        found = self._checkpoints.latest(self._params(state), self._rest(state, reference))
        if found is None:
            return state, reference, Progress(inner_epochs=inner_epochs), ()
        raw = dict(found.extra["progress"])
        progress = Progress(**{**raw, "damaged": tuple(raw["damaged"])})
        optimizer = found.optimizer_state
        if self._keeps_reference:
            optimizer, reference = optimizer["optimizer"], optimizer["reference"]
        trained = {path for path, _ in nnx.to_flat_state(state.params)}
        params, frozen = found.params, state.frozen
        if not self._adapters:
            params, frozen = nnx.split_state(params, lambda path, _: path in trained, ...)
        count = jax.device_put(jnp.asarray(progress.updates, jnp.int32), state.step.sharding)
        return TrainState(count, params, frozen, optimizer), reference, progress, found.notes

    def oldest_step(self, inner_epochs: int) -> int:
        """Steps that the oldest checkpoint has seen: the journal of those before it is of no more use."""
        steps = self._checkpoints.steps()
        return (min(steps) // inner_epochs if steps else 0) - 1

    def close(self) -> None:
        self._checkpoints.close()
