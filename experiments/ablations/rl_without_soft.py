"""Ablation: EG-Reasoner with the hard evidence reward alone.

vrjax train experiments/ablations/rl_without_soft.py
"""

from dataclasses import replace
from pathlib import Path

from experiments.eg_reasoner_7b import make_config, reward
from vrjax.training import GrpoConfig


def __getattr__(name: str) -> GrpoConfig:
    if name == "config":
        return replace(make_config(Path("runs/ablation_rl_without_soft")), reward=reward(soft=False))
    raise AttributeError(name)
