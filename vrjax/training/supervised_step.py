"""The two programs of supervised fine-tuning: the update, and the loss alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float

from vrjax.models.log_probs import token_log_probs
from vrjax.models.parameters import cast_parameters
from vrjax.training.forward import ForwardOptions, encode_rows, target_hidden
from vrjax.training.losses import weighted_nll
from vrjax.training.rows import Rows
from vrjax.training.state import TrainState, accumulate, apply_gradients

Sums = tuple[Float[Array, ""], Float[Array, ""]]  # of weight · −log p, and of weights
LossSums = Callable[[nnx.State, nnx.State, Rows], Sums]
TrainStep = Callable[[TrainState, Rows], tuple[TrainState, dict[str, Array]]]


def make_loss_sums(graph: nnx.GraphDef, options: ForwardOptions, freeze_vision: bool) -> LossSums:
    """(trained, frozen, rows) -> sums of weight · −log p and of weights over the rows' responses."""

    def loss_sums(trained: nnx.State, frozen: nnx.State, rows: Rows) -> Sums:
        model = nnx.merge(graph, cast_parameters(nnx.merge_state(trained, frozen), options.dtype))
        features = encode_rows(model, rows.vision, options)
        if freeze_vision:
            features = jax.lax.stop_gradient(features)
        hidden = target_hidden(model, rows.text, features, options)
        head = model.text.head_weight()
        log_probs, _ = token_log_probs(hidden, head, jnp.asarray(rows.text.targets), shard=options.shard)
        return weighted_nll(log_probs, jnp.asarray(rows.text.weights))

    return loss_sums


def make_train_step(
    graph: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    rate: optax.Schedule,
    options: ForwardOptions,
    freeze_vision: bool,
    micro_batches: int = 1,
) -> TrainStep:
    """One update. The loss is the mean over the response tokens of the whole batch, however it is cut or spread."""
    loss_sums = make_loss_sums(graph, options, freeze_vision)

    def train_step(state: TrainState, rows: Rows) -> tuple[TrainState, dict[str, Array]]:
        def gradients_of(part: Rows) -> tuple[Sums, nnx.State, None]:
            def nll(trained: nnx.State) -> tuple[Float[Array, ""], Sums]:
                sums = loss_sums(trained, state.frozen, part)
                return sums[0], sums

            gradients, sums = jax.grad(nll, has_aux=True)(state.params)
            return sums, gradients, None

        (nll, weight), gradients, _ = accumulate(gradients_of, rows, micro_batches)
        weight = jnp.maximum(weight, 1.0)  # a batch of damaged rows only: nothing to learn, loss 0
        gradients = jax.tree.map(lambda gradient: gradient / weight, gradients)
        learning_rate = jnp.asarray(rate(state.step), jnp.float32)
        state, norm = apply_gradients(state, gradients, optimizer)
        tokens = (rows.text.segment > 0).sum()
        return state, {"loss": nll / weight, "grad_norm": norm, "learning_rate": learning_rate, "tokens": tokens}

    return train_step


def jit_train_step(step: TrainStep, shardings: Any) -> Any:
    """The update as it is compiled: the state is given up, and comes back where it lay (`place_state`)."""
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))
