"""The yardstick itself: attention is sharp, and rounding stays small enough for the tolerances of the parity tests."""

import numpy as np
import torch
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl

from .reference import Reference, compose, deviation, relative

PARTS = (5, ((3, 12, 18), 1.0), 30)


def test_rounding_of_torch_itself_is_a_tenth_of_the_tolerance(reference: Reference):
    prompt = compose(reference.config, 1, *PARTS)
    single, double = (reference.torch_logits([prompt], dtype)[0] for dtype in (torch.float32, torch.float64))
    assert deviation(single, double) <= 1e-5
    features = [reference.torch_features(prompt.clips[0], dtype) for dtype in (torch.float32, torch.float64)]
    assert relative(*features) <= 2e-6


def test_attention_is_sharp(reference: Reference, monkeypatch):
    tops: dict[str, list[float]] = {"vision": [], "text": []}
    eager = modeling_qwen2_5_vl.eager_attention_forward

    def record(module, *args, **kwargs):
        out, weights = eager(module, *args, **kwargs)
        tops["vision" if "Vision" in type(module).__name__ else "text"].append(float(weights.amax(-1).mean()))
        return out, weights

    monkeypatch.setattr(modeling_qwen2_5_vl, "eager_attention_forward", record)
    before = reference.torch_model.config._attn_implementation
    reference.torch_model.set_attn_implementation("eager")
    try:
        reference.torch_logits([compose(reference.config, 1, *PARTS)])
    finally:
        reference.torch_model.set_attn_implementation(before)
    assert len(tops["text"]) == 3
    assert np.mean(tops["text"]) > 0.3
    assert np.mean(tops["vision"]) > 0.3
    assert min(tops["text"] + tops["vision"]) > 0.2


def test_biases_and_norm_weights_are_random(reference: Reference):
    for name, tensor in reference.torch_model.state_dict().items():
        assert tensor.std() > 1e-3, name
