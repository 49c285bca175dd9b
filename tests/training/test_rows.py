from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from vrjax.generation.prompts import ChatTokenizer, Vision, build_prompt
from vrjax.models.attention import Visibility
from vrjax.models.qwen2_5_vl import Qwen2_5VL
from vrjax.training.forward import ForwardOptions
from vrjax.training.rows import (
    Rows,
    empty_text,
    empty_vision,
    pack_text,
    pad_text,
    row_size,
    row_vision,
    stack_rows,
)
from vrjax.training.supervised_step import make_loss_sums

from .shapes_run import tiny_model

QUESTIONS = ("Which shape slides?", "What colour does the circle turn?", "Which shape leaves?")


@pytest.fixture(scope="module")
def chat(world: Path) -> ChatTokenizer:
    return ChatTokenizer.load(world / "tokenizer")


@pytest.fixture(scope="module")
def config(world: Path):
    return tiny_model(world / "tokenizer")


def clip(grid=(5, 4, 4), seed=0) -> Vision:
    rng = np.random.default_rng(seed)
    patches = rng.integers(0, 256, (grid[0] * grid[1] * grid[2], 1176), dtype=np.uint8)
    return Vision(patches, grid, 1.0, f"clip{seed}")


def prompts_and_responses(chat, config, vision):
    prompts = [build_prompt(chat, config, question, [vision]) for question in QUESTIONS]
    end = chat.end_ids[0]
    return prompts, [[60, 61, 62, end], [70, end], [80, 81, end]]


def make_rows(chat, config, vision, prompts, responses, bucket=None) -> Rows:
    text = pack_text(prompts, responses)
    size = bucket or row_size(text, [vision.grid], config.vision)
    inputs, places = row_vision([vision], config.vision, size)
    return Rows(pad_text(pack_text(prompts, responses, places), size, chat.pad_id), inputs)


@cache
def programs(config):
    """Loss alone, and loss with gradients, at parameters that have no zero biases."""
    graph, params = nnx.split(Qwen2_5VL(config, nnx.Rngs(1)))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.05 * rng.normal(size=x.shape).astype(np.float32), params)
    sums = make_loss_sums(graph, ForwardOptions(remat=False), freeze_vision=False)

    def loss(params, rows):
        nll, weight = sums(params, nnx.State({}), rows)
        return nll / weight

    return partial(jax.jit(loss), params), partial(jax.jit(jax.value_and_grad(loss)), params)


def loss_of(config, rows: Rows) -> float:
    return float(programs(config)[0](rows))


def assert_equal_gradients(config, rows: Rows, expected: Rows) -> None:
    found, wanted = (programs(config)[1](each) for each in (rows, expected))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
    for x, y in zip(jax.tree.leaves(found[1]), jax.tree.leaves(wanted[1]), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, y, atol=1e-6 + 1e-5 * np.abs(y).max())


def test_layout_by_hand(chat, config) -> None:
    vision = clip()
    prompts, responses = prompts_and_responses(chat, config, vision)
    text = pack_text(prompts, responses)
    trunk = prompts[0].trunk
    asked = [len(prompt) - trunk for prompt in prompts]

    first = slice(trunk, trunk + asked[0] + 4)
    second = slice(first.stop, first.stop + asked[1] + 2)
    np.testing.assert_array_equal(text.branch[:trunk], 0)
    np.testing.assert_array_equal(text.branch[first], 1)
    np.testing.assert_array_equal(text.branch[second], 2)
    # Positions start again at the trunk's end, on all three axes (areal#217, transformers#40154).
    np.testing.assert_array_equal(text.positions[:, first.start], text.positions[:, second.start])
    following = text.positions[:, second.start, None] + np.arange(asked[1] + 2)
    np.testing.assert_array_equal(text.positions[:, second], following)
    # Predicted: the responses as they are, the first end token included, each read off the token before it.
    np.testing.assert_array_equal(text.targets, [token for response in responses for token in response])
    np.testing.assert_array_equal(text.tokens[text.target_at + 1], text.targets)
    assert chat.end_ids[0] in text.targets
    assert text.tokens[text.target_at[0]] == chat.marks("assistant\n")[-1]


def test_ids_are_taken_as_they_are(chat, config) -> None:
    """Ids that the tokenizer would never give for this text (trl#5224)."""
    prompt = build_prompt(chat, config, QUESTIONS[0], [clip()])
    odd = [5 + 60, 65, 65, 66]
    assert pack_text([prompt], [odd]).targets.tolist() == odd


