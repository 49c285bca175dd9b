"""Sizes of the published Qwen2.5-VL-Instruct models, for planning where no files of theirs are at hand.

They are the numbers of the models' own config.json; a directory or download, where there is one, is read instead.
"""

from __future__ import annotations

from typing import Any

from vrjax.models.qwen2_5_vl.config import Qwen2_5VLConfig

# Width, mlp, layers, heads, key heads, tied, vocabulary; mlp of the vision tower.
_SIZES = {
    "Qwen/Qwen2.5-VL-3B-Instruct": (2048, 11008, 36, 16, 2, True, 151936, 3420),
    "Qwen/Qwen2.5-VL-7B-Instruct": (3584, 18944, 28, 28, 4, False, 152064, 3420),
    "Qwen/Qwen2.5-VL-72B-Instruct": (8192, 29568, 80, 64, 8, False, 152064, 3456),
}


def published_config(name: str) -> Qwen2_5VLConfig | None:
    """The configuration of a published model by its hub id; None for any other name."""
    return Qwen2_5VLConfig.from_json(published_json(name), name) if name in _SIZES else None


def published_json(name: str) -> dict[str, Any]:
    """config.json of one of the published models, as far as sizes and positions go."""
    width, mlp, layers, heads, kv_heads, tied, vocabulary, vision_mlp = _SIZES[name]
    return {
        "model_type": "qwen2_5_vl",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
        "vocab_size": vocabulary,
        "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "image_token_id": 151_655,
        "video_token_id": 151_656,
        "vision_start_token_id": 151_652,
        "vision_end_token_id": 151_653,
        "vision_config": {
            "depth": 32,
            "hidden_act": "silu",
            "hidden_size": 1280,
            "num_heads": 16,
            "intermediate_size": vision_mlp,
            "out_hidden_size": width,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,
        },
    }
