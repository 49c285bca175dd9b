"""Run as a program with XLA_FLAGS=--xla_force_host_platform_device_count=8: how far a Llama on 8 fake devices is from
one device, in a full pass and in the engine, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np

from tests.checkpoints.test_llama_loading import make_tokenizer
from tests.models.llama_reference import CONFIGS, VOCABULARY, forward
from vrjax.generation import ChatTokenizer, Engine, EngineOptions, Prompt, Request, SamplingOptions
from vrjax.loading import LoadedModel, abstract_model
from vrjax.models.attention import plain_attention
from vrjax.models.decoder import unsharded
from vrjax.sharding import (
    Placement,
    Sharder,
    make_mesh,
    make_row_attention,
    parameter_shardings,
    rollout_rules,
    update_rules,
)

config = CONFIGS["tied, scaled"]
graph, shapes = abstract_model(config)
rng = np.random.default_rng(0)
params = jax.tree.map(
    lambda s: jnp.asarray(rng.normal(size=s.shape) * (s.shape[-1] ** -0.5 if len(s.shape) > 2 else 1), jnp.float32),
    shapes,
)
tokens = rng.integers(0, VOCABULARY, (4, 100)).astype(np.int32)
segment = np.ones_like(tokens)
chat = ChatTokenizer.of(make_tokenizer(), [VOCABULARY - 1])
prompts = [Prompt(row[:20], np.arange(20, dtype=np.int32)[None], 20, name=str(n)) for n, row in enumerate(tokens)]


def run(params, shard, attention=plain_attention):
    from flax import nnx

    call = jax.jit(lambda params, *arrays: forward(nnx.merge(graph, params), *arrays, shard=shard))
    options = EngineOptions(unroll=False)
    engine = Engine(LoadedModel(config, graph, params, chat), options, placement=Placement(shard, attention))
    options = SamplingOptions(max_tokens=16, min_tokens=16, temperature=0)
    samples = engine.generate([Request(prompt=prompt) for prompt in prompts], options)
    drawn = [(sample.tokens.tolist(), sample.raw_log_probs) for (sample,) in samples]
    return jax.device_get(call(params, tokens, segment)), drawn


expected, alone = run(params, unsharded)
report = {"devices": len(jax.devices())}
for name, rules, sizes in (
    ("update", update_rules(), (2, 2, 1, 2)),
    ("rollout", rollout_rules(), (2, 2, 1, 2)),
    ("prompts cut by tokens", rollout_rules(), (2, 2, 2, 1)),
):
    mesh = make_mesh(*sizes)
    placed = jax.device_put(params, parameter_shardings(params, mesh, rules, config))
    logits, drawn = run(placed, Sharder(mesh, rules), make_row_attention(mesh, rules, config.text, jnp.float32))
    weights = {key: placed["text"]["layers"][key].get_value() for key in ("gate", "k")}
    weights["embedding"] = placed["text"]["embedding"].get_value()
    report[name] = {
        "shares": {key: array.addressable_shards[0].data.size / array.size for key, array in weights.items()},
        "logits": float(np.abs(logits - expected).max() / expected.std()),
        "same_tokens": [tokens for tokens, _ in drawn] == [tokens for tokens, _ in alone],
        "log_probs": float(max(np.abs(a - b).max() for (_, a), (_, b) in zip(drawn, alone, strict=True))),
    }
print(json.dumps(report))
