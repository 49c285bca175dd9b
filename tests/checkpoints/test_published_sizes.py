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
from vrjax.models.qwen2_5_vl.published import published_json

HUB = "Qwen/Qwen2.5-VL-{}-Instruct"
# The larger published tower is wider in the mlp (3456) than the others: sizes come from config.json, so both are tried.
TOWERS = {"3B": None, "7B": None, "72B": None, "72B, narrow tower": 3420}


@pytest.mark.parametrize("size", TOWERS)
def test_names_and_shapes(size):
    raw = published_json(HUB.format(size.split(",")[0]))
    if TOWERS[size] is not None:
        raw["vision_config"]["intermediate_size"] = TOWERS[size]
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
