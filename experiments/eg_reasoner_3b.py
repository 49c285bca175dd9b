"""EG-Reasoner from Qwen2.5-VL-3B-Instruct: as `eg_reasoner_7b`, for a node of smaller accelerators.

vrjax train experiments/eg_reasoner_3b.py
"""

from dataclasses import replace
from pathlib import Path

from experiments.eg_reasoner_7b import make_config
from vrjax.training import GrpoConfig, ModelDirectory


def __getattr__(name: str) -> GrpoConfig:
    if name == "config":
        return replace(make_config(Path("runs/eg_reasoner_3b")), model=ModelDirectory("Qwen/Qwen2.5-VL-3B-Instruct"))
    raise AttributeError(name)
