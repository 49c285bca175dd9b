"""Qwen2.5-VL in JAX."""

from vrjax.models.qwen2_5_vl.config import Qwen2_5VLConfig, VisionConfig
from vrjax.models.qwen2_5_vl.layout import VisionInputs, vision_inputs
from vrjax.models.qwen2_5_vl.model import Qwen2_5VL
from vrjax.models.qwen2_5_vl.positions import PositionRule, prompt_positions, temporal_ids

__all__ = [
    "PositionRule",
    "Qwen2_5VL",
    "Qwen2_5VLConfig",
    "VisionConfig",
    "VisionInputs",
    "prompt_positions",
    "temporal_ids",
    "vision_inputs",
]
