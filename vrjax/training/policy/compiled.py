"""The compiled programs of a policy run, by the sizes of the rows that they serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import jax
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float

from vrjax.generation.decode import VocabularyMasks
from vrjax.ledger import Ledger
from vrjax.models.attention import Reach
from vrjax.models.parameters import cast_parameters
from vrjax.training.policy.batch import PolicyBatch
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.packing import GroupSize
from vrjax.training.policy.programs import Policy, make_log_probs, make_update
from vrjax.training.policy_loss import PolicyTargets
from vrjax.training.state import TrainState


class Parts(Protocol):
    """What the programs are made of: a run that is prepared (`PreparedPolicy`), or its parts (`PolicyParts`)."""

    @property
    def policy(self) -> Policy: ...
    @property
    def optimizer(self) -> optax.GradientTransformation: ...
    @property
    def rate(self) -> optax.Schedule: ...
    @property
    def shardings(self) -> Any: ...


class PolicyPrograms:
    """Update, log-probs of the policy and of the reference; one program for each size of rows."""

    def __init__(self, config: GrpoConfig, prepared: Parts, ledger: Ledger) -> None:
        self._config, self._prepared, self._ledger = config, prepared, ledger
        self._made: dict[Any, Any] = {}

    def _get(self, name: str, size: GroupSize, make: Callable[[], Any]) -> Any:
        key = name, size.reach
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _reach(self, size: GroupSize) -> Reach:
        return replace(size.reach, branches=self._config.rollout.group // self._config.split_groups)

    def update(
        self, state: TrainState, batch: PolicyBatch, targets: PolicyTargets
    ) -> tuple[TrainState, dict[str, Array], Float[Array, "B R"]]:
        """One update; `state` is given up."""
        config, prepared = self._config, self._prepared

        def make() -> Any:
            function = make_update(
                prepared.policy,
                self._reach(batch.size),
                prepared.optimizer,
                prepared.rate,
                config.loss,
                config.rollout.group // config.split_groups,
                config.micro_batches,
            )
            return jax.jit(function, donate_argnums=0, out_shardings=(prepared.shardings, None, None))

        program = self._get("update", batch.size, make)
        return self._ledger.run("update", batch.key, program, state, batch.rows, targets)

    def log_probs(self, state: TrainState, batch: PolicyBatch) -> Float[Array, "B R"]:
        """Of the policy as it is, over the batch's responses."""
        program = self._get("log_probs", batch.size, lambda: jax.jit(self._forward(adapters=True, size=batch.size)))
        return self._ledger.run("log_probs", batch.key, program, state.params, state.frozen, batch.rows)

    def reference_of(self, state: TrainState) -> nnx.State | None:
        """The reference policy's trained parameters, taken from the policy as it is; None without a KL term.

        With adapters it is the base model, of which nothing needs to be kept.
        """
        if self._config.loss.kl_weight == 0:
            return None
        if self._config.lora is not None:
            return nnx.State({})
        dtype = self._prepared.policy.options.dtype
        copy = jax.jit(
            lambda params: jax.tree.map(lambda array: array + 0, cast_parameters(params, dtype)),
            out_shardings=self._prepared.shardings.params,
        )
        return self._ledger.run("reference_of", None, copy, state.params)

    def reference(self, reference: nnx.State, state: TrainState, batch: PolicyBatch) -> Float[Array, "B R"]:
        """Log-probs of the reference policy."""
        program = self._get("reference", batch.size, lambda: jax.jit(self._forward(adapters=False, size=batch.size)))
        return self._ledger.run("reference", batch.key, program, reference, state.frozen, batch.rows)

    def _forward(self, *, adapters: bool, size: GroupSize) -> Callable[..., Float[Array, "B R"]]:
        policy = self._prepared.policy if adapters else replace(self._prepared.policy, lora=None)
        log_probs = make_log_probs(policy, self._reach(size))
        return lambda trained, frozen, rows: log_probs(trained, frozen, rows)[0]

    def processed(self, state: TrainState, batch: PolicyBatch, masks: VocabularyMasks) -> Float[Array, "B R"]:
        """Truncated log-probs of the policy, as the sampler should have recorded them."""
        sampling = self._config.rollout.sampling()
        policy, reach, kind = self._prepared.policy, self._reach(batch.size), sampling.kind

        def make() -> Any:
            def processed(trained: Any, frozen: Any, rows: Any, masks: VocabularyMasks, numbers: Any) -> Array:
                return policy.processed(policy.parameters(trained, frozen), rows, reach, masks, numbers, kind)

            return jax.jit(processed)

        arguments = (state.params, state.frozen, batch.rows, masks, sampling.numbers())
        return self._ledger.run("processed", batch.key, self._get("processed", batch.size, make), *arguments)


def local_rows(array: Float[Array, "B R"]) -> Float[np.ndarray, "B R"]:
    """This process's rows of an array that is cut by rows."""
    if jax.process_count() == 1:
        return np.asarray(array)
    pieces = {shard.index[0].start or 0: np.asarray(shard.data) for shard in array.addressable_shards}
    return np.concatenate([pieces[start] for start in sorted(pieces)])
