"""The state of training and the optimiser: float32 masters, what is trained and what is frozen.

The optimiser is Optax's AdamW (or Muon) behind a clip by the global norm, with warm-up and then a cosine or a
constant rate.
Masters stay float32 whatever the compute type: a step of 1e-6 vanishes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.errors import InputError
from vrjax.models.parameters import parameter_table
from vrjax.sharding import map_parameters
from vrjax.training.muon import scale_by_muon


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW (or Muon, see vrjax.training.muon) and its schedule. warmup: steps of linear rise; final_share: of the
    rate, reached at the last step by the cosine; clip_norm: largest global norm of the gradients. Weights decay, norms
    and biases do not.
    """

    method: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-5
    warmup: int = 0
    schedule: Literal["cosine", "constant"] = "cosine"
    final_share: float = 0.0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_norm: float = 1.0

    def rate(self, steps: int) -> optax.Schedule:
        """Learning rate at each step of a run of `steps`. Raises InputError where the warm-up does not fit."""
        if self.warmup >= max(steps, 1):
            raise InputError(f"the warm-up of {self.warmup} steps does not fit a run of {steps}. Shorten it.")
        if self.schedule == "cosine":
            peak = self.learning_rate
            return optax.warmup_cosine_decay_schedule(
                peak if self.warmup == 0 else 0.0, peak, self.warmup, steps, peak * self.final_share
            )
        constant = optax.constant_schedule(self.learning_rate)
        if self.warmup == 0:
            return constant
        return optax.join_schedules(
            [optax.linear_schedule(0.0, self.learning_rate, self.warmup), constant], [self.warmup]
        )


def make_optimizer(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """The chain for a run of `steps` steps."""
    direction = scale_by_muon if config.method == "muon" else optax.scale_by_adam
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        direction(b1=config.b1, b2=config.b2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=decays),
        optax.scale_by_learning_rate(config.rate(steps)),
    )


def decays(params: nnx.State) -> nnx.State:
    """True on matrices, False on norms and biases (vectors in the published checkpoint, stacked or not)."""
    return map_parameters(lambda spec, leaf: len(spec.hf_shape) > 1, params)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """step: updates done; params: what is trained; frozen: what is not (possibly empty); both nnx.State, float32."""

    step: Int[Array, ""]
    params: Any
    frozen: Any
    optimizer: optax.OptState

    def all_params(self) -> nnx.State:
        """The whole model's parameters."""
        return nnx.merge_state(self.params, self.frozen)


def split_parameters(params: nnx.State, freeze_vision: bool) -> tuple[nnx.State, nnx.State]:
    """(trained, frozen): with `freeze_vision` the whole vision tower, merger included, is frozen."""
    trained, frozen = nnx.split_state(params, lambda path, _: not (freeze_vision and path[0] == "vision"), ...)
    return trained, frozen


def apply_gradients(
    state: TrainState, gradients: nnx.State, optimizer: optax.GradientTransformation
) -> tuple[TrainState, Float[Array, ""]]:
    """One update. Returns the new state and the global norm of the gradients before clipping."""
    norm = optax.global_norm(gradients)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, state.frozen, optimizer_state), norm


def accumulate(
    gradients_of: Callable[[Any], tuple[Any, Any, Any]], batch: Any, micro_batches: int
) -> tuple[Any, Any, Any]:
    """Sum (values, gradients) over `micro_batches` parts of a batch, so that k parts give what the whole gives.

    gradients_of: part -> (values, gradients, outputs): the first two *sums* over the part's tokens or rows, never
    means; outputs (a tree, or None) have a first axis of rows and come back in the order of the batch. Rows are dealt
    out in turn (part i gets rows i, k + i, …), so that each device keeps its own rows.
    """
    if micro_batches == 1:
        return gradients_of(batch)

    def deal(array: Array) -> Array:
        return jnp.swapaxes(array.reshape(array.shape[0] // micro_batches, micro_batches, *array.shape[1:]), 0, 1)

    def gather(array: Array) -> Array:
        return jnp.swapaxes(array, 0, 1).reshape(-1, *array.shape[2:])

    parts = jax.tree.map(deal, batch)
    first = jax.tree.map(lambda array: array[0], parts)
    shapes = jax.eval_shape(gradients_of, first)[:2]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(total: Any, part: Any) -> tuple[Any, Any]:
        values, gradients, outputs = gradients_of(part)
        return jax.tree.map(jnp.add, total, (values, gradients)), outputs

    (values, gradients), outputs = jax.lax.scan(add, zeros, parts)
    return values, gradients, jax.tree.map(gather, outputs)


def count_trained(state: TrainState) -> int:
    """Numbers that are trained."""
    return sum(spec.size for spec in parameter_table(state.params))
