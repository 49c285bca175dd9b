"""Run as a program with XLA_FLAGS=--xla_force_host_platform_device_count=4 and a folder: a Qwen2.5-VL, loaded from it,
on data 2 x tensor 2 and on one device, asked for samples, beams and readings; as JSON."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from flax import nnx

import vrjax
from data_tools.shapes.tokenizer import build_tokenizer
from tests.training.shapes_run import tiny_model
from vrjax.commands.devices import Devices
from vrjax.generation import BeamOptions, ChatTokenizer, Engine, EngineOptions, Request, SamplingOptions
from vrjax.generation.continuations import Continuations
from vrjax.generation.prompts import Vision, build_prompt
from vrjax.loading import LoadedModel
from vrjax.models.qwen2_5_vl import Qwen2_5VL

folder = Path(sys.argv[1])
questions = ["What does the red circle do ?", "Which comes first ?", "What stops ?"]
build_tokenizer(questions, folder / "tokenizer")
chat = ChatTokenizer.load(folder / "tokenizer")
config = tiny_model(folder / "tokenizer", width=64, layers=2)
config = replace(config, text=replace(config.text, tied=False))
graph, params = nnx.split(Qwen2_5VL(config, nnx.Rngs(0)))
keys = iter(jax.random.split(jax.random.key(1), 200))
params = jax.tree.map(lambda x: x + 0.15 * jax.random.normal(next(keys), x.shape), params)
vrjax.save(LoadedModel(config, graph, params, chat), folder / "model")


def video(seed: int, grid: tuple[int, int, int]) -> Vision:
    pixels = np.random.default_rng(seed).integers(0, 256, (int(np.prod(grid)), config.vision.patch_values))
    return Vision(pixels.astype(np.uint8), grid, 1.0, f"video {seed}")


prompts = [
    build_prompt(chat, config, questions[0], [video(1, (3, 4, 6))], name="one"),
    build_prompt(chat, config, questions[1], [video(2, (1, 4, 4)), video(3, (2, 6, 4))], name="two"),
    build_prompt(chat, config, questions[2], [], name="text"),
]
asked = [Continuations(prompt, ((30, 31, 32), (40,))) for prompt in prompts]


def run(devices: Devices) -> dict:
    model = devices.load(folder / "model")
    leaf = model.params["text"]["layers"]["gate"].get_value()
    found: dict = {"devices": len(leaf.sharding.device_set), "share": leaf.addressable_shards[0].data.size / leaf.size}
    for name, prefix_bytes in (("", 0), (" of kept prefixes", 1 << 20)):
        engine = Engine(model, EngineOptions(prefix_cache_bytes=prefix_bytes))
        requests = [Request(prompt=prompt, samples=4, keep=True) for prompt in prompts]
        for _ in range(2 if prefix_bytes else 1):  # the second time from what the first has left
            samples = engine.generate(requests, SamplingOptions(max_tokens=12, temperature=0.8))
        found[f"samples{name}"] = [one.tokens.tolist() for drawn in samples for one in drawn]
        found[f"log_probs{name}"] = [one.raw_log_probs.tolist() for drawn in samples for one in drawn]
    beams = engine.beam_search(prompts, BeamOptions(beams=3, max_tokens=8))
    found["beams"] = [beam.tokens.tolist() for some in beams for beam in some]
    found["scores"] = [beam.score for some in beams for beam in some]
    found["readings"] = [one.log_probs.tolist() for some in engine.read(asked, log_probs=True) for one in some]
    return found


print(json.dumps({"alone": run(Devices()), "together": run(Devices(data=2, tensor=2))}))
