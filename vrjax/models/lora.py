"""Low-rank adapters (LoRA: Hu et al. 2021): W + (alpha / rank) B A on matrices of the decoder's layers.

The merged matrices are made inside the update, and once a step for sampling, so that sampler and trainer multiply by
the same numbers; what is trained and kept in the optimiser is A and B alone. The base model is the reference policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from vrjax.errors import InputError
from vrjax.models.parameters import Weight, parameter_table

Target = Literal["q", "k", "v", "o", "gate", "up", "down"]
_A, _B = "lora_a", "lora_b"


@dataclass(frozen=True)
class LoraConfig:
    """rank of the adapters, alpha (their scale is alpha / rank), and the matrices of each layer that get one."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[Target, ...] = get_args(Target)
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [target for target in self.targets if target not in get_args(Target)]
        if self.rank < 1 or not self.targets or unknown:
            raise InputError(
                f"lora: rank {self.rank} must be at least 1 and targets {self.targets} among {get_args(Target)}."
            )

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def make_adapters(base: nnx.State, config: LoraConfig) -> nnx.State:
    """Fresh adapters for `base` (abstract or real): A normal with 1 / sqrt(inputs), B zero: nothing changes yet.

    Names are PEFT's; axes are those of the matrix, with None for the rank.
    """
    entries = []
    for spec in parameter_table(base):
        if spec.path[:2] != ("text", "layers") or spec.path[2] not in config.targets:
            continue
        layers, outputs, inputs = spec.shape
        key = jax.random.fold_in(jax.random.key(config.seed), len(entries))
        stem, out_axis, in_axis = spec.hf_name.removesuffix(".weight"), spec.axes[1], spec.axes[2]
        a = jax.random.normal(key, (layers, config.rank, inputs)) * inputs**-0.5
        entries.append(
            ((*spec.path[:2], f"{spec.path[2]}_{_A}"),
             Weight(a, axes=("layers", None, in_axis), hf_name=f"{stem}.lora_A.weight",
                    hf_shape=(config.rank, inputs)))
        )  # fmt: skip
        entries.append(
            ((*spec.path[:2], f"{spec.path[2]}_{_B}"),
             Weight(jnp.zeros((layers, outputs, config.rank)), axes=("layers", out_axis, None),
                    hf_name=f"{stem}.lora_B.weight", hf_shape=(outputs, config.rank)))
        )  # fmt: skip
    return nnx.from_flat_state(entries)


def merge_adapters(base: nnx.State, adapters: nnx.State, config: LoraConfig) -> nnx.State:
    """`base` with every adapted matrix replaced by W + scale · B A, the product in float32."""
    change = {path: weight.get_value().astype(jnp.float32) for path, weight in nnx.to_flat_state(adapters)}
    merged = []
    for path, weight in nnx.to_flat_state(base):
        a, b = (change.get((*path[:-1], f"{path[-1]}_{part}")) for part in (_A, _B))
        if a is not None and b is not None:
            matrix = weight.get_value()
            sum_ = matrix.astype(jnp.float32) + config.scale * jnp.einsum("lor,lri->loi", b, a)
            weight = weight.replace(sum_.astype(matrix.dtype))
        merged.append((path, weight))
    return nnx.from_flat_state(merged)
