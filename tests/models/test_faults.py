"""The parity check has teeth: each deliberate fault moves the logits by more than 100 times its tolerance."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from vrjax.models.qwen2_5_vl import vision as vision_module
from vrjax.models.qwen2_5_vl.layout import vision_inputs, window_slots

from .reference import Prompt, Reference, Rows, compose, deviation, forward, graph_of, pack
from .test_parity import LOGITS_TOLERANCE


@pytest.fixture(scope="module")
def prompt(reference: Reference) -> Prompt:
    return compose(reference.config, 11, 5, ((2, 10, 12), 1.0), 12)


@pytest.fixture(scope="module")
def theirs(reference: Reference, prompt: Prompt) -> np.ndarray:
    return reference.torch_logits([prompt])[0]


def logits_of(reference: Reference, rows: Rows, graph=None, params=None) -> np.ndarray:
    call = reference.function(lambda model, rows: forward(model, rows)[0], graph)
    return np.asarray(call(reference.params if params is None else params, rows))[0]


def edit(params, name: str, change):
    """Parameters with `change` applied to every array whose path ends in `name`; at least one must."""
    hits = []

    def one(path, array):
        if name not in [str(getattr(entry, "key", "")) for entry in path]:
            return array
        hits.append(path)
        return change(array)

    edited = jax.tree.map_with_path(one, params)
    assert hits, name
    return edited


def assert_caught(faulty: np.ndarray, theirs: np.ndarray, record_property) -> None:
    found = deviation(faulty, theirs)
    record_property("fault", found)
    assert found > 100 * LOGITS_TOLERANCE


def test_without_a_fault(reference: Reference, prompt: Prompt, theirs: np.ndarray):
    params = edit(reference.params, "q_bias", lambda array: array)
    found = logits_of(reference, pack(reference.config, [[prompt]]), graph_of(reference.config), params)
    assert deviation(found, theirs) <= LOGITS_TOLERANCE


def test_window_mask_off(reference: Reference, prompt: Prompt, theirs: np.ndarray, record_property):
    everywhere = replace(reference.config.vision, full_layers=tuple(range(reference.config.vision.layers)))
    graph = graph_of(replace(reference.config, vision=everywhere))
    assert_caught(logits_of(reference, pack(reference.config, [[prompt]]), graph), theirs, record_property)


def test_full_layers_across_frames(
    reference: Reference, prompt: Prompt, theirs: np.ndarray, record_property, monkeypatch
):
    frame_attention, slots = vision_module.frame_attention, window_slots(reference.config.vision)
    joined = []

    def across(q, k, v, valid):
        if q.shape[1] == slots:  # windows: as they are
            return frame_attention(q, k, v, valid)
        joined.append(q.shape)
        q_all, k_all, v_all = (x.reshape(1, -1, *x.shape[2:]) for x in (q, k, v))
        return frame_attention(q_all, k_all, v_all, valid.reshape(1, -1)).reshape(q.shape)

    monkeypatch.setattr(vision_module, "frame_attention", across)
    faulty = logits_of(reference, pack(reference.config, [[prompt]]))
    assert joined
    assert_caught(faulty, theirs, record_property)


@pytest.mark.parametrize("sections", [(4, 1, 3), (1, 3, 4)])
def test_sections_swapped(reference: Reference, prompt: Prompt, theirs: np.ndarray, sections, record_property):
    graph = graph_of(replace(reference.config, text=replace(reference.config.text, sections=sections)))
    assert_caught(logits_of(reference, pack(reference.config, [[prompt]]), graph), theirs, record_property)


@pytest.mark.parametrize("name", ["q_bias", "k_bias", "v_bias", "qkv_bias", "proj_bias", "merger_in_bias"])
def test_bias_dropped(reference: Reference, prompt: Prompt, theirs: np.ndarray, name: str, record_property):
    """k_bias is no idle case: with rotary positions it does not cancel in the softmax."""
    params = edit(reference.params, name, lambda array: array * 0)
    logits, _ = reference.forward(params, pack(reference.config, [[prompt]]))
    assert_caught(np.asarray(logits)[0], theirs, record_property)


@pytest.mark.parametrize("name", ["input_norm", "mlp_norm", "norm1", "norm2", "merger_norm"])
def test_norm_weight_dropped(reference: Reference, prompt: Prompt, theirs: np.ndarray, name: str, record_property):
    params = edit(reference.params, name, lambda array: array * 0 + 1)
    logits, _ = reference.forward(params, pack(reference.config, [[prompt]]))
    assert_caught(np.asarray(logits)[0], theirs, record_property)


def test_merged_tokens_left_in_window_order(reference: Reference, prompt: Prompt, theirs: np.ndarray, record_property):
    rows = pack(reference.config, [[prompt]])
    index = rows.feature_index.copy()
    index[rows.feature_index >= 0] = np.sort(rows.feature_index[rows.feature_index >= 0])
    logits, _ = reference.forward(reference.params, replace(rows, feature_index=index))
    assert_caught(np.asarray(logits)[0], theirs, record_property)


def test_patches_of_a_merged_token_in_column_order(
    reference: Reference, prompt: Prompt, theirs: np.ndarray, record_property
):
    """Patch (0, 1) and (1, 0) of each 2 x 2 block change places, with their rotary coordinates."""
    rows = pack(reference.config, [[prompt]])
    order = np.arange(rows.vision.patches.shape[1]).reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(-1)
    swapped = replace(rows.vision, patches=rows.vision.patches[:, order], coordinates=rows.vision.coordinates[:, order])
    logits, _ = reference.forward(reference.params, replace(rows, vision=swapped))
    assert_caught(np.asarray(logits)[0], theirs, record_property)


def test_videos_exchanged(reference: Reference, record_property):
    """Every sample receives its own clip, also among clips of one size."""
    parts = (5, ((2, 6, 10), 1.0), 6)
    prompts = [compose(reference.config, seed, *parts) for seed in (1, 2)]
    rows = pack(reference.config, [[prompt] for prompt in prompts])
    right, theirs = reference.outputs(rows)[0], reference.torch_logits(prompts)
    assert max(deviation(right[row], theirs[row]) for row in range(2)) <= LOGITS_TOLERANCE
    exchanged, _ = reference.outputs(replace(rows, feature_index=rows.feature_index[::-1].copy()))
    assert_caught(exchanged, np.stack(theirs), record_property)


def test_vision_inputs_refuses_a_grid_that_does_not_fit(periodic: Reference, prompt: Prompt):
    clip = prompt.clips[0]
    with pytest.raises(ValueError, match="wants 96 patches"):
        vision_inputs([clip.patches], [(2, 6, 8)], periodic.config.vision)
    with pytest.raises(ValueError, match="exceed"):
        vision_inputs([clip.patches], [clip.grid], periodic.config.vision, frames=1)
