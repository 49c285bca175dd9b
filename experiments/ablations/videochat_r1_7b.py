"""Ablation: another starting checkpoint, VideoChat-R1-7B, trained without the evidence reward.

vrjax train experiments/ablations/videochat_r1_7b.py
"""

from dataclasses import replace
from pathlib import Path

from experiments.eg_reasoner_7b import make_config, reward
from vrjax.training import GrpoConfig, ModelDirectory


def __getattr__(name: str) -> GrpoConfig:
    if name == "config":
        return replace(
            make_config(Path("runs/ablation_videochat_r1_7b")),
            model=ModelDirectory("OpenGVLab/VideoChat-R1_7B"),
            reward=reward(evidence_weight=0.0),
        )
    raise AttributeError(name)
