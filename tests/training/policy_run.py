"""A tiny policy run on a few clips of coloured shapes, for these tests and their subprocesses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.training.shapes_run import FRAMES, tiny_model
from vrjax.rewards import Reward, RewardPrompt, RewardRecord
from vrjax.training.config import CheckpointConfig, DatasetConfig, FreshModel, InputConfig
from vrjax.training.policy.config import GrpoConfig, RolloutConfig
from vrjax.training.policy_loss import PolicyLossConfig
from vrjax.training.state import OptimizerConfig


def colours_reward(prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
    """How many of the first 16 words are colours: what a random model can learn in a few steps."""
    words = response.split()[:16]
    share = sum(word in ("red", "green", "blue", "yellow") for word in words) / 16
    return Reward(share, {"colours": share, "words": float(len(words))})


def policy_config(world: Path, run_dir: Path, **changes: Any) -> GrpoConfig:
    config = GrpoConfig(
        run_dir=run_dir,
        model=FreshModel(tiny_model(world / "tokenizer"), world / "tokenizer", seed=0),
        data=(DatasetConfig(world / "clips" / "train.json"),),
        reward=colours_reward,
        frames=FRAMES,
        instruction="",
        rollout=RolloutConfig(prompts=4, group=4, max_tokens=12, top_p=1.0),
        loss=PolicyLossConfig(kl_weight=0.01),
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="constant", weight_decay=0.0, b2=0.99),
        steps=6,
        remat=False,
        input=InputConfig(threads=1, cache_dir=world / "patches"),
        checkpoints=CheckpointConfig(save_every=2),
        tensorboard=False,
        progress=False,
    )
    return replace(config, **changes)
