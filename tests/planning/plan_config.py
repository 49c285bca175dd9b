"""Configurations to plan, of sizes that the command line cannot give: `PLAN_WIDTH` and friends come from the test."""

import os
from pathlib import Path

from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig
from vrjax.rewards import Reward, RewardPrompt, RewardRecord
from vrjax.training import DatasetConfig, FreshModel, GrpoConfig, RolloutConfig
from vrjax.video import FrameOptions


def length_reward(prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
    return Reward(float(len(response)), {})


width, layers = int(os.environ.get("PLAN_WIDTH", "64")), int(os.environ.get("PLAN_LAYERS", "2"))
text = DecoderConfig(
    vocabulary=512, width=width, layers=layers, heads=4, kv_heads=2, head_size=width // 4, mlp=2 * width, norm_eps=1e-6,
    rope_theta=1e4, tied=False, qkv_bias=True, max_positions=1024,
    sections=(width // 32, width // 32, width // 8 - 2 * (width // 32)),
)  # fmt: skip
vision = VisionConfig(layers=2, width=64, heads=2, mlp=96, out_width=width, full_layers=(1,), window=4,
                      tokens_per_second=2)  # fmt: skip
config = GrpoConfig(
    run_dir=Path("nowhere"),
    model=FreshModel(Qwen2_5VLConfig(text, vision, 500, 501, 502, 503), Path("nowhere")),
    data=(DatasetConfig(Path("nowhere.json")),),
    reward=length_reward,
    frames=FrameOptions(fps=1.0, max_frames=4, min_pixels=56 * 56, max_pixels=112 * 112),
    rollout=RolloutConfig(prompts=4, group=2, max_tokens=32),
    max_length=256,
)
