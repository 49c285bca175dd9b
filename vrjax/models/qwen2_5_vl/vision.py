"""The vision tower of Qwen2.5-VL: patches to features, window attention with a few full layers, and the merger.

Letters: F frames (temporal patches), N patches of a frame, D width, H heads, E head size, W windows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from vrjax.models.attention import softmax_sum
from vrjax.models.decoder import Shard, linear, rms_norm, unsharded
from vrjax.models.parameters import Declare, fan_in, ones, zeros
from vrjax.models.qwen2_5_vl.config import VisionConfig
from vrjax.models.qwen2_5_vl.layout import VisionInputs, window_slots
from vrjax.models.rotary import grid_rotary_tables, rotate

# Mean and standard deviation of CLIP's training pixels, on a scale of 0 to 1 (qwen-vl-utils, OpenAI CLIP).
PIXEL_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
PIXEL_STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


def normalize_pixels(patches: Array, config: VisionConfig, dtype: Any) -> Float[Array, "F N V"]:
    """uint8 patches to (x / 255 - mean) / std, channel by channel."""
    per_channel = config.patch_values // config.channels
    scale = np.repeat(1 / (255 * PIXEL_STD), per_channel)
    shift = np.repeat(PIXEL_MEAN / PIXEL_STD, per_channel)
    return (patches.astype(jnp.float32) * scale - shift).astype(dtype)


class VisionBlock(nnx.Module):
    def __init__(self, config: VisionConfig, declare: Declare):
        self.config = config
        width, init, out_init = config.width, fan_in(), fan_in((2 * config.layers) ** -0.5)
        self.norm1 = declare("norm1.weight", (width,), (None,), ones)
        self.qkv = declare("attn.qkv.weight", (3 * width, width), ("heads", "embed"), init)
        self.qkv_bias = declare("attn.qkv.bias", (3 * width,), ("heads",), zeros)
        self.proj = declare("attn.proj.weight", (width, width), ("embed", "heads"), out_init)
        self.proj_bias = declare("attn.proj.bias", (width,), (None,), zeros)
        self.norm2 = declare("norm2.weight", (width,), (None,), ones)
        self.gate = declare("mlp.gate_proj.weight", (config.mlp, width), ("mlp", "embed"), init)
        self.gate_bias = declare("mlp.gate_proj.bias", (config.mlp,), ("mlp",), zeros)
        self.up = declare("mlp.up_proj.weight", (config.mlp, width), ("mlp", "embed"), init)
        self.up_bias = declare("mlp.up_proj.bias", (config.mlp,), ("mlp",), zeros)
        self.down = declare("mlp.down_proj.weight", (width, config.mlp), ("embed", "mlp"), out_init)
        self.down_bias = declare("mlp.down_proj.bias", (width,), (None,), zeros)

    def __call__(
        self, x: Float[Array, "F N D"], tables: tuple[Array, Array], inputs: VisionInputs, windowed: bool
    ) -> Float[Array, "F N D"]:
        config = self.config
        frames, length, width = x.shape
        qkv = linear(rms_norm(x, self.norm1[...], config.norm_eps), self.qkv[...], self.qkv_bias[...])
        q, k, v = jnp.split(qkv.reshape(frames, length, 3 * config.heads, width // config.heads), 3, axis=2)
        q, k = rotate(q, *tables), rotate(k, *tables)
        if windowed:
            mixed = window_attention(q, k, v, inputs, window_slots(config))
        else:
            mixed = frame_attention(q, k, v, jnp.asarray(inputs.valid))
        x = x + linear(mixed.reshape(frames, length, width), self.proj[...], self.proj_bias[...])
        normed = rms_norm(x, self.norm2[...], config.norm_eps)
        hidden = jax.nn.silu(linear(normed, self.gate[...], self.gate_bias[...]))
        hidden = hidden * linear(normed, self.up[...], self.up_bias[...])
        return x + linear(hidden, self.down[...], self.down_bias[...])


def frame_attention(
    q: Float[Array, "F N H E"], k: Float[Array, "F N H E"], v: Float[Array, "F N H E"], valid: Bool[Array, "F N"]
) -> Float[Array, "F N H E"]:
    """Every patch sees every valid patch of its own frame."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return softmax_sum(q, k, v, valid[:, None, None, :]).transpose(0, 2, 1, 3)


