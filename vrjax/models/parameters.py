"""One table per architecture: every parameter declared once, where the module uses it, and read off from there.

A `Weight` carries beside its array the logical axes (for sharding), the Hugging Face name (for loading and export)
and whether it is stacked over layers. `parameter_table` lists them; loading, export, sharding, counting and planning
all read that list.

Weights keep Hugging Face's layout (a linear layer is [out, in]), so that reading and writing move bytes and nothing
else. It is also the faster layout for decoding on CPUs, where `W @ x^T` beats `x @ W^T` at few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Initializer = Callable[[jax.Array, tuple[int, ...], Any], jax.Array]


class Weight(nnx.Param):
    """A parameter with its declaration. Metadata: `axes`, `hf_name`, `hf_shape` (see ParameterSpec)."""


@dataclass(frozen=True)
class ParameterSpec:
    """The declaration of one parameter.

    path: where it sits in the parameter tree, e.g. ("text", "layers", "q_proj").
    shape: of the array, the layer axis first where `layers` is set.
    axes: one logical axis name (or None) for each dimension.
    hf_name: Hugging Face name; `{layer}` in it stands for the index along the layer axis.
    hf_shape: shape of one Hugging Face tensor (one layer's).
    layers: number of stacked layers, or None for a parameter that stands alone.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    hf_name: str
    hf_shape: tuple[int, ...]
    layers: int | None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def hf_names(self) -> list[str]:
        """Names of the Hugging Face tensors that this parameter is made of, in layer order."""
        if self.layers is None:
            return [self.hf_name]
        return [self.hf_name.format(layer=index) for index in range(self.layers)]


def fan_in(gain: float = 1.0) -> Initializer:
    """Normal with standard deviation gain / sqrt(inputs), the last axis being the inputs (LeCun et al. 1998)."""
    return lambda key, shape, dtype: gain * shape[-1] ** -0.5 * jax.random.normal(key, shape, dtype)


def ones(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    del key
    return jnp.ones(shape, dtype)


def zeros(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    del key
    return jnp.zeros(shape, dtype)


@dataclass(frozen=True)
class Declare:
    """Makes the weights of one module: all of them share random stream, type, layer stack and name prefix.

    rngs: random streams; dtype: of the arrays; layers: stack this many (None: not stacked);
    prefix: Hugging Face prefix, with `{layer}` where the module is stacked.
    """

    rngs: nnx.Rngs
    dtype: Any
    prefix: str
    layers: int | None = None

    def inside(self, suffix: str, layers: int | None = None) -> Declare:
        return Declare(self.rngs, self.dtype, self.prefix + suffix, self.layers if layers is None else layers)

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        axes: tuple[str | None, ...],
        init: Initializer,
        hf_shape: tuple[int, ...] | None = None,
    ) -> Weight:
        full_shape = shape if self.layers is None else (self.layers, *shape)
        full_axes = axes if self.layers is None else ("layers", *axes)
        if len(axes) != len(shape):
            raise ValueError(f"{self.prefix + name}: {len(shape)} dimensions but {len(axes)} axes")
        value = init(self.rngs.params(), full_shape, self.dtype)
        return Weight(value, axes=full_axes, hf_name=self.prefix + name, hf_shape=hf_shape or shape)


def parameter_table(params: nnx.State) -> list[ParameterSpec]:
    """Read the declarations off a model's (abstract or real) parameter state, ordered by path."""
    table = []
    for path, weight in nnx.to_flat_state(params):
        axes, shape = weight.axes, tuple(weight.get_value().shape)
        layers = shape[0] if axes and axes[0] == "layers" else None
        table.append(
            ParameterSpec(tuple(str(part) for part in path), shape, axes, weight.hf_name, weight.hf_shape, layers)
        )
    return sorted(table, key=lambda spec: spec.path)


def parameter_count(params: nnx.State) -> int:
    return sum(spec.size for spec in parameter_table(params))


def abstract_parameters(build: Callable[[], nnx.Module]) -> tuple[nnx.GraphDef, nnx.State]:
    """Build a module without memory: its graph definition and parameters as shapes only."""
    return nnx.split(nnx.eval_shape(build))


def cast_parameters(params: nnx.State, dtype: Any) -> nnx.State:
    """Cast every array (norms and biases too); the tree stays the same."""
    return jax.tree.map(lambda array: array.astype(dtype), params)
