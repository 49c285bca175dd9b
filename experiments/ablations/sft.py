"""Ablation: supervised fine-tuning on the same records, evidence first; the reasoning restates the evidence.

vrjax train experiments/ablations/sft.py
"""

from pathlib import Path

from experiments.eg_reasoner_7b import DATA, FRAMES
from vrjax.training import (
    BatchConfig,
    DatasetConfig,
    InputConfig,
    ModelDirectory,
    OptimizerConfig,
    ResponseTemplate,
    SftConfig,
)

config = SftConfig(
    run_dir=Path("runs/ablation_sft"),
    model=ModelDirectory("Qwen/Qwen2.5-VL-7B-Instruct"),
    data=(DatasetConfig(DATA / "train.json"),),
    frames=FRAMES,
    template=ResponseTemplate("evidence_first"),
    batch=BatchConfig(videos=16, questions=4),
    optimizer=OptimizerConfig(learning_rate=1e-5, warmup=20, weight_decay=1e-2),
    epochs=1.0,
    input=InputConfig(threads=8, cache_dir=Path("cache/patches")),
)