def test_packed_row_equals_its_questions_one_by_one(chat, config) -> None:
    vision = clip()
    prompts, responses = prompts_and_responses(chat, config, vision)
    packed = stack_rows([make_rows(chat, config, vision, prompts, responses)])
    size = row_size(pack_text(prompts[1:2], [list(range(40, 52))]), [vision.grid], config.vision)
    alone = stack_rows(
        [
            make_rows(chat, config, vision, [prompt], [response], size)
            for prompt, response in zip(prompts, responses, strict=True)
        ]
    )
    assert_equal_gradients(config, packed, alone)


def test_padding_changes_nothing_whatever_it_holds(chat, config) -> None:
    vision = clip()
    prompts, responses = prompts_and_responses(chat, config, vision)
    tight = stack_rows([make_rows(chat, config, vision, prompts, responses)])
    size = row_size(pack_text(prompts, responses), [vision.grid], config.vision)
    larger = replace(size, length=size.length + 17, targets=size.targets + 5, frames=7, frame_patches=32, windows=2)
    row = make_rows(chat, config, vision, prompts, responses, larger)
    noise = np.where(row.text.segment > 0, row.text.tokens, 33)  # other ids than pads in the padding
    pixels = np.where(row.vision.valid[..., None], row.vision.patches, 201)
    noisy = Rows(replace(row.text, tokens=noise), replace(row.vision, patches=pixels))
    assert_equal_gradients(config, stack_rows([noisy]), tight)


def test_each_row_sees_its_own_video(chat, config) -> None:
    """Two rows with different clips in one batch = the mean of their losses alone."""
    first, second = clip(seed=0), clip(seed=1)
    rows = [make_rows(chat, config, vision, *prompts_and_responses(chat, config, vision)) for vision in (first, second)]
    together = loss_of(config, stack_rows(rows))
    alone = [loss_of(config, stack_rows([row])) for row in rows]
    assert abs(alone[0] - alone[1]) > 1e-4
    np.testing.assert_allclose(together, np.mean(alone), rtol=1e-6)


def test_whole_windows_in_a_ragged_bucket(chat, config) -> None:
    vision = clip()
    prompts, responses = prompts_and_responses(chat, config, vision)
    size = row_size(pack_text(prompts, responses), [vision.grid], config.vision)
    assert size.ragged == 0
    plain = loss_of(config, stack_rows([make_rows(chat, config, vision, prompts, responses)]))
    ragged = make_rows(chat, config, vision, prompts, responses, replace(size, ragged=1))
    assert ragged.vision.to_windows is not None
    np.testing.assert_allclose(loss_of(config, stack_rows([ragged])), plain, rtol=1e-6)


def test_empty_rows_weigh_nothing(chat, config) -> None:
    vision = clip()
    prompts, responses = prompts_and_responses(chat, config, vision)
    row = make_rows(chat, config, vision, prompts, responses)
    size = row_size(pack_text(prompts, responses), [vision.grid], config.vision)
    empty = Rows(empty_text(size, chat.pad_id), empty_vision(config.vision, size))
    assert_equal_gradients(config, stack_rows([row, empty]), stack_rows([row]))


def test_branches_do_not_see_each_other_nor_padding(chat, config) -> None:
    vision = clip()
    prompts, responses = prompts_and_responses(chat, config, vision)
    size = row_size(pack_text(prompts, responses), [vision.grid], config.vision)
    text = pad_text(pack_text(prompts, responses), replace(size, length=size.length + 4), chat.pad_id)
    mask = Visibility(jnp.asarray(text.segment[None]), jnp.asarray(text.branch[None])).mask(slice(None), slice(None))[0]
    for query in range(len(text.tokens)):
        for key in range(len(text.tokens)):
            real = text.segment[query] == text.segment[key] == 1
            allowed = real and key <= query and text.branch[key] in (0, text.branch[query])
            assert bool(mask[query, key]) == bool(allowed), (query, key)


def test_different_trunks_are_refused(chat, config) -> None:
    prompts = [build_prompt(chat, config, "Which shape slides?", [clip(grid)]) for grid in ((5, 4, 4), (4, 4, 4))]
    with pytest.raises(ValueError, match="differ in what they should share"):
        pack_text(prompts, [[1], [2]])
