"""Run as a program with XLA_FLAGS=--xla_force_host_platform_device_count=4: log-probs and gradients of a row of 32,768
tokens, its tokens cut over four devices, against one device, and the memory that each device needs, as JSON."""

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

LENGTH, BRANCH, TARGETS = 32_768, 128, 256
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
trunk = LENGTH - 2 * BRANCH
branch = np.repeat([0, 1, 2], [trunk, BRANCH, BRANCH])
place = np.concatenate([np.arange(trunk), *[trunk + np.arange(BRANCH)] * 2])
row = PackedText(
    tokens=rng.integers(0, 500, (1, LENGTH)).astype(np.int32),
    positions=np.broadcast_to(place, (1, 3, LENGTH)).astype(np.int32),
    segment=np.ones((1, LENGTH), np.int32),
    branch=branch[None].astype(np.int32),
    feature_index=np.full((1, LENGTH), -1, np.int32),
    target_at=np.concatenate([[trunk - 1], trunk + np.arange(TARGETS - 1)])[None].astype(np.int32),
    targets=rng.integers(0, 500, (1, TARGETS)).astype(np.int32),
    weights=np.ones((1, TARGETS), np.float32),
)


def run(parts: int):
    mesh = make_mesh(1, 1, parts, 1, jax.devices()[:parts])
    attention = make_row_attention(mesh, update_rules(), text)
    options = ForwardOptions(shard=Sharder(mesh, update_rules()), attention=attention, pick=attention.pick)

    def loss(params, row):
        model = nnx.merge(graph, params)
        hidden = target_hidden(model, row, None, options, Reach(trunk, BRANCH))
        log_probs, _ = token_log_probs(hidden, model.text.head_weight(), row.targets, shard=options.shard)
        return log_probs.mean(), log_probs

    placed = jax.device_put(params, parameter_shardings(params, mesh, update_rules(), config))
    rows = jax.device_put(row, NamedSharding(mesh, PartitionSpec()))
    program = jax.jit(jax.grad(loss, has_aux=True)).lower(placed, rows).compile()
    start = time.perf_counter()
    gradients, log_probs = jax.device_get(program(placed, rows))
    memory = program.memory_analysis().temp_size_in_bytes
    return log_probs, jax.tree.leaves(gradients["text"]), memory, time.perf_counter() - start


one, four = run(1), run(4)
report = {
    "log_probs": float(np.abs(one[0] - four[0]).max()),
    "spread": float(one[0].std()),
    "gradients": max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(one[1], four[1], strict=True)),
    "megabytes": [one[2] / 2**20, four[2] / 2**20],
    "seconds": [one[3], four[3]],
}
print(json.dumps(report))
