"""EG-Reasoner from Qwen2.5-VL-72B-Instruct: as `eg_reasoner_7b`, on a slice of 32 TPU v5p chips (or 32 GPUs of 80 GB).

    export GEMINI_API_KEY=…
    vrjax plan experiments/eg_reasoner_72b.py --topology v5p:2x4x4
    vrjax train experiments/eg_reasoner_72b.py --run-dir runs/eg_reasoner_72b

Four chips of a host hold the sampling weights; weights, moments and the reference policy are spread over all.
"""

from dataclasses import replace
from pathlib import Path

from experiments.eg_reasoner_7b import make_config as make_7b_config
from vrjax.training import GrpoConfig, MeshConfig, ModelDirectory


def make_config(run_dir: Path = Path("runs/eg_reasoner_72b")) -> GrpoConfig:
    return replace(
        make_7b_config(run_dir),
        model=ModelDirectory("Qwen/Qwen2.5-VL-72B-Instruct"),
        mesh=MeshConfig(fsdp=-1, tensor=4),
        micro_batches=2,
    )


def __getattr__(name: str) -> GrpoConfig:
    if name == "config":  # made when asked for: it needs a key
        return make_config()
    raise AttributeError(name)
