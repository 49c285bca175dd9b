"""Names and shapes of all parameters against transformers' own modules, at the published sizes, without memory."""

import pytest
import torch
from transformers import Qwen2_5_VLConfig as ReferenceConfig
from transformers import Qwen2_5_VLForConditionalGeneration as ReferenceModel

from vrjax.checkpoints.hugging_face import published_name
from vrjax.loading import abstract_model
from vrjax.models.parameters import parameter_count, parameter_table
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig

# Text width, mlp, layers, heads, kv heads, tied, vocabulary, and the vision tower's mlp. The larger published towers
# are wider in the mlp (3456): sizes come from config.json, so both are tried.
SIZES = {
    "3B": (2048, 11008, 36, 16, 2, True, 151936, 3420),
    "7B": (3584, 18944, 28, 28, 4, False, 152064, 3420),
    "72B": (8192, 29568, 80, 64, 8, False, 152064, 3420),
    "72B, wide tower": (8192, 29568, 80, 64, 8, False, 152064, 3456),
}


def raw_config(width, mlp, layers, heads, kv_heads, tied, vocabulary, vision_mlp):
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
        "max_position_embeddings": 128000,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "use_sliding_window": False,
        "image_token_id": 151655,
        "video_token_id": 151656,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
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


@pytest.mark.parametrize("size", SIZES)
def test_names_and_shapes(size):
    raw = raw_config(*SIZES[size])
    with torch.device("meta"):
        reference = ReferenceModel(ReferenceConfig(**raw))
    expected = {published_name(name): tuple(value.shape) for name, value in reference.named_parameters()}
    _, params = abstract_model(Qwen2_5VLConfig.from_json(raw))
    table = parameter_table(params)
    found = {name: spec.hf_shape for spec in table for name in spec.hf_names()}
    assert found == expected
    assert len(found) == sum(spec.layers or 1 for spec in table)
    assert parameter_count(params) == sum(value.numel() for value in reference.parameters())
