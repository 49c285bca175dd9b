"""Attention within packed rows on a mesh: which form a platform has, and whose heads and rows a device works on.

    form     where                what
    plain    CPUs, any device     models.attention.row_attention, block by block: the reference of the others
    tpu      TPUs                 models.tree_attention_tpu, kernels (Pallas)
    gpu      NVIDIA GPUs          models.tree_attention_gpu, three calls of cuDNN's kernels, for rows of which it is
                                  known how many branches they have (prompts, the update); plain for SFT

With a sequence axis, rows are cut by tokens everywhere but here: attention sees whole rows, for a part of the heads
(DeepSpeed-Ulysses, Jacobs et al. 2023). The compiler turns the change of layout into an all-to-all; keys and values are
gathered where there are fewer key heads than parts.

          length over seq                heads over seq                  length over seq
    q, k, v [B, S/n, H, E] ─ all-to-all ▶ [B, S, H/n, E] ─ attention ─ all-to-all ▶ [B, S/n, H, E]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from vrjax.errors import InputError, RunError
from vrjax.models import tree_attention_gpu, tree_attention_tpu, tree_blocks
from vrjax.models.attention import AttendRows, Reach, Visibility, plain_attention
from vrjax.models.decoder import DecoderConfig
from vrjax.sharding.rules import Rules, leading_axes

Form = Literal["auto", "plain", "tpu", "gpu"]
_WithFacts = Callable[[Array, Array, Array, Any], Array]


@dataclass(frozen=True)
class RowAttention:
    """Attention for rows on a mesh: `RowAttention(...)(visibility, reach)` is made once for all layers, and called with
    queries [B, S, H, E], keys and values [B, S, K, E] of each. interpret: run TPU kernels without a TPU (tests).
    """

    mesh: Mesh
    rules: Rules
    heads: int
    kv_heads: int
    form: Literal["plain", "tpu", "gpu"]
    interpret: bool = False

    def __post_init__(self) -> None:
        parts = math.prod(self.mesh.shape[axis] for axis in self._head_axes)
        own = self.heads // parts
        if self.heads % parts or (self.kv_heads % parts and (self.heads // self.kv_heads) % own):
            names = " × ".join(f"{axis} {self.mesh.shape[axis]}" for axis in self._head_axes)
            raise InputError(
                f"attention cuts {self.heads} heads, {self.heads // self.kv_heads} to a key head, over {names}: "
                f"{parts} parts do not divide them into whole key heads or parts of one. Change the mesh's sizes."
            )

    @property
    def _head_axes(self) -> tuple[str, ...]:
        names = (*self.rules.mesh_axes("heads"), *self.rules.mesh_axes("length"))
        return tuple(name for name in names if self.mesh.shape[name] > 1)

    @property
    def _alone(self) -> bool:
        """Nothing has to be said about devices: the compiler cuts the plain form by rows and heads itself."""
        by_length = any(self.mesh.shape[name] > 1 for name in self.rules.mesh_axes("length"))
        return self.form == "plain" and not by_length

    def __call__(self, visibility: Visibility, reach: Reach | None = None) -> AttendRows:
        if self._alone:
            return plain_attention(visibility, reach)
        batch = visibility.segment.shape[0]
        parts = math.prod(self.mesh.shape[axis] for axis in self._head_axes)
        own, ratio = self.heads // parts, self.heads // self.kv_heads
        queries_per_key = ratio if self.kv_heads % parts == 0 else own
        of_rows = PartitionSpec(leading_axes(self.rules.mesh_axes("batch"), batch, self.mesh) or None)
        by_heads = PartitionSpec(*of_rows, None, self._head_axes or None)
        keys_by_heads = by_heads if self.kv_heads % parts == 0 else of_rows

        facts, attend = self._form_of(visibility, reach, queries_per_key)

        def of_device(q: Array, k: Array, v: Array, facts: Any) -> Array:
            if self.kv_heads % parts:  # every key head is here, and this device's queries share one of them
                mine = jax.lax.axis_index(self._head_axes) * own // ratio
                k, v = (jax.lax.dynamic_slice_in_dim(x, mine, 1, axis=2) for x in (k, v))
            return attend(q, k, v, facts)

        places = (by_heads, keys_by_heads, keys_by_heads, jax.tree.map(lambda _: of_rows, facts))
        on_devices = jax.shard_map(of_device, mesh=self.mesh, in_specs=places, out_specs=by_heads, check_vma=False)
        return lambda q, k, v: on_devices(q, k, v, facts)

    def _form_of(self, visibility: Visibility, reach: Reach | None, queries_per_key: int) -> tuple[Any, _WithFacts]:
        """What a form needs to know of the rows, cut by rows like them, and the form itself."""
        if self.form == "tpu":
            length = visibility.segment.shape[1]
            blocks = tree_blocks.choose_blocks(length, queries_per_key, reach, interpret=self.interpret)
            facts = tree_blocks.describe_rows(visibility, blocks, queries_per_key)
            return facts, partial(tree_attention_tpu.tree_attention, blocks=blocks)
        if self.form == "gpu" and reach is not None and reach.branches is not None:
            return tree_attention_gpu.describe_rows(visibility, reach), tree_attention_gpu.tree_attention
        return visibility, lambda q, k, v, rows: plain_attention(rows, reach)(q, k, v)

    def pick(self, hidden: Float[Array, "B S D"], at: Int[Array, "B R"]) -> Float[Array, "B R D"]:
        """Hidden states of the tokens at `at`; with a sequence axis each device looks at its own stretch alone."""
        length_axes = tuple(name for name in self.rules.mesh_axes("length") if self.mesh.shape[name] > 1)
        parts = math.prod(self.mesh.shape[name] for name in length_axes)
        if parts == 1 or hidden.shape[1] % parts:
            return jnp.take_along_axis(hidden, at[..., None], axis=1)
        of_rows = PartitionSpec(leading_axes(self.rules.mesh_axes("batch"), hidden.shape[0], self.mesh) or None)

        def of_device(hidden: Array, at: Array) -> Array:
            own = at - jax.lax.axis_index(length_axes) * hidden.shape[1]
            here = (own >= 0) & (own < hidden.shape[1])
            found = jnp.take_along_axis(hidden, jnp.where(here, own, 0)[..., None], axis=1)
            return jax.lax.psum(jnp.where(here[..., None], found, 0), length_axes)

        by_length = PartitionSpec(*of_rows, length_axes)
        pick = jax.shard_map(
            of_device, mesh=self.mesh, in_specs=(by_length, of_rows), out_specs=of_rows, check_vma=False
        )
        return pick(hidden, at)


def check_form(attention: RowAttention, head_size: int, dtype: Any = jnp.bfloat16) -> float:
    """Run a fused form beside the plain one on the mesh's own devices, output and gradients of small random rows.

    Kernels, compilers and drivers change; what a run trusts is measured before it starts. Returns the largest relative
    difference (0 for the plain form, of which nothing is run). Raises RunError where it is more than rounding.
    """
    if attention.form == "plain":
        return 0.0
    rows = math.prod(attention.mesh.shape[name] for name in attention.rules.mesh_axes("batch"))
    lengths, length = (150, 100, 70), 384
    branch = jnp.repeat(jnp.arange(3), jnp.asarray(lengths), total_repeat_length=sum(lengths))
    of_row = jnp.pad(jnp.stack([jnp.ones_like(branch), branch]), ((0, 0), (0, length - sum(lengths))))
    shape = rows, length, attention.heads, head_size
    key_shape = rows, length, attention.kv_heads, head_size

    @jax.jit
    def difference() -> Float[Array, ""]:
        visibility = Visibility(*(jnp.broadcast_to(labels, (rows, length)) for labels in of_row))
        used = visibility.segment[..., None, None] > 0
        keys = jax.random.split(jax.random.key(0), 4)
        sizes = (shape, key_shape, key_shape, shape)
        *inputs, pull = (jax.random.normal(key, size, dtype) for key, size in zip(keys, sizes, strict=True))

        def pulled(form: RowAttention) -> list[Array]:
            out, back = jax.vjp(form(visibility, Reach(lengths[0], lengths[1], 2)), *inputs)
            return [x.astype(jnp.float32) for x in (jnp.where(used, out, 0), *back(jnp.where(used, pull, 0)))]

        pairs = zip(pulled(attention), pulled(replace(attention, form="plain")), strict=True)
        return jnp.stack([jnp.abs(mine - theirs).max() / jnp.abs(theirs).max() for mine, theirs in pairs]).max()

    advice = (
        "Set attention to plain (VRJAX_ATTENTION=plain where there is no such option), and report the device and the "
        "versions of jax and its drivers."
    )
    try:
        found = float(difference())
    except Exception as error:  # compilers and drivers raise whatever they like
        raise RunError(
            f"the {attention.form} form of attention does not run on these devices ({type(error).__name__}: {error}). "
            f"{advice}"
        ) from error
    limit = 0.05 if jnp.dtype(dtype).itemsize < 4 else 1e-4
    if not found <= limit:
        raise RunError(
            f"the {attention.form} form of attention differs from the plain one by {found:.2g} of the largest value on "
            f"these devices, where {limit:g} is rounding. {advice}"
        )
    return found


def make_row_attention(
    mesh: Mesh, rules: Rules, config: DecoderConfig, dtype: Any, form: Form = "auto"
) -> RowAttention:
    """Attention of a decoder on a mesh; "auto" takes the form of the mesh's devices for numbers of this type.

    Raises InputError where heads and mesh do not go together, or the devices do not have the form that is asked for.
    """
    platform = mesh.devices.flat[0].platform
    narrow = jnp.dtype(dtype).itemsize < 4  # cuDNN has no float32
    own: Literal["plain", "tpu", "gpu"] = "plain"
    if platform == "tpu" or (platform == "gpu" and narrow):
        own = platform
    if form not in ("auto", "plain", own):
        raise InputError(
            f"attention: {platform} devices have no form {form!r} for {jnp.dtype(dtype).name}. Use auto or plain."
        )
    return RowAttention(mesh, rules, config.heads, config.kv_heads, own if form == "auto" else form)
