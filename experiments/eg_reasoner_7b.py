"""EG-Reasoner as its paper trains it: GRPO from Qwen2.5-VL-7B-Instruct on EG-VQA's training split.

    export GEMINI_API_KEY=…
    vrjax train experiments/eg_reasoner_7b.py --run-dir runs/eg_reasoner_7b

Needs `data/eg_vqa/train.json` with its videos beside it, and a node of eight 80 GB accelerators or a slice like it.
32 frames a video, given as images with their times drawn in; 8 responses to each of 16 prompts a step; the judge is
gemini-2.5-pro, whose replies are cached and whose spending is limited.
"""

import os
from pathlib import Path

from vrjax.errors import InputError
from vrjax.evidence import make_similarity
from vrjax.llm import AnswerJudge, Budget, ChatClient, Price, ReplyCache, parse_llm
from vrjax.rewards import CompositeReward, JudgedAnswer, eg_reasoner_reward
from vrjax.training import (
    CheckpointConfig,
    DatasetConfig,
    GrpoConfig,
    InputConfig,
    ModelDirectory,
    OptimizerConfig,
    PolicyLossConfig,
    RolloutConfig,
    ScoringConfig,
)
from vrjax.video import FrameOptions

DATA = Path("data/eg_vqa")
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai/"
FRAMES = FrameOptions(
    frames=32,
    min_pixels=75_264,
    max_pixels=100_352,
    total_pixels=None,
    frames_as_images=True,
    draw_clock=True,
)


def judge(model: str = "gemini-2.5-pro", base_url: str = GEMINI, variable: str = "GEMINI_API_KEY") -> AnswerJudge:
    """A judge behind an OpenAI-compatible address; its key comes from the environment and reaches no file."""
    key = os.environ.get(variable)
    if not key:
        raise InputError(f"{variable} is not set, so that {model} cannot judge. Export it, or change the reward.")
    prices = Price(prompt_per_million=1.25, completion_per_million=10.0)
    client = ChatClient(
        parse_llm(f"openai:{model}", base_url, key),
        concurrency=32,
        timeout_s=120.0,
        cache=ReplyCache(Path("cache/judge")),
        budget=Budget(max_cost=500.0, prices=prices),
    )
    return AnswerJudge(client)


def reward(**changes: float | bool) -> CompositeReward:
    """.1 · format + .6 · answer + .3 · evidence; `changes` as in `eg_reasoner_reward`."""
    similarity = make_similarity("BAAI/bge-m3", Path("cache/embeddings"))
    return eg_reasoner_reward(JudgedAnswer(judge()), similarity, **changes)  # pyright: ignore[reportArgumentType]


def make_config(run_dir: Path = Path("runs/eg_reasoner_7b")) -> GrpoConfig:
    return GrpoConfig(
        run_dir=run_dir,
        model=ModelDirectory("Qwen/Qwen2.5-VL-7B-Instruct"),
        data=(DatasetConfig(DATA / "train.json"),),
        reward=reward(),
        frames=FRAMES,
        rollout=RolloutConfig(prompts=16, group=8, max_tokens=1024, temperature=1.0, top_p=0.99),
        loss=PolicyLossConfig(clip_low=0.2, clip_high=0.2, kl_weight=0.01, kl_estimator="k3"),
        optimizer=OptimizerConfig(learning_rate=1e-6, schedule="constant", weight_decay=1e-2, clip_norm=1.0),
        epochs=1.0,
        max_length=7_000 + 1_024,
        scoring=ScoringConfig(concurrency=64, timeout_s=900.0),
        input=InputConfig(threads=8, cache_dir=Path("cache/patches")),
        checkpoints=CheckpointConfig(save_every=20, keep_last=2),
        page_every=20,
    )


def __getattr__(name: str) -> GrpoConfig:
    if name == "config":  # made when asked for: it needs a key
        return make_config()
    raise AttributeError(name)
