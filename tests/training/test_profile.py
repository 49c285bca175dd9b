"""Profiled runs: what lies in RUN/profile, and that training is the same to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import pytest

from tests.training.finished_run import largest_difference
from tests.training.policy_run import policy_config
from tests.training.shapes_run import tiny_config
from vrjax.loading import load_run
from vrjax.training.config import BatchConfig
from vrjax.training.policy.config import RolloutConfig
from vrjax.training.policy.figures import Work
from vrjax.training.policy_optimisation import grpo
from vrjax.training.supervised import sft

pytestmark = pytest.mark.usefixtures("compiled")


def phases_of(run: Path) -> tuple[dict, dict[str, dict]]:
    content = json.loads((run / "profile" / "phases.json").read_text())
    return content, {row["phase"]: row for row in content["phases"]}


@pytest.mark.slow
def test_supervised(world, tmp_path) -> None:
    batch = BatchConfig(videos=4, questions=2, max_programs=1)
    config = tiny_config(world, tmp_path / "seen", steps=5, batch=batch, profile=2)
    sft(config)
    sft(tiny_config(world, tmp_path / "plain", steps=5, batch=batch))
    assert largest_difference(tmp_path / "seen", tmp_path / "plain") == 0.0
    content, phases = phases_of(tmp_path / "seen")
    assert content["steps"] == 2
    assert list(phases) == ["input", "train"]
    train = phases["train"]
    ledger = json.loads((tmp_path / "seen" / "ledger.jsonl").read_text().splitlines()[0])
    size = dict(part.split("=") for part in ledger["shapes"].removeprefix("RowSize(").rstrip(")").split(", "))
    work = Work(config.model.config)
    patches = 4 * int(size["frames"]) * int(size["frame_patches"])
    tower = work.vision(patches, int(size["frame_patches"]))
    text = work.forward([(int(size["length"]) - int(size["targets"]), [int(size["targets"])])] * 4)
    # Forward and backward are three passes; of the patch embedding, which the formula leaves out, two: pixels want no
    # gradient. The formula takes half of each row's attention, the program some blocks more.
    vision = config.model.config.vision
    embedding = 2 * patches * vision.patch_values * vision.width
    assert train["flops"] == pytest.approx(3 * (tower + text) + 2 * embedding, rel=0.15)
    assert train["flops"] > 2 * 3 * text  # the tower is more than half of it
    assert train["utilisation"] == pytest.approx(
        train["flops"] / train["seconds"] / content["matrix_flops_per_second"] / content["devices"]
    )
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(load_run(tmp_path / "seen")[0].params))
    assert train["bytes"] > 6 * weights  # weights, gradients and both moments are read, all but the gradients written
    assert list((tmp_path / "seen" / "profile").rglob("*.trace.json.gz"))
    assert list((tmp_path / "seen" / "profile").rglob("perfetto_trace.json.gz"))
    assert "| train |" in (tmp_path / "seen" / "profile" / "phases.md").read_text()


@pytest.mark.slow
def test_policy(world, tmp_path) -> None:
    rollout = RolloutConfig(prompts=2, group=2, max_tokens=8, min_tokens=8, top_p=1.0)
    for name, steps in (("seen", 1), ("plain", 0)):
        grpo(policy_config(world, tmp_path / name, steps=6, rollout=rollout, max_programs=1, profile=steps))
    assert largest_difference(tmp_path / "seen", tmp_path / "plain") == 0.0
    content, phases = phases_of(tmp_path / "seen")
    assert content["steps"] == 1
    assert set(phases) == {
        "vision", "prefill", "decode", "other rollout", "reward", "packing", "reference", "update",
    }  # fmt: skip
    for name in ("prefill", "decode", "reference", "update"):
        assert phases[name]["utilisation"] > 0
        assert phases[name]["bytes"] > 0
    # 7 turns of a loop that reads all of the text model's weights each time
    text = sum(leaf.nbytes for leaf in jax.tree.leaves(load_run(tmp_path / "seen")[0].params["text"]))
    assert phases["decode"]["bytes"] > 7 * text
