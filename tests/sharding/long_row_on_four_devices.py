"""Run as a program with XLA_FLAGS=--xla_force_host_platform_device_count=4: a row of 32,768 tokens, cut over four
devices, against one: log-probs, and the memory that gradients need on each (compiled, not run); gradients of a row of
4,096 tokens. As JSON."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from vrjax.loading import abstract_model
from vrjax.models.attention import Reach
from vrjax.models.decoder import DecoderConfig
from vrjax.models.log_probs import token_log_probs
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig
from vrjax.sharding import Sharder, make_mesh, make_row_attention, parameter_shardings, update_rules
from vrjax.training.forward import ForwardOptions, target_hidden
from vrjax.training.rows import PackedText

LONG, SHORT, BRANCH, TARGETS = 32_768, 4_096, 128, 256
text = DecoderConfig(
    vocabulary=512, width=64, layers=2, heads=4, kv_heads=2, head_size=16, mlp=352, norm_eps=1e-6, rope_theta=1e6,
    tied=False, qkv_bias=True, max_positions=65_536, sections=(2, 3, 3),
)  # fmt: skip
vision = VisionConfig(layers=1, width=64, heads=2, mlp=64, out_width=64, full_layers=(), window=4, tokens_per_second=2)
config = Qwen2_5VLConfig(text, vision, 500, 501, 502, 503)
graph, shapes = abstract_model(config)
rng = np.random.default_rng(0)
params = jax.tree.map(
    lambda s: jnp.asarray(rng.normal(size=s.shape) * (s.shape[-1] ** -0.5 if len(s.shape) > 1 else 1), jnp.float32),
    shapes,
)


def row_of(length: int) -> tuple[PackedText, Reach]:
    """A trunk and two branches, of which all tokens are predicted."""
    trunk = length - 2 * BRANCH
    place = np.concatenate([np.arange(trunk), *[trunk + np.arange(BRANCH)] * 2])
    row = PackedText(
        tokens=rng.integers(0, 500, (1, length)).astype(np.int32),
        positions=np.broadcast_to(place, (1, 3, length)).astype(np.int32),
        segment=np.ones((1, length), np.int32),
        branch=np.repeat([0, 1, 2], [trunk, BRANCH, BRANCH])[None].astype(np.int32),
        feature_index=np.full((1, length), -1, np.int32),
        target_at=np.concatenate([[trunk - 1], trunk + np.arange(TARGETS - 1)])[None].astype(np.int32),
        targets=rng.integers(0, 500, (1, TARGETS)).astype(np.int32),
        weights=np.ones((1, TARGETS), np.float32),
    )
    return row, Reach(trunk, BRANCH)


def measure(parts: int, long: tuple[PackedText, Reach], short: tuple[PackedText, Reach]):
    mesh = make_mesh(1, 1, parts, 1, jax.devices()[:parts])
    attention = make_row_attention(mesh, update_rules(), text, jnp.float32)
    options = ForwardOptions(shard=Sharder(mesh, update_rules()), attention=attention, pick=attention.pick)
    placed = jax.device_put(params, parameter_shardings(params, mesh, update_rules(), config))

    def log_probs(params, row, reach):
        model = nnx.merge(graph, params)
        hidden = target_hidden(model, row, None, options, reach)
        return token_log_probs(hidden, model.text.head_weight(), row.targets, shard=options.shard)[0]

    def on_devices(row):
        return jax.device_put(row, NamedSharding(mesh, PartitionSpec()))

    start = time.perf_counter()
    found = jax.device_get(jax.jit(lambda p, row: log_probs(p, row, long[1]))(placed, on_devices(long[0])))
    seconds = time.perf_counter() - start

    def gradients(reach):
        return jax.jit(jax.grad(lambda p, row: log_probs(p, row, reach).mean()))

    memory = gradients(long[1]).lower(placed, on_devices(long[0])).compile().memory_analysis()
    assert memory is not None
    of_short = jax.device_get(gradients(short[1])(placed, on_devices(short[0])))
    return found, jax.tree.leaves(of_short["text"]), memory.temp_size_in_bytes, seconds


long, short = row_of(LONG), row_of(SHORT)
one, four = measure(1, long, short), measure(4, long, short)
report = {
    "log_probs": float(np.abs(one[0] - four[0]).max()),
    "spread": float(one[0].std()),
    "gradients": max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(one[1], four[1], strict=True)),
    "megabytes": [one[2] / 2**20, four[2] / 2**20],
    "seconds": [one[3], four[3]],
}
print(json.dumps(report))
