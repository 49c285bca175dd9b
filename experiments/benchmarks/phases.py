"""Phases of a GRPO step on this machine's devices: how far from what they do at best, and memory as planned or not.

Random weights of a published size, made clips, one prompt of about `--prompt` tokens a step, responses of full length.

    python -m experiments.benchmarks.phases                        3B, prompt 4,096, 8 x 512: for one GPU or TPU chip
    python -m experiments.benchmarks.phases --size tiny --prompt 256 --completion 16 --group 2

On accelerators the exit code is 1 where a goal is missed: half of the measured matrix rate in prefill and update, .7 of
the measured bandwidth in decoding, planned memory within 15% of what was used.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
from rich.console import Console
from rich.table import Table

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from experiments.command import run_command
from experiments.shapes_sft import make_tokenizer, model_config
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.published import published_config
from vrjax.planning import make_plan
from vrjax.rewards import Reward, RewardPrompt, RewardRecord
from vrjax.training import CheckpointConfig, DatasetConfig, FreshModel, GrpoConfig, RolloutConfig, grpo
from vrjax.video import FrameOptions

GOALS = {"prefill": ("utilisation", 0.5), "update": ("utilisation", 0.5), "decode": ("bandwidth_utilisation", 0.7)}
MEMORY = 0.15
TEXT = 128  # tokens of the prompt that are no video's, at most
console = Console()


@dataclass(frozen=True)
class Phases:
    """Profile GRPO steps here.

    Examples::

        python -m experiments.benchmarks.phases
        python -m experiments.benchmarks.phases --size tiny --prompt 256 --completion 16 --group 2
    """

    size: Literal["3b", "7b", "tiny"] = "3b"
    """Of the model."""
    prompt: int = 4096
    """Tokens of a prompt, about."""
    group: int = 8
    """Responses to it."""
    completion: int = 512
    """Tokens of each."""
    steps: int = 3
    """To profile, after those that compile."""
    out: Path = Path("runs/phases")
    """Clips and the run; the run before is removed."""
    json: Path | None = None
    """Write the figures to this file."""


def spread_reward(prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
    """Any number that differs between responses."""
    return Reward(zlib.crc32(response.encode()) / 2**32, {})


def sized(options: Phases, vocabulary: dict[str, int]) -> Qwen2_5VLConfig:
    """A published model's sizes with the token ids of the small tokenizer."""
    small = model_config(vocabulary)
    if options.size == "tiny":
        return replace(small, text=replace(small.text, max_positions=8192))
    published = published_config(f"Qwen/Qwen2.5-VL-{options.size.upper()}-Instruct")
    assert published is not None
    return replace(small, text=published.text, vision=published.vision)


def make_config(options: Phases) -> GrpoConfig:
    data, run = options.out / "data", options.out / "run"
    if not (data / "train.json").exists():
        make_dataset(data, DatasetOptions(train=8, val=1, test=1, seed=0), workers=1)
    tokenizer, vocabulary = make_tokenizer(data)
    side = 448 if options.prompt >= 2048 else 112
    per_frame = (side // 28) ** 2  # of two frames, that make a temporal patch
    frames = 2 * max((options.prompt - TEXT) // per_frame, 1)
    return GrpoConfig(
        run_dir=run,
        model=FreshModel(sized(options, vocabulary), tokenizer),
        data=(DatasetConfig(data / "train.json"),),
        reward=spread_reward,
        frames=FrameOptions(frames=frames, min_pixels=side * side, max_pixels=side * side, total_pixels=None),
        instruction="",
        rollout=RolloutConfig(
            prompts=1, group=options.group, max_tokens=options.completion, min_tokens=options.completion, top_p=1.0
        ),
        steps=options.steps + 4,
        max_programs=1,
        checkpoints=CheckpointConfig(save_every=0),
        profile=options.steps,
        tensorboard=False,
    )


def run(options: Phases) -> int:
    shutil.rmtree(options.out / "run", ignore_errors=True)
    config = make_config(options)
    plan = make_plan(config, "here")
    grpo(config)
    content = json.loads((options.out / "run" / "profile" / "phases.json").read_text())
    used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    planned = (plan.peak_gib or 0.0) * 2**30
    rows = judged(content, None if used is None else planned / used)
    show(content, rows, planned, used)
    if options.json is not None:
        options.json.write_text(
            json.dumps({**content, "goals": rows, "planned": planned, "used": used}, indent=1) + "\n"
        )
    asked = jax.default_backend() != "cpu"
    return 1 if asked and not all(row["reached"] for row in rows) else 0


def judged(content: dict[str, Any], memory: float | None) -> list[dict[str, Any]]:
    """Each goal beside what was measured. memory: planned over used, None where the device does not count it."""
    phases = {row["phase"]: row for row in content["phases"]}
    rows = [
        {"goal": f"{phase}: {key}", "asked": least, "measured": phases[phase][key],
         "reached": (phases[phase][key] or 0.0) >= least}
        for phase, (key, least) in GOALS.items()
    ]  # fmt: skip
    if memory is not None:
        reached = abs(memory - 1) <= MEMORY
        rows.append({"goal": "memory: planned over used", "asked": 1.0, "measured": memory, "reached": reached})
    return rows


def show(content: dict[str, Any], rows: list[dict[str, Any]], planned: float, used: int | None) -> None:
    table = Table("goal", "asked", "measured", "reached", title=f"{content['devices']} x {content['device']}")
    for row in rows:
        measured = "" if row["measured"] is None else f"{row['measured']:.2f}"
        table.add_row(row["goal"], f"{row['asked']:g}", measured, "yes" if row["reached"] else "no")
    console.print(table)
    counted = "not counted here" if used is None else f"{used / 2**30:.2f} GiB"
    console.print(f"memory: planned {planned / 2**30:.2f} GiB, used {counted}")


if __name__ == "__main__":
    run_command(Phases, run, "experiments.benchmarks.phases")
