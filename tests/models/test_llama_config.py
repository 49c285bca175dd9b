"""config.json of Llamas: both forms of rotary scaling, what transformers reads of ours, and named errors."""

import copy
import dataclasses
import json

import numpy as np
import pytest
from transformers import LlamaConfig as ReferenceConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from vrjax.errors import CheckpointError
from vrjax.models.decoder import RopeScaling
from vrjax.models.llama import LlamaConfig
from vrjax.models.registry import read_config

from .llama_reference import CONFIGS

# Llama-3.2-1B as published.
RAW = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "use_cache": True,
    "vocab_size": 128256,
}


def new_form(raw):
    """As transformers 5 writes it."""
    rest = {key: value for key, value in raw.items() if key not in ("rope_scaling", "rope_theta")}
    return {**rest, "rope_parameters": {**raw["rope_scaling"], "rope_theta": raw["rope_theta"]}}


@pytest.mark.parametrize("raw", [RAW, new_form(RAW)], ids=["rope_scaling", "rope_parameters"])
def test_the_published_configuration(raw):
    text = LlamaConfig.from_json(raw).text
    assert (text.width, text.mlp, text.layers, text.heads, text.kv_heads, text.head_size) == (2048, 8192, 16, 32, 8, 64)
    assert text.rope_scaling == RopeScaling(32.0, 1.0, 4.0, 8192)
    assert (text.rope_theta, text.tied, text.qkv_bias, text.max_positions) == (5e5, True, False, 131072)


def test_frequencies_are_those_of_transformers():
    reference = LlamaRotaryEmbedding(ReferenceConfig(**copy.deepcopy(RAW)))  # it writes into what it is given
    reference = reference.inv_freq.numpy()
    ours = LlamaConfig.from_json(RAW).text.frequencies()
    np.testing.assert_allclose(ours, reference, rtol=2e-7)
    plain = LlamaConfig.from_json({**RAW, "rope_scaling": None}).text.frequencies()
    assert (ours < 0.5 * plain).sum() > 10


def test_head_size_is_derived_and_the_head_untied_where_nothing_is_said():
    raw = {key: value for key, value in RAW.items() if key not in ("head_dim", "tie_word_embeddings")}
    text = LlamaConfig.from_json({**raw, "num_attention_heads": 16}).text
    assert (text.head_size, text.tied) == (128, False)
    raw.pop("num_key_value_heads")
    assert LlamaConfig.from_json(raw).text.kv_heads == 32


@pytest.mark.parametrize("name", CONFIGS)
def test_ours_comes_back_and_transformers_reads_the_same(name, tmp_path):
    config = CONFIGS[name]
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    assert read_config(tmp_path / "config.json") == config
    theirs = ReferenceConfig.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "theirs")
    assert "rope_parameters" in json.loads((tmp_path / "theirs/config.json").read_text())
    assert read_config(tmp_path / "theirs" / "config.json") == config


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"attention_bias": True}, "attention_bias True is not supported"),
        ({"mlp_bias": True}, "mlp_bias True is not supported"),
        ({"rope_interleaved": True}, "rope_interleaved True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
        ({"rope_theta": None}, "rope_theta is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type 'linear' is not supported"),
        ({"rope_scaling": {**RAW["rope_scaling"], "low_freq_factor": None}}, "rope_scaling.low_freq_factor is missing"),
        ({"rope_scaling": [8.0]}, "rope_scaling is no object"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is no multiple of num_key_value_heads 5"),
        ({"hidden_size": 2050, "head_dim": None}, "hidden_size 2050 is no multiple of num_attention_heads 32"),
    ],
)
def test_what_cannot_be_used_is_named(change, problem):
    with pytest.raises(CheckpointError, match=rf"some/config\.json: .*{problem}"):
        LlamaConfig.from_json({**RAW, **change}, "some/config.json")


def test_every_field_matters_to_the_written_form():
    text = CONFIGS["tied, scaled"].text
    for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "head_size", "mlp", "max_positions"):
        changed = LlamaConfig(dataclasses.replace(text, **{name: 7 * getattr(text, name)}))
        assert changed.to_json() != LlamaConfig(text).to_json(), name
