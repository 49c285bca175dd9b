"""One GRPO step (rollout and update) beside the same step of other tools: same weights, float32, taken in turn.

    python -m experiments.benchmarks.grpo_step [--json FILE] [--runs 3] [--rows video,text]
        [--trl-python /venv/bin/python] [--tunix-python /venv/bin/python] [--table]

The model is that of experiments.benchmarks.generation; G = 8 responses of exactly C = 64 tokens, temperature 1, β = 0,
AdamW on the language model behind a clip by the global norm, the vision tower frozen. No side keeps anything from one
step to the next.

`video_step_vs_transformers`: a prompt of 1,090 tokens, 1,024 of them video; the peer as the video-RL repositories write
it. `video_step_vs_lean_transformers`: the peer as well as transformers allows (grpo_peers.transformers_step).
`text_step_vs_trl`, `text_step_vs_tunix`: 1,024 tokens of text; each peer in a process of its own, at the fastest of the
attention and thread settings that it has (tried once each), left out where its interpreter is not given. `--table`: our
step for other prompts and groups, beside the unshared form of our own code (one row a response; samples as requests of
their own; vision once, as in ours).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import generation
from experiments.benchmarks.generation import load_peer, machine_bounds, peer_inputs
from experiments.benchmarks.grpo_peers.process import PeerProcess
from experiments.benchmarks.grpo_peers.text_model import write_text_model
from experiments.benchmarks.grpo_peers.transformers_step import TransformersStep
from experiments.benchmarks.grpo_peers.vrjax_step import PolicyStep, StepOptions
from experiments.benchmarks.rows import Row, in_turn, run_benchmark
from vrjax.generation.prompts import Prompt, Vision, build_prompt
from vrjax.loading import LoadedModel

GROUP, TOKENS, TEXT_PROMPT = 8, 64, 1024
TABLE_PROMPTS, TABLE_GROUPS = (1090, 4096), (4, 8, 16)
# Above this many tokens in the rows of an update, layers are recomputed, and rows go in parts: memory is short.
KEPT_TOKENS, ROWS_AT_ONCE = 12_000, 4


@dataclass(frozen=True)
class Machine:
    flops_rate: float
    read_rate: float

    def __str__(self) -> str:
        return f"machine: matmul {self.flops_rate / 1e9:.0f} GFLOP/s, reads {self.read_rate / 1e9:.1f} GB/s"


def text_prompt(model: LoadedModel) -> tuple[Prompt, str]:
    """A prompt of TEXT_PROMPT words, drawn once, and its text; no chat marks, so that all sides read the same ids."""
    chat = model.chat
    numbers = np.random.default_rng(0).integers(0, model.config.text.vocabulary - 100, TEXT_PROMPT)
    text = " ".join(f"w{number}" for number in numbers)
    tokens = np.asarray(chat.encode(text), np.int32)
    assert len(tokens) == TEXT_PROMPT
    positions = np.broadcast_to(np.arange(TEXT_PROMPT, dtype=np.int32), (3, TEXT_PROMPT))
    return Prompt(tokens, positions, TEXT_PROMPT, trunk=TEXT_PROMPT, name="text"), text


def video_prompt(model: LoadedModel, length: int) -> Prompt:
    """A prompt of `length` tokens, about 64 of them text."""
    frames = (length - 64) // 64
    grid = (frames, 16, 16)
    patches = np.random.default_rng(0).integers(
        0, 256, (int(np.prod(grid)), model.config.vision.patch_values), np.uint8
    )
    video = Vision(patches, grid, 1.0, "video")
    empty = len(build_prompt(model.chat, model.config, "w1", [video]))
    prompt = build_prompt(model.chat, model.config, " ".join(["w1"] * (length - empty + 1)), [video], name="benchmark")
    assert len(prompt) == length
    return prompt


def described(step: PolicyStep, machine: Machine, theirs: str = "") -> str:
    """Split of the step, bound, and compile time, for a row's note."""
    rollout, update = split(step.taken)
    bound = step.bound(machine.flops_rate, machine.read_rate)
    times = (rollout + update) / sum(bound)
    return (
        f"ours {rollout:.2f} s rollout + {update:.2f} s update{theirs}; {times:.1f} times the bound of "
        f"{bound[0]:.2f} + {bound[1]:.2f} s; compiling {step.compile_s:.1f} s; {machine}"
    )


