"""With warm_up the ledger is full before the first step, and stays as it was."""

from __future__ import annotations

import json
import threading
from itertools import product
from pathlib import Path

import pytest

from tests.training.policy_run import colours_reward, policy_config
from tests.training.shapes_run import tiny_config
from vrjax.training.config import DatasetConfig
from vrjax.training.policy.config import RolloutConfig
from vrjax.training.policy_optimisation import grpo
from vrjax.training.supervised import sft

pytestmark = pytest.mark.usefixtures("compiled")


def compiled_so_far(run: Path) -> list[str]:
    return (run / "ledger.jsonl").read_text().splitlines()


def test_supervised(world, tmp_path) -> None:
    first: list[str] = []

    def evaluate(model, step: int, folder: Path) -> dict[str, float]:
        if not first:
            first.extend(compiled_so_far(folder))
        return {}

    held_out = (DatasetConfig(world / "clips" / "val.json"),)
    config = tiny_config(world, tmp_path / "run", steps=5, validation=held_out, validate_every=1, evaluate=evaluate,
                         warm_up=True, recompilation="stop")  # fmt: skip
    sft(config)
    rows = [json.loads(line) for line in first]
    shapes = {row["shapes"] for row in rows}
    assert {(row["program"], row["shapes"]) for row in rows} == set(product(("train", "validate"), shapes))
    assert compiled_so_far(tmp_path / "run") == first


def test_policy(world, tmp_path) -> None:
    """The first reward is asked for in the first rollout; the update has not been run then."""
    first: list[str] = []
    alone = threading.Lock()

    def reward(prompt, response, record):
        with alone:  # rewards are asked for side by side
            if not first:
                first.extend(compiled_so_far(tmp_path / "run"))
        return colours_reward(prompt, response, record)

    rollout = RolloutConfig(prompts=4, group=2, max_tokens=8, top_p=1.0)
    grpo(policy_config(world, tmp_path / "run", reward=reward, rollout=rollout, steps=3, warm_up=True, max_programs=1,
                       recompilation="stop"))  # fmt: skip
    assert sum('"update"' in line for line in first) == 1  # 16 predicted tokens at most: one level
    assert compiled_so_far(tmp_path / "run") == first
