"""Names and shapes of all parameters against transformers' own modules, at the published sizes, without memory."""

import pytest
import torch
from transformers import LlamaConfig as ReferenceLlamaConfig
from transformers import LlamaForCausalLM
from transformers import Qwen2_5_VLConfig as ReferenceConfig
from transformers import Qwen2_5_VLForConditionalGeneration as ReferenceModel

from vrjax.checkpoints.hugging_face import published_name
from vrjax.loading import abstract_model
from vrjax.models.llama import LlamaConfig
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
    assert_same_tensors(reference, Qwen2_5VLConfig.from_json(raw))


def assert_same_tensors(reference, config):
    expected = {published_name(name): tuple(value.shape) for name, value in reference.named_parameters()}
    _, params = abstract_model(config)
    table = parameter_table(params)
    found = {name: spec.hf_shape for spec in table for name in spec.hf_names()}
    assert found == expected
    assert len(found) == sum(spec.layers or 1 for spec in table)
    assert parameter_count(params) == sum(value.numel() for value in reference.parameters())


# Text width, mlp, layers, heads, kv heads, head size, tied, vocabulary, factor of rotary scaling, parameters.
LLAMAS = {
    "Llama-3.2-1B": (2048, 8192, 16, 32, 8, 64, True, 128256, 32.0, 1_235_814_400),
    "Llama-3.2-3B": (3072, 8192, 28, 24, 8, 128, True, 128256, 32.0, 3_212_749_824),
    "Llama-3.1-8B": (4096, 14336, 32, 32, 8, 128, False, 128256, 8.0, 8_030_261_248),
    "SmolLM2-135M": (576, 1536, 30, 9, 3, 64, True, 49152, None, 134_515_008),
}


def raw_llama(width, mlp, layers, heads, kv_heads, head_size, tied, vocabulary, factor):
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "tie_word_embeddings": tied,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": None if factor is None else scaling,
    }


@pytest.mark.parametrize("name", LLAMAS)
def test_names_and_shapes_of_llamas(name):
    *sizes, parameters = LLAMAS[name]
    config = LlamaConfig.from_json(raw_llama(*sizes))
    with torch.device("meta"):
        reference = LlamaForCausalLM(ReferenceLlamaConfig(**raw_llama(*sizes)))
    assert_same_tensors(reference, config)
    assert parameter_count(abstract_model(config)[1]) == parameters