def split(taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Medians of (rollout, update), the first step (warm-up) left out."""
    rollouts, updates = zip(*taken[1:], strict=True)
    return statistics.median(rollouts), statistics.median(updates)


def seconds(side: Callable[[], object]) -> float:
    start = time.perf_counter()
    side()
    return time.perf_counter() - start


def tried(found: dict[str, float]) -> str:
    return "peer's settings tried: " + ", ".join(f"{name} {taken:.1f} s" for name, taken in found.items())


def video_rows(runs: int, machine: Machine) -> list[Row]:
    engine, prompt = generation.build()
    model = LoadedModel(engine.config, engine.graph, engine.params, engine.chat)
    step = PolicyStep(model, prompt, StepOptions(GROUP, TOKENS))
    with tempfile.TemporaryDirectory() as folder:
        inputs = peer_inputs(engine, prompt, GROUP)

        def peer_of(attention: str, lean: bool, name: str) -> TransformersStep:
            return TransformersStep(load_peer(engine, Path(folder) / name), inputs, TOKENS, attention, lean)

        tries = {attention: seconds(peer_of(attention, True, attention).run) for attention in ("sdpa", "eager")}
        best = min(tries, key=lambda name: tries[name])
        peers = [peer_of(best, False, "usual"), peer_of(best, True, "lean")]
    del engine
    ours_s, *theirs = in_turn([step.run, *(peer.run for peer in peers)], runs)
    names = {
        "video_step_vs_transformers": "transformers and torch as video-RL repositories use them",
        "video_step_vs_lean_transformers": "transformers and torch, logits of responses only, nothing recomputed",
    }
    memory, rows = peak_memory_mb(), []
    for (row, name), peer, peer_s in zip(names.items(), peers, theirs, strict=True):
        rollout, update = split(peer.taken)
        note = described(step, machine, f", peer {rollout:.1f} + {update:.1f} s ({peer.attention}; {tried(tries)})")
        rows.append(Row(row, ours_s, name, peer_s, peer_s / ours_s, memory, note))
    return rows


def text_rows(options: argparse.Namespace, machine: Machine) -> list[Row]:
    engine, _ = generation.build()
    model = LoadedModel(engine.config, engine.graph, engine.params, engine.chat)
    prompt, text = text_prompt(model)
    step = PolicyStep(model, prompt, StepOptions(GROUP, TOKENS))
    sizes = ["--group", str(GROUP), "--tokens", str(TOKENS)]
    cores = len(os.sched_getaffinity(0))
    found = {}
    for peer, python in (("trl", options.trl_python), ("tunix", options.tunix_python)):
        if python is None:
            print(f"text_step_vs_{peer}: left out, --{peer}-python was not given.", file=sys.stderr)
        else:
            found[peer] = python
    if not found:
        return []

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        directory, file = Path(folder) / "text", Path(folder) / "prompt.txt"
        write_text_model(load_peer(engine, Path(folder) / "whole"), model.config.text, model.chat, directory)
        file.write_text(text, encoding="utf-8")
        del engine
        processes, notes = {}, {}
        for peer, python in found.items():
            settings = {"all cores": []}
            if peer == "trl":
                settings = {
                    f"{attention}, {threads} threads": ["--attention", attention, "--threads", str(threads)]
                    for attention, threads in dict.fromkeys([("sdpa", cores), ("eager", cores), ("sdpa", 1)])
                }

            def started(arguments: list[str], peer: str = peer, python: str = python) -> PeerProcess:
                return PeerProcess(python, f"{peer}_step.py", [str(directory), str(file), *sizes, *arguments])

            tries = {}
            if len(settings) > 1:
                for name, arguments in settings.items():
                    with started(arguments) as process:
                        process.step()  # warm-up
                        tries[name] = seconds(process.step)
            best = min(tries, key=lambda name: tries[name]) if tries else "all cores"
            notes[peer] = f" ({best}; {tried(tries)})" if tries else f" ({best})"
            processes[peer] = stack.enter_context(started(settings[best]))
        ours_s, *theirs = in_turn([step.run, *(process.step for process in processes.values())], options.runs)
    memory = peak_memory_mb("--text")
    names = {"trl": "TRL GRPOTrainer", "tunix": "google-tunix GRPOLearner"}
    return [
        Row(
            f"text_step_vs_{peer}", ours_s, names[peer] + notes[peer], peer_s, peer_s / ours_s, memory,
            described(step, machine),
        )
        for peer, peer_s in zip(processes, theirs, strict=True)
    ]  # fmt: skip


def table(cells: Sequence[tuple[int, int]], runs: int, machine: Machine) -> list[Row]:
    """Our step and the unshared form of our own code for each (prompt, group); the peer of a row is that form."""
    engine, _ = generation.build()
    config = replace(engine.config, text=replace(engine.config.text, max_positions=8192))
    model = with_config(config, engine.params, engine.chat)
    del engine
    rows = []
    for length in dict.fromkeys(length for length, _ in cells):
        prompt = video_prompt(model, length)
        for group in (group for of, group in cells if of == length):
            long = group * (length + TOKENS) > KEPT_TOKENS
            shared = StepOptions(group, TOKENS, remat=long)
            parts = group // ROWS_AT_ONCE if long else 1
            steps = [
                PolicyStep(model, prompt, shared),
                PolicyStep(model, prompt, replace(shared, shared=False, micro_batches=parts)),
            ]
            ours_s, plain_s = in_turn([step.run for step in steps], runs)
            rollout, update = split(steps[1].taken)
            note = described(steps[0], machine, f", unshared {rollout:.2f} + {update:.2f} s")
            note += f"; both with layers recomputed, unshared in {parts} parts" if long else ""
            name = f"step_p{length}_g{group}"
            rows.append(Row(name, ours_s, "ours, unshared", plain_s, plain_s / ours_s, process_peak_mb(), note))
            print(f"{name}: {ours_s:.2f} s, unshared {plain_s:.2f} s; {note}", file=sys.stderr)
    return rows


def cell(text: str) -> tuple[int, int]:
    """Tokens of the prompt and size of the group, of "4096,16"."""
    length, group = text.split(",")
    return int(length), int(group)


def with_config(config: Any, params: Any, chat: Any) -> LoadedModel:
    from vrjax.loading import abstract_model

    return LoadedModel(config, abstract_model(config)[0], params, chat)


def measure(options: argparse.Namespace) -> list[Row]:
    machine = Machine(*machine_bounds())
    if options.table is not None:
        every = list(itertools.product(TABLE_PROMPTS, TABLE_GROUPS))
        return table(options.table or every, options.runs, machine)
    chosen = options.rows.split(",")
    rows = video_rows(options.runs, machine) if "video" in chosen else []
    return rows + (text_rows(options, machine) if "text" in chosen else [])


def process_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_memory_mb(*flags: str) -> float:
    """Peak resident memory of a process that does nothing but two of our steps."""
    command = [sys.executable, "-m", "experiments.benchmarks.grpo_step", "--memory-only", *flags]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def main() -> int:
    if "--memory-only" in sys.argv:
        engine, prompt = generation.build()
        model = LoadedModel(engine.config, engine.graph, engine.params, engine.chat)
        step = PolicyStep(model, text_prompt(model)[0] if "--text" in sys.argv else prompt, StepOptions(GROUP, TOKENS))
        del engine
        step.run()
        step.run()
        print(process_peak_mb())
        return 0

    def extra(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", default="video,text", help="which rows: video, text, or both (default)")
        parser.add_argument("--trl-python", help="an interpreter that has TRL")
        parser.add_argument("--tunix-python", help="an interpreter that has google-tunix")
        parser.add_argument(
            "--table", nargs="*", type=cell, metavar="P,G",
            help="our own step for these prompts and groups instead (default: 1,090 and 4,096; 4, 8 and 16)",
        )  # fmt: skip

    return run_benchmark(__doc__, measure, runs=3, extra=extra)


if __name__ == "__main__":
    raise SystemExit(main())
