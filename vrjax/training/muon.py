"""Muon: momentum whose matrices are orthogonalised, so that every direction of a layer learns at one pace.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon), scaled to AdamW's step size after Liu et al. 2025
(arXiv 2502.16982). Matrices inside the layers take it; embedding, head, patch embedding, norms and biases take Adam
(Kingma and Ba 2015). Models trained from nothing learn in about half the steps; fine-tuning gains little.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.models.parameters import ParameterSpec
from vrjax.sharding import map_parameters

STEPS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)
ADAM_SIZE = 0.2  # root mean square of AdamW's usual updates


class MuonState(NamedTuple):
    """count: updates done; momentum: of all parameters; second: Adam's second moment, zero where Muon steps."""

    count: Int[Array, ""]
    momentum: optax.Params
    second: optax.Params


def takes_muon(spec: ParameterSpec) -> bool:
    """Whether a parameter is a matrix inside the network: not a table over the vocabulary, and not a vector."""
    return len(spec.hf_shape) == 2 and "vocab" not in spec.axes


def orthogonalise(matrices: Float[Array, "*L O I"]) -> Float[Array, "*L O I"]:
    """Bring all singular values of each matrix near 1, by five Newton-Schulz steps of degree five."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = jnp.swapaxes(matrices, -1, -2) if tall else matrices
    x = x / (jnp.sqrt(jnp.square(x).sum((-2, -1), keepdims=True)) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        square = x @ jnp.swapaxes(x, -1, -2)
        x = a * x + (b * square + c * square @ square) @ x
    return jnp.swapaxes(x, -1, -2) if tall else x


def scale_by_muon(b1: float, b2: float, eps: float, beta: float = 0.95) -> optax.GradientTransformation:
    """Directions of Muon (Nesterov momentum `beta`) for matrices and of Adam for the rest, both of AdamW's size."""

    def init(params: optax.Params) -> MuonState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return MuonState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.zeros_like, params))

    def update(
        gradients: nnx.State, state: MuonState, params: optax.Params | None = None
    ) -> tuple[nnx.State, MuonState]:
        del params
        count = state.count + 1
        decay = map_parameters(lambda spec, _: beta if takes_muon(spec) else b1, gradients)
        momentum = jax.tree.map(lambda m, g, d: d * m + (1 - d) * g, state.momentum, gradients, decay)
        second = map_parameters(lambda spec, _: 1.0 if takes_muon(spec) else b2, gradients)
        second = jax.tree.map(lambda v, g, d: d * v + (1 - d) * jnp.square(g), state.second, gradients, second)

        def direction(spec: ParameterSpec, leaves: tuple[Array, Array, Array]) -> Array:
            gradient, m, v = leaves
            if takes_muon(spec):
                size = ADAM_SIZE * max(spec.hf_shape) ** 0.5
                return size * orthogonalise(beta * m + (1 - beta) * gradient)
            m, v = m / (1 - b1**count), v / (1 - b2**count)
            return m / (jnp.sqrt(v) + eps)

        table = map_parameters(lambda spec, _: spec, gradients)
        updates = jax.tree.map(lambda spec, *leaves: direction(spec, leaves), table, gradients, momentum, second)
        return updates, MuonState(count, momentum, second)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]
