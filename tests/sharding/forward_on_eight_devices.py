"""Run as a program with XLA_FLAGS=--xla_force_host_platform_device_count=8: the largest relative difference of logits
and vision features between 8 fake devices and one, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from vrjax.loading import abstract_model
from vrjax.models.attention import Visibility, row_attention
from vrjax.models.decoder import DecoderConfig, unsharded
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig, prompt_positions, vision_inputs
from vrjax.sharding import Sharder, make_mesh, parameter_shardings, rollout_rules, update_rules

text = DecoderConfig(
    vocabulary=200, width=64, layers=3, heads=4, kv_heads=2, head_size=16, mlp=96, norm_eps=1e-6, rope_theta=1e6,
    tied=False, qkv_bias=True, max_positions=4096, sections=(2, 3, 3),
)  # fmt: skip
vision = VisionConfig(
    layers=4, width=32, heads=2, mlp=48, out_width=64, full_layers=(1, 3), window=4, tokens_per_second=2
)
config = Qwen2_5VLConfig(text, vision, 190, 191, 192, 193)
graph, shapes = abstract_model(config)
rng = np.random.default_rng(0)
# Weights of unit gain, biases and norms random: every part of the model reaches the logits.
params = jax.tree.map(
    lambda s: jnp.asarray(rng.normal(size=s.shape) * (s.shape[-1] ** -0.5 if s.shape[-1] > 4 else 1), jnp.float32),
    shapes,
)
grid, count = (4, 10, 12), 30
patches = rng.integers(0, 256, (4 * 120, 1176), dtype=np.uint8)
inputs, places = vision_inputs([patches, patches[::-1]], [grid, grid], config.vision)
ids = np.array([[5, 6, 192, *[191] * (4 * count), 193, 7, 8, 9]] * 4)
ids[:, -2:] = rng.integers(0, 100, (4, 2))
positions = np.stack([prompt_positions(row, [grid], [1.0], config)[0] for row in ids], 1)
index = np.full(ids.shape, -1)
index[:, 3 : 3 + 4 * count] = np.stack([places[0], places[1], places[0], places[1]])


def forward(params, ids, positions, inputs, index, shard):
    model = nnx.merge(graph, params)
    features = model.encode(inputs, shard=shard)
    x = shard(model.embed(ids, features, index), ("batch", "length", None))
    visible = Visibility(jnp.ones_like(ids), jnp.zeros_like(ids))
    hidden, _ = model.text.run(
        x, model.text.tables(positions), lambda q, k, v, memory: (row_attention(q, k, v, visible), None), shard=shard
    )
    return features, model.text.logits(hidden)


run = jax.jit(forward, static_argnames="shard")
expected = jax.device_get(run(params, ids, positions, inputs, index, unsharded))
report = {"devices": len(jax.devices())}
for name, rules in (("update", update_rules()), ("rollout", rollout_rules())):
    mesh = make_mesh(data=2, fsdp=2, tensor=2)
    placed = jax.device_put(params, parameter_shardings(params, mesh, rules, config))
    found = jax.device_get(run(placed, ids, positions, inputs, index, Sharder(mesh, rules)))
    gate = placed["text"]["layers"]["gate"].get_value()
    report[name] = {
        "share_of_gate": gate.addressable_shards[0].data.size / gate.size,
        "vision": float(np.abs(found[0] - expected[0]).max() / np.abs(expected[0]).max()),
        "logits": float(np.abs(found[1] - expected[1]).max() / expected[1].std()),
    }

mesh, rules = make_mesh(data=2, fsdp=2, tensor=2), update_rules()
shard = Sharder(mesh, rules)
constrain = jax.jit(lambda x: shard(x, ("batch", "length", "mlp")))
report["activations"] = {
    str(shape): constrain(jnp.zeros(shape)).addressable_shards[0].data.shape
    for shape in ((8, 8, 6), (6, 8, 6), (1, 8, 5))
}
print(json.dumps(report))