def window_attention(
    q: Float[Array, "F N H E"], k: Float[Array, "F N H E"], v: Float[Array, "F N H E"], inputs: VisionInputs, slots: int
) -> Float[Array, "F N H E"]:
    """Every patch sees the patches of its own window: a reshape where windows are whole, else a gather."""
    frames, length, heads, size = q.shape
    if inputs.to_windows is None or inputs.from_windows is None:
        q, k, v = (x.reshape(frames * length // slots, slots, heads, size) for x in (q, k, v))
        out = frame_attention(q, k, v, jnp.asarray(inputs.valid).reshape(-1, slots))
        return out.reshape(frames, length, heads, size)
    to_windows, from_windows = jnp.asarray(inputs.to_windows), jnp.asarray(inputs.from_windows)
    take = partial(jnp.take_along_axis, axis=1, mode="fill", fill_value=0)
    q, k, v = (take(x, to_windows[:, :, None, None]).reshape(-1, slots, heads, size) for x in (q, k, v))
    out = frame_attention(q, k, v, (to_windows < length).reshape(-1, slots)).reshape(frames, -1, heads, size)
    return jnp.take_along_axis(out, from_windows[:, :, None, None], axis=1)


class VisionTower(nnx.Module):
    def __init__(self, config: VisionConfig, declare: Declare):
        self.config = config
        width, unit = config.width, config.merge_size**2
        self.patch_embedding = declare(
            "patch_embed.proj.weight",
            (width, config.patch_values),
            ("embed", "patch"),
            fan_in(),
            hf_shape=(width, config.channels, config.temporal_patch_size, config.patch_size, config.patch_size),
        )
        self.blocks = VisionBlock(config, declare.inside("blocks.{layer}.", config.layers))
        self.merger_norm = declare("merger.ln_q.weight", (width,), (None,), ones)
        self.merger_in = declare("merger.mlp.0.weight", (unit * width, unit * width), ("mlp", "embed"), fan_in())
        self.merger_in_bias = declare("merger.mlp.0.bias", (unit * width,), ("mlp",), zeros)
        self.merger_out = declare("merger.mlp.2.weight", (config.out_width, unit * width), ("embed", "mlp"), fan_in())
        self.merger_out_bias = declare("merger.mlp.2.bias", (config.out_width,), (None,), zeros)

    def __call__(self, inputs: VisionInputs, *, remat: bool = False, shard: Shard = unsharded) -> Float[Array, "F M O"]:
        """Features of every merged token, in window order: [F, N / merge², out width]."""
        config = self.config
        dtype = self.patch_embedding[...].dtype
        pixels = shard(normalize_pixels(jnp.asarray(inputs.patches), config, dtype), ("frames", None, None))
        x = linear(pixels, self.patch_embedding[...])
        tables = grid_rotary_tables(jnp.asarray(inputs.coordinates), config.width // config.heads)
        x = shard(self._run_blocks(x, tables, inputs, remat), ("frames", None, None))
        x = rms_norm(x, self.merger_norm[...], config.norm_eps)
        x = x.reshape(x.shape[0], -1, config.merge_size**2 * config.width)
        x = jax.nn.gelu(linear(x, self.merger_in[...], self.merger_in_bias[...]), approximate=False)
        return linear(x, self.merger_out[...], self.merger_out_bias[...])

    def _run_blocks(self, x: Array, tables: tuple[Array, Array], inputs: VisionInputs, remat: bool) -> Array:
        """Scan runs of windowed layers, each followed by its full layer; equal runs are scanned as periods."""
        graph, stacked = nnx.split(self.blocks)

        def block(x: Array, layer: Any, windowed: bool) -> Array:
            def call(x: Array, layer: Any) -> Array:
                return nnx.merge(graph, layer)(x, tables, inputs, windowed)

            return (jax.checkpoint(call) if remat else call)(x, layer)

        def windowed_run(x: Array, layers: Any, count: int) -> Array:
            if count == 0:
                return x
            return jax.lax.scan(lambda x, layer: (block(x, layer, True), None), x, layers)[0]

        def part(layers: Any, start: int, stop: int) -> Any:
            return jax.tree.map(lambda array: array[start:stop], layers)

        def one(layers: Any, index: int) -> Any:
            return jax.tree.map(lambda array: array[index], layers)

        full, layers = sorted(self.config.full_layers), self.config.layers
        period = full[0] + 1 if full else 0
        if period and layers % period == 0 and full == list(range(period - 1, layers, period)):
            periods = jax.tree.map(lambda array: array.reshape(-1, period, *array.shape[1:]), stacked)

            def run_period(x: Array, group: Any) -> tuple[Array, None]:
                x = windowed_run(x, part(group, 0, period - 1), period - 1)
                return block(x, one(group, period - 1), False), None

            return jax.lax.scan(run_period, x, periods)[0]
        start = 0
        for index in full:
            x = windowed_run(x, part(stacked, start, index), index - start)
            x = block(x, one(stacked, index), False)
            start = index + 1
        return windowed_run(x, part(stacked, start, layers), layers - start)
