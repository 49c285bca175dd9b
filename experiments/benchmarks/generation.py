"""Generation beside transformers' `generate`: the same weights, the same video prompt, float32, runs taken in turn.

    python -m experiments.benchmarks.generation [--json FILE] [--runs 5]

Model: text 512 wide, 8 layers, 8 heads, 2 kv, mlp 1408, vocabulary 8192; vision 8 layers, 256 wide, full blocks 3
and 7. Prompt: 1,090 tokens, 1,024 of them video. Both sides emit exactly 64 tokens. `rollout_g8`: 8 samples, vision
and prefill included. `decode_b1`: one sequence, decoding alone (a run of 64 tokens less a run of 1). The notes hold
what the machine itself allows: its matmul rate and read bandwidth, measured in the same run.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import patches
from experiments.benchmarks.rows import Row, in_turn, run_benchmark
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import ChatTokenizer, Prompt, Vision, build_prompt
from vrjax.generation.requests import Request
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import LoadedModel
from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig, VisionConfig

GRID = (16, 16, 16)
SAMPLES, TOKENS, PROMPT = 8, 64, 1090


def word_chat(size: int) -> ChatTokenizer:
    """A tokenizer of `size` made-up words with Qwen's chat marks."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
             "<|video_pad|>", "<unk>"]  # fmt: skip
    words = [*marks, *(f"w{number}" for number in range(size - len(marks)))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    return ChatTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>"))


def build() -> tuple[Engine, Prompt]:
    """The benchmark's model with random weights, and its prompt."""
    from flax import nnx

    chat = word_chat(8192)
    ids = chat.tokenizer.get_vocab()
    config = Qwen2_5VLConfig(
        text=DecoderConfig(
            vocabulary=8192, width=512, layers=8, heads=8, kv_heads=2, head_size=64, mlp=1408, norm_eps=1e-6,
            rope_theta=1e6, tied=False, qkv_bias=True, max_positions=4096, sections=(8, 12, 12),
        ),
        vision=VisionConfig(
            layers=8, width=256, heads=4, mlp=704, out_width=512, full_layers=(3, 7), window=4, tokens_per_second=2
        ),
        image_token=ids["<|image_pad|>"],
        video_token=ids["<|video_pad|>"],
        vision_start_token=ids["<|vision_start|>"],
        vision_end_token=ids["<|vision_end|>"],
    )  # fmt: skip
    engine = Engine(LoadedModel(config, *nnx.split(Qwen2_5VL(config, nnx.Rngs(0))), chat))
    pixels = np.random.default_rng(0).integers(0, 256, (int(np.prod(GRID)), config.vision.patch_values), np.uint8)
    video = Vision(pixels, GRID, 1.0, "video")
    empty = len(build_prompt(chat, config, "w1", [video]))
    prompt = build_prompt(chat, config, " ".join(["w1"] * (PROMPT - empty + 1)), [video], name="benchmark")
    assert len(prompt) == PROMPT
    return engine, prompt


def load_peer(engine: Engine, directory: Path) -> Any:
    """transformers' model with the engine's weights."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    from vrjax.loading import LoadedModel, save

    save(LoadedModel(engine.config, engine.graph, engine.params, engine.chat), directory)
    return Qwen2_5_VLForConditionalGeneration.from_pretrained(directory).eval()


def peer_inputs(engine: Engine, prompt: Prompt, rows: int) -> dict[str, Any]:
    """The prompt as transformers reads it, repeated `rows` times; pixels are normalised beforehand."""
    import jax.numpy as jnp
    import torch

    from vrjax.models.qwen2_5_vl.vision import normalize_pixels

    tokens = torch.tensor(np.asarray(prompt.tokens, np.int64))[None].repeat(rows, 1)
    pixels = np.asarray(
        normalize_pixels(jnp.asarray(prompt.vision[0].patches[None]), engine.config.vision, np.float32)
    )[0]
    return {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "mm_token_type_ids": 2 * (tokens == engine.config.video_token).long(),
        "pixel_values_videos": torch.tensor(pixels).repeat(rows, 1),
        "video_grid_thw": torch.tensor([GRID]).repeat(rows, 1),
        "second_per_grid_ts": torch.ones(rows),
    }


def peer_generate(model: Any, inputs: dict[str, Any], tokens: int) -> int:
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        out = model.generate(
            **inputs, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, min_new_tokens=tokens, max_new_tokens=tokens
        )
    new = out.shape[1] - inputs["input_ids"].shape[1]
    assert new == tokens, new
    return new


def ours_generate(engine: Engine, prompt: Prompt, samples: int, tokens: int) -> None:
    """Samples with nothing kept from earlier runs."""
    engine.forget_features()
    options = SamplingOptions(max_tokens=tokens, min_tokens=tokens)
    found = engine.generate([Request(prompt=prompt, samples=samples)], options)[0]
    assert [len(sample.tokens) for sample in found] == [tokens] * samples


def machine_bounds() -> tuple[float, float]:
    """Multiply-adds as FLOP/s of a large float32 matmul, and bytes/s of a matrix read once (matrix times vector)."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda x, y: x @ y)
    wide, vector = jnp.ones((16384, 2048)), jnp.ones((2048,))
    read = jax.jit(lambda m, v: m @ v)

    def best(run: Any) -> float:
        taken = []
        for _ in range(6):
            start = time.perf_counter()
            jax.block_until_ready(run())
            taken.append(time.perf_counter() - start)
        return min(taken[1:])

    return 2 * 2048**3 / best(lambda: product(a, a)), wide.nbytes / best(lambda: read(wide, vector))


def work(engine: Engine, samples: int, tokens: int) -> tuple[float, float]:
    """(FLOPs of vision and prefill, seconds-independent bytes of one decode step): what no implementation avoids."""
    text, vision = engine.config.text, engine.config.vision
    layer = text.width * (2 * text.heads + 2 * text.kv_heads) * text.head_size + 3 * text.width * text.mlp
    block = 4 * vision.width**2 + 3 * vision.width * vision.mlp
    unit = vision.merge_size**2
    merger = (unit * vision.width) ** 2 + unit * vision.width * vision.out_width
    patches_count = int(np.prod(GRID))
    prefill = 2 * text.layers * layer * PROMPT + 2 * text.layers * text.heads * text.head_size * PROMPT**2
    tower = 2 * patches_count * (vision.layers * block + vision.width * vision.patch_values + merger / unit)
    weights = 4 * (text.layers * layer + text.vocabulary * text.width)
    cache = 8 * text.layers * text.kv_heads * text.head_size * (PROMPT + samples * tokens / 2)
    return prefill + tower, weights + cache


def measure(options: argparse.Namespace) -> list[Row]:
    engine, prompt = build()
    flops_rate, read_rate = machine_bounds()
    with tempfile.TemporaryDirectory() as folder:
        model = load_peer(engine, Path(folder) / "model")
        eight, one = peer_inputs(engine, prompt, SAMPLES), peer_inputs(engine, prompt, 1)
        start = time.perf_counter()
        ours_generate(engine, prompt, SAMPLES, TOKENS)
        first = time.perf_counter() - start
        ours_s, peer_s = in_turn(
            [lambda: ours_generate(engine, prompt, SAMPLES, TOKENS), lambda: peer_generate(model, eight, TOKENS)],
            options.runs,
        )
        long, short, peer_long, peer_short = in_turn(
            [
                lambda: ours_generate(engine, prompt, 1, TOKENS),
                lambda: ours_generate(engine, prompt, 1, 1),
                lambda: peer_generate(model, one, TOKENS),
                lambda: peer_generate(model, one, 1),
            ],
            options.runs,
        )
    compiling = sum(entry.seconds for entry in engine.ledger.entries)
    before, step = work(engine, SAMPLES, TOKENS)
    bound = before / flops_rate + (TOKENS - 1) * step / read_rate
    bound_b1 = (TOKENS - 1) * work(engine, 1, TOKENS)[1] / read_rate
    memory = peak_memory_mb()
    machine = f"machine: matmul {flops_rate / 1e9:.0f} GFLOP/s, reads {read_rate / 1e9:.1f} GB/s"
    peer = "transformers generate, prompt repeated"
    return [
        Row(
            "rollout_g8_vs_transformers", ours_s, peer, peer_s, peer_s / ours_s, memory,
            f"{ours_s / bound:.1f} times the bound of {bound:.2f} s; first call {first:.1f} s; "
            f"compiling all programs {compiling:.1f} s; {machine}",
        ),
        Row(
            "decode_b1_vs_transformers", long - short, "transformers generate", peer_long - peer_short,
            (peer_long - peer_short) / (long - short), memory,
            f"{(long - short) / bound_b1:.1f} times the bound of {bound_b1:.2f} s for 63 steps; {machine}",
        ),
        *(replace(row) for row in patches.measure(options.runs)),
    ]  # fmt: skip


def peak_memory_mb() -> float:
    """Peak resident memory of a process that does nothing but our rollout."""
    command = [sys.executable, "-m", "experiments.benchmarks.generation", "--memory-only"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def main() -> int:
    if "--memory-only" in sys.argv:
        engine, prompt = build()
        ours_generate(engine, prompt, SAMPLES, TOKENS)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return 0
    return run_benchmark(__doc__, measure, runs=5)


if __name__ == "__main__":
    raise SystemExit(main())
