"""The transformer decoder that all language models here share: RMSNorm, grouped-query attention, gated SiLU.

Layers are stacked along a first axis and scanned; decoding may pass them unstacked (faster on CPUs).
What differs between prefill, training and decoding is only `attend`, the function that a caller hands in: it gets the
new queries, keys and values of a layer with that layer's slice of `memory`, and returns the attention's output and
whatever should be kept of the layer (new keys and values, an updated cache).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from vrjax.models.attention import KEPT
from vrjax.models.parameters import Declare, fan_in, ones, zeros
from vrjax.models.rotary import axis_of_frequency, inverse_frequencies, llama3_scaled, rotary_tables, rotate

Tables = tuple[Array, Array]
Attend = Callable[[Array, Array, Array, Any], tuple[Array, Any]]
Shard = Callable[[Array, tuple[str | None, ...]], Array]
# What the backward pass computes again of a layer: all of it, all but attention, or nothing.
Remat = bool | Literal["attention"]

FEW_ROWS, FEW_WEIGHTS = 32, 600_000


def unsharded(x: Array, axes: tuple[str | None, ...]) -> Array:
    """The default of every `shard` argument: leave the placement of activations to the compiler."""
    del axes
    return x


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's four numbers."""

    factor: float
    low_factor: float
    high_factor: float
    original_length: int


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder. `sections`: mRoPE's split of the frequencies over (time, height, width), None for plain."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    norm_eps: float
    rope_theta: float
    tied: bool
    qkv_bias: bool
    max_positions: int
    sections: tuple[int, ...] | None = None
    rope_scaling: RopeScaling | None = None

    def frequencies(self) -> np.ndarray:
        plain = inverse_frequencies(self.head_size, self.rope_theta)
        if self.rope_scaling is None:
            return plain
        scaling = self.rope_scaling
        return llama3_scaled(plain, scaling.factor, scaling.low_factor, scaling.high_factor, scaling.original_length)


