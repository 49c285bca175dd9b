"""Logits of Llamas against transformers in float32, and that a fault would show."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch

from vrjax.models.llama import LlamaConfig

from .llama_reference import CONFIGS, VOCABULARY, LlamaReference, build
from .reference import deviation

TOLERANCE = 1e-4  # largest difference, in standard deviations of the logits


@pytest.fixture(scope="module", params=CONFIGS)
def reference(request: pytest.FixtureRequest) -> LlamaReference:
    return build(CONFIGS[request.param], seed=len(request.param))


def tokens_of(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length)


@pytest.mark.parametrize("length", [1, 40, 700])
def test_prompt(reference: LlamaReference, length: int, record_property):
    rows = [tokens_of(length)]
    found = deviation(reference.logits(rows), reference.torch_logits(rows))
    record_property("logits", found)
    assert found <= TOLERANCE


def test_batch_of_unequal_lengths(reference: LlamaReference):
    rows = [tokens_of(length, seed=length) for length in (90, 7, 33)]
    mine, theirs = reference.logits(rows), reference.torch_logits(rows)
    for number, row in enumerate(rows):
        alone = reference.torch_logits([row])[0]
        assert deviation(mine[number, : len(row)], theirs[number, : len(row)]) <= TOLERANCE
        assert deviation(mine[number, : len(row)], alone) <= TOLERANCE


def test_rounding_of_torch_itself_is_a_tenth_of_the_tolerance(reference: LlamaReference):
    rows = [tokens_of(200)]
    single, double = (reference.torch_logits(rows, dtype) for dtype in (torch.float32, torch.float64))
    assert deviation(single, double) <= TOLERANCE / 10


@pytest.fixture(scope="module")
def scaled() -> LlamaReference:
    return build(CONFIGS["tied, scaled"], seed=5)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_scaling": None},
        {"rope_theta": 4e5},
        {"norm_eps": 1e-1},
        {"rope_scaling": replace(CONFIGS["tied, scaled"].text.rope_scaling, high_factor=3.0)},
        {"rope_scaling": replace(CONFIGS["tied, scaled"].text.rope_scaling, low_factor=2.0)},
        {"rope_scaling": replace(CONFIGS["tied, scaled"].text.rope_scaling, original_length=100)},
    ],
    ids=["no scaling", "theta", "epsilon", "high factor", "low factor", "original length"],
)
def test_a_wrong_number_shows(scaled: LlamaReference, change, record_property):
    """By more than 100 times the tolerance."""
    rows = [tokens_of(150, seed=2)]
    wrong = LlamaConfig(replace(scaled.config.text, **change))
    found = deviation(scaled.logits(rows, config=wrong), scaled.torch_logits(rows))
    record_property("fault", found)
    assert found > 100 * TOLERANCE


@pytest.mark.parametrize("name", ["input_norm", "mlp_norm", "norm", "k", "v", "up"])
def test_a_weight_of_another_layer_shows(scaled: LlamaReference, name: str):
    """Layers in reverse, or the last norm turned round."""
    hits = []

    def one(path, array):
        if str(path[-2].key if hasattr(path[-2], "key") else path[-1].key) != name:
            return array
        hits.append(path)
        return array[::-1]

    params = jax.tree_util.tree_map_with_path(one, scaled.params)
    assert hits
    rows = [tokens_of(60, seed=3)]
    assert deviation(scaled.logits(rows, params), scaled.torch_logits(rows)) > 100 * TOLERANCE


def test_vision_features_are_refused(scaled: LlamaReference):
    from flax import nnx

    model = nnx.merge(scaled.graph, scaled.params)
    with pytest.raises(ValueError, match="text alone"):
        model.embed(np.zeros((1, 3), np.int32), np.zeros((2, 96), np.float32), np.zeros((1, 3), np.int32))
