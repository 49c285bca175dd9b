"""A tiny model on a few clips of coloured shapes: configurations for these tests and their subprocesses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from data_tools.shapes.dataset import ClipOptions, DatasetOptions, make_dataset
from data_tools.shapes.tokenizer import build_tokenizer
from vrjax.generation.prompts import ChatTokenizer
from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig
from vrjax.records import load_records
from vrjax.training.config import (
    BatchConfig,
    CheckpointConfig,
    DatasetConfig,
    FreshModel,
    InputConfig,
    SftConfig,
)
from vrjax.training.state import OptimizerConfig
from vrjax.training.templates import ResponseTemplate
from vrjax.video import FrameOptions

FRAMES = FrameOptions(fps=2.0, min_pixels=56 * 56, max_pixels=56 * 56)
TEMPLATE = ResponseTemplate("evidence_first", instruction="")


def make_world(folder: Path, train: int = 32, val: int = 8, max_seconds: int = 12) -> Path:
    """Clips, records and a tokenizer below `folder`."""
    make_dataset(folder / "clips", DatasetOptions(train, val, 0, seed=3, clip=ClipOptions(max_seconds=max_seconds)))
    texts = []
    for record in load_records(folder / "clips" / "train.json") + load_records(folder / "clips" / "val.json"):
        for question in record.questions:
            texts += [question.question, TEMPLATE.response(question)]
    build_tokenizer(texts, folder / "tokenizer")
    return folder


def tiny_model(tokenizer: Path, width: int = 32, layers: int = 1) -> Qwen2_5VLConfig:
    words = ChatTokenizer.load(tokenizer).tokenizer.get_vocab()
    text = DecoderConfig(
        vocabulary=-(-len(words) // 8) * 8, width=width, layers=layers, heads=4, kv_heads=2, head_size=width // 4,
        mlp=2 * width, norm_eps=1e-6, rope_theta=1e4, tied=True, qkv_bias=True, max_positions=1024,
        sections=(width // 32, width // 32, width // 8 - 2 * (width // 32)),
    )  # fmt: skip
    vision = VisionConfig(
        layers=1, width=32, heads=2, mlp=48, out_width=width, full_layers=(), window=2, tokens_per_second=2
    )
    return Qwen2_5VLConfig(
        text, vision, words["<|image_pad|>"], words["<|video_pad|>"], words["<|vision_start|>"], words["<|vision_end|>"]
    )


def tiny_config(world: Path, run_dir: Path, **changes: Any) -> SftConfig:
    config = SftConfig(
        run_dir=run_dir,
        model=FreshModel(tiny_model(world / "tokenizer"), world / "tokenizer", seed=0),
        data=(DatasetConfig(world / "clips" / "train.json"),),
        frames=FRAMES,
        template=TEMPLATE,
        batch=BatchConfig(videos=8, questions=4, max_programs=2),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup=4, b2=0.99),
        steps=24,
        freeze_vision=False,
        remat=False,
        input=InputConfig(threads=1, cache_dir=world / "patches"),
        checkpoints=CheckpointConfig(save_every=5),
        tensorboard=False,
        progress=False,
    )
    return replace(config, **changes)