def rms_norm(x: Float[Array, "*S D"], weight: Float[Array, "D"], eps: float) -> Float[Array, "*S D"]:
    """x / sqrt(mean(x^2) + eps) * weight, the mean in float32 (Zhang and Sennrich 2019)."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + eps)
    return weight * wide.astype(x.dtype)


def linear(x: Float[Array, "*S I"], weight: Float[Array, "O I"], bias: Float[Array, "O"] | None = None) -> Array:
    """x W^T + b. With few rows (decoding) it is written in the forms that CPU matrix kernels run fastest.

    Few rows: W x^T, up to 1.5 times as fast as x W^T; 5 to 7 rows as 8 and 9 to 15 as 16, which are whole tiles of the
    kernel (1.2 to 1.4 times). One row and a small matrix: two halves as a batch, since XLA runs a product that small on
    one thread (twice as fast on two).
    """
    rows, (outputs, inputs) = math.prod(x.shape[:-1]), weight.shape
    if rows == 1 and outputs % 2 == 0 and weight.size < FEW_WEIGHTS:
        halves = jnp.broadcast_to(x.reshape(1, 1, inputs), (2, 1, inputs))
        out = jnp.einsum("poi,pmi->pmo", weight.reshape(2, outputs // 2, inputs), halves)
        out = out.reshape(*x.shape[:-1], outputs)
    elif rows <= FEW_ROWS:
        flat = x.reshape(rows, inputs)
        if 4 < rows < 16:
            flat = jnp.pad(flat, ((0, -rows % 8), (0, 0)))
        out = jax.lax.dot_general(weight, flat, (((1,), (1,)), ((), ())))[:, :rows].T
        out = out.reshape(*x.shape[:-1], outputs)
    else:
        out = jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return out if bias is None else out + bias


class DecoderLayer(nnx.Module):
    def __init__(self, config: DecoderConfig, declare: Declare):
        width, size = config.width, config.head_size
        heads, kv_heads = config.heads * size, config.kv_heads * size
        self.config = config
        init, out_init = fan_in(), fan_in((2 * config.layers) ** -0.5)
        self.input_norm = declare("input_layernorm.weight", (width,), (None,), ones)
        self.q = declare("self_attn.q_proj.weight", (heads, width), ("heads", "embed"), init)
        self.k = declare("self_attn.k_proj.weight", (kv_heads, width), ("kv_heads", "embed"), init)
        self.v = declare("self_attn.v_proj.weight", (kv_heads, width), ("kv_heads", "embed"), init)
        self.o = declare("self_attn.o_proj.weight", (width, heads), ("embed", "heads"), out_init)
        if config.qkv_bias:
            self.q_bias = declare("self_attn.q_proj.bias", (heads,), ("heads",), zeros)
            self.k_bias = declare("self_attn.k_proj.bias", (kv_heads,), ("kv_heads",), zeros)
            self.v_bias = declare("self_attn.v_proj.bias", (kv_heads,), ("kv_heads",), zeros)
        self.mlp_norm = declare("post_attention_layernorm.weight", (width,), (None,), ones)
        self.gate = declare("mlp.gate_proj.weight", (config.mlp, width), ("mlp", "embed"), init)
        self.up = declare("mlp.up_proj.weight", (config.mlp, width), ("mlp", "embed"), init)
        self.down = declare("mlp.down_proj.weight", (width, config.mlp), ("embed", "mlp"), out_init)

    def qkv(self, x: Float[Array, "*S D"], asking: Float[Array, "*R D"]) -> tuple[Array, Array, Array]:
        """Queries of `asking`, keys and values of `x`."""
        biases = (self.q_bias[...], self.k_bias[...], self.v_bias[...]) if self.config.qkv_bias else (None, None, None)
        parts = zip((asking, x, x), (self.q, self.k, self.v), biases, strict=True)
        q, k, v = (linear(part, w[...], b) for part, w, b in parts)
        return q, k, v

    def gate_and_up(self, x: Float[Array, "*S D"]) -> tuple[Array, Array]:
        return linear(x, self.gate[...]), linear(x, self.up[...])


def run_layer(
    layer: DecoderLayer,
    x: Float[Array, "B S D"],
    tables: Tables,
    attend: Attend,
    memory: Any,
    shard: Shard = unsharded,
    at: Int[Array, "B R"] | None = None,
) -> tuple[Float[Array, "B S D"], Any]:
    """Attention and MLP of one layer; returns the new x and what `attend` kept.

    at: compute the new x of these tokens only, [B, R, D]; the others are seen through their keys and values.
    """
    config = layer.config
    batch = x.shape[0]
    normed = rms_norm(x, layer.input_norm[...], config.norm_eps)
    asking, asking_tables = normed, tables
    if at is not None:
        x, asking, *asking_tables = (jnp.take_along_axis(part, at[..., None], axis=1) for part in (x, normed, *tables))
    q, k, v = (part.reshape(batch, part.shape[1], -1, config.head_size) for part in layer.qkv(normed, asking))
    q = shard(rotate(q, *asking_tables), ("batch", "length", "heads", None))
    k = shard(rotate(k, *tables), ("batch", "length", "kv_heads", None))
    mixed, kept = attend(q, k, v, memory)
    mixed = checkpoint_name(shard(mixed, ("batch", "length", "heads", None)), KEPT)
    x = shard(x + linear(mixed.reshape(batch, x.shape[1], -1), layer.o[...]), ("batch", "length", None))
    gate, up = layer.gate_and_up(rms_norm(x, layer.mlp_norm[...], config.norm_eps))
    hidden = shard(jax.nn.silu(gate) * up, ("batch", "length", "mlp"))
    return shard(x + linear(hidden, layer.down[...]), ("batch", "length", None)), kept


def recomputed(function: Callable[..., Any], remat: Remat) -> Callable[..., Any]:
    """`function` as the backward pass is to have it."""
    if not remat:
        return function
    keep = jax.checkpoint_policies.save_only_these_names(KEPT) if remat == "attention" else None
    return jax.checkpoint(function, policy=keep)


@jax.custom_vjp
def split_last(stacked: Any) -> tuple[Any, Any]:
    """Stacked arrays [L, …] as those of the first L - 1 layers and of the last. Its gradient joins the two again, where
    that of plain slices would add up padded copies.
    """
    return jax.tree.map(lambda array: array[:-1], stacked), jax.tree.map(lambda array: array[-1], stacked)


def _join_last(_: None, pulls: tuple[Any, Any]) -> tuple[Any]:
    return (jax.tree.map(lambda first, last: jnp.concatenate([first, last[None]]), *pulls),)


split_last.defvjp(lambda stacked: (split_last(stacked), None), _join_last)


class Decoder(nnx.Module):
    """Embedding, stacked layers, last norm, and the head over the vocabulary (the embedding again where tied)."""

    def __init__(self, config: DecoderConfig, declare: Declare, head: Declare):
        self.config = config
        self.embedding = declare("embed_tokens.weight", (config.vocabulary, config.width), ("vocab", "embed"), fan_in())
        self.layers = DecoderLayer(config, declare.inside("layers.{layer}.", config.layers))
        self.norm = declare("norm.weight", (config.width,), (None,), ones)
        if not config.tied:
            self.head = head("lm_head.weight", (config.vocabulary, config.width), ("vocab", "embed"), fan_in())

    def embed(self, tokens: Int[Array, "B S"]) -> Float[Array, "B S D"]:
        return self.embedding[...][tokens]

    def head_weight(self) -> Float[Array, "V D"]:
        return self.embedding[...] if self.config.tied else self.head[...]

    def logits(self, hidden: Float[Array, "*S D"]) -> Float[Array, "*S V"]:
        """Next-token logits in float32 of hidden states that `run` returned."""
        return linear(hidden, self.head_weight()).astype(jnp.float32)

    def tables(self, positions: Int[Array, "A B S"]) -> Tables:
        """Rotary tables; `positions` has three rows (time, height, width) with mRoPE, one without."""
        sections = self.config.sections
        return rotary_tables(
            positions, self.config.frequencies(), None if sections is None else axis_of_frequency(sections)
        )

    def run(
        self,
        x: Float[Array, "B S D"],
        tables: Tables,
        attend: Attend,
        memory: Any = None,
        *,
        remat: Remat = False,
        unroll: bool = False,
        shard: Shard = unsharded,
    ) -> tuple[Float[Array, "B S D"], Any]:
        """All layers, scanned, then the last norm.

        memory: per-layer values for `attend`, stacked on a first axis of L (or None). remat: what of each layer the
        backward pass computes again. unroll: write the loop out, which on CPUs spares copies of what the layers leave
        behind.
        Returns the hidden states and what `attend` kept, stacked likewise.
        """
        graph, stacked = nnx.split(self.layers)

        def body(x: Array, layer: tuple[Any, Any]) -> tuple[Array, Any]:
            return run_layer(nnx.merge(graph, layer[0]), x, tables, attend, layer[1], shard)

        x, kept = jax.lax.scan(recomputed(body, remat), x, (stacked, memory), unroll=unroll)
        return rms_norm(x, self.norm[...], self.config.norm_eps), kept

    def run_for(
        self,
        x: Float[Array, "B S D"],
        tables: Tables,
        attend: Attend,
        attend_last: Attend,
        at: Int[Array, "B R"],
        *,
        remat: Remat = False,
        shard: Shard = unsharded,
    ) -> Float[Array, "B R D"]:
        """Hidden states of the tokens at `at` alone, the loop written out: the last layer computes no others.

        attend_last: attention of that layer, which gets the queries of those tokens, and all keys and values.
        """
        graph, stacked = nnx.split(self.layers)
        first, last = split_last(stacked)

        def body(x: Array, layer: Any) -> tuple[Array, None]:
            return run_layer(nnx.merge(graph, layer), x, tables, attend, None, shard)[0], None

        def final(x: Array, layer: Any) -> Array:
            return run_layer(nnx.merge(graph, layer), x, tables, attend_last, None, shard, at)[0]

        x, _ = jax.lax.scan(recomputed(body, remat), x, first, unroll=True)
        x = recomputed(final, remat)(x, last)
        return rms_norm(x, self.norm[...], self.config.norm_eps)

    def unstack(self) -> tuple[Any, ...]:
        """The layers one by one, for `run_unrolled`: a copy of their weights, to be made once and kept."""
        _, stacked = nnx.split(self.layers)
        return tuple(jax.tree.map(lambda array, i=i: array[i], stacked) for i in range(self.config.layers))

    def run_unrolled(
        self,
        x: Float[Array, "B S D"],
        tables: Tables,
        attend: Attend,
        layers: tuple[Any, ...],
        memory: tuple[Any, ...] | None = None,
        *,
        at: Int[Array, "B R"] | None = None,
        attend_last: Attend | None = None,
    ) -> tuple[Float[Array, "B S D"], tuple[Any, ...]]:
        """The same as `run` with `layers` from `unstack` and one entry of `memory` a layer.

        at: hidden states of these tokens alone, [B, R, D]; the last layer computes no others. `attend_last` is then its
        attention, which gets the queries of those tokens, and all keys and values.
        """
        graph, _ = nnx.split(self.layers)
        kept = []
        for layer, entry in zip(layers, memory or (None,) * len(layers), strict=True):
            if attend_last is not None and len(kept) == len(layers) - 1:
                x, new = run_layer(nnx.merge(graph, layer), x, tables, attend_last, entry, at=at)
            else:
                x, new = run_layer(nnx.merge(graph, layer), x, tables, attend, entry)
            kept.append(new)
        return rms_norm(x, self.norm[...], self.config.norm_eps), tuple(kept)
