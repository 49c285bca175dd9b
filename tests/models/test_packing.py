"""Packed rows: prompts side by side, and one trunk with several branches, equal separate rows, gradients too."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from vrjax.models.parameters import cast_parameters

from .reference import Prompt, Reference, Rows, compose, deviation, forward, loss, pack, relative

TOLERANCE = 1e-5
# One shape for all rows here (two rows, the second sometimes all padding; padded frames), so one compiled program.
BUCKET = {"length": 96, "frames": 6, "frame_patches": 60, "windows": 2}


def random_cotangent(reference: Reference, prompt_length: int, seed: int) -> np.ndarray:
    shape = (prompt_length, reference.config.text.vocabulary)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def cotangent_rows(reference: Reference) -> np.ndarray:
    return np.zeros((2, BUCKET["length"], reference.config.text.vocabulary), np.float32)


def assert_same_gradients(mine, theirs, record_property) -> None:
    """Largest difference of each parameter's gradient, relative to its largest entry."""
    found = {}
    for (path, one), other in zip(jax.tree.leaves_with_path(mine), jax.tree.leaves(theirs), strict=True):
        assert jnp.abs(other).max() > 0, path
        found[jax.tree_util.keystr(path)] = float(jnp.abs(one - other).max() / jnp.abs(other).max())
    worst = max(found, key=lambda name: found[name])
    record_property("gradient", found[worst])
    assert found[worst] <= TOLERANCE, worst


def test_two_prompts_in_a_row(periodic: Reference, record_property):
    config = periodic.config
    prompts = [compose(config, 1, 4, ((2, 6, 10), 0.7), 9), compose(config, 2, 7, ((1, 8, 6), None), 15)]
    lengths = [len(prompt.tokens) for prompt in prompts]
    apart, together = (pack(config, rows, **BUCKET) for rows in ([prompts[:1], prompts[1:]], [prompts, []]))
    apart_pull, together_pull = cotangent_rows(periodic), cotangent_rows(periodic)
    ends = np.cumsum([0, *lengths])
    for row, size in enumerate(lengths):
        apart_pull[row, :size] = together_pull[0, ends[row] : ends[row + 1]] = random_cotangent(periodic, size, row)

    want, want_gradient = periodic.logits_and_gradient(apart, apart_pull)
    found, gradient = periodic.logits_and_gradient(together, together_pull)
    for row, size in enumerate(lengths):
        error = deviation(found[0, ends[row] : ends[row + 1]], want[row, :size])
        record_property("logits", error)
        assert error <= TOLERANCE
    assert_same_gradients(gradient, want_gradient, record_property)

    one_segment = replace(together, segment=np.minimum(together.segment, 1))
    joined, _ = periodic.logits_and_gradient(one_segment, together_pull)
    assert deviation(joined[0, ends[1] : ends[2]], want[1, : lengths[1]]) > 100 * TOLERANCE  # segments matter


def branched(reference: Reference, trunk: Prompt, questions: list[np.ndarray]) -> Rows:
    """One row: the trunk, then each question as a branch whose positions go on from the trunk's end."""
    rows = pack(reference.config, [[trunk], []], **BUCKET)
    _, following = trunk.positions(reference.config)
    start = len(trunk.tokens)
    for number, question in enumerate(questions):
        here = slice(start, start + len(question))
        rows.tokens[0, here], rows.segment[0, here], rows.branch[0, here] = question, 1, number + 1
        rows.positions[:, 0, here] = following + np.arange(len(question))
        start = here.stop
    return rows


def test_two_questions_on_one_video(reference: Reference, record_property):
    config = reference.config
    trunk = compose(config, 3, 6, ((3, 6, 10), 1.0), 5)
    questions = [compose(config, seed, length).tokens for seed, length in ((4, 12), (5, 17))]
    first, second = len(trunk.tokens) + 12, len(trunk.tokens) + 12 + 17  # where the branches end
    apart = pack(config, [[Prompt(np.concatenate([trunk.tokens, part]), trunk.clips)] for part in questions], **BUCKET)
    together = branched(reference, trunk, questions)
    assert together.vision.valid.any(-1).sum() == 3  # the video once
    assert apart.vision.valid.any(-1).sum() == 6

    pull = random_cotangent(reference, second, 0)
    apart_pull, together_pull = cotangent_rows(reference), cotangent_rows(reference)
    apart_pull[0, :first], together_pull[0, :second] = pull[:first], pull
    apart_pull[1, len(trunk.tokens) : len(trunk.tokens) + 17] = pull[first:]

    want, want_gradient = reference.logits_and_gradient(apart, apart_pull)
    found, gradient = reference.logits_and_gradient(together, together_pull)
    of_second = want[1, len(trunk.tokens) : len(trunk.tokens) + 17]
    errors = [deviation(found[0, :first], want[0, :first]), deviation(found[0, first:second], of_second)]
    record_property("logits", max(errors))
    assert max(errors) <= TOLERANCE
    assert_same_gradients(gradient, want_gradient, record_property)

    one_branch = replace(together, branch=np.minimum(together.branch, 1))
    merged, _ = reference.logits_and_gradient(one_branch, together_pull)
    assert deviation(merged[0, first:second], of_second) > 100 * TOLERANCE  # branches matter


@pytest.mark.parametrize("remat", [True, "attention"])
def test_gradient_is_that_of_torch(periodic: Reference, record_property, remat):
    """Every parameter's gradient against torch's own backward pass; rematerialised, whole or in part, against not."""
    prompt = compose(periodic.config, 8, 5, ((2, 6, 10), 1.0), 8)
    rows, pull = pack(periodic.config, [[prompt], []], **BUCKET), cotangent_rows(periodic)
    pull[0, : len(prompt.tokens)] = random_cotangent(periodic, len(prompt.tokens), 2)
    logits, gradient = periodic.logits_and_gradient(rows, pull)
    rematerialised = jax.jit(jax.grad(periodic.function(partial(loss, remat=remat)), has_aux=True))
    again, again_logits = rematerialised(periodic.params, rows, pull)
    assert deviation(np.asarray(again_logits), logits) <= TOLERANCE
    assert_same_gradients(again, gradient, record_property)
    theirs, worst = periodic.torch_gradients(prompt, pull[0, : len(prompt.tokens)]), 0.0
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(theirs), strict=True):
        worst = max(worst, relative(np.asarray(one), np.asarray(other)))
    record_property("gradient against torch", worst)
    assert worst <= 1e-4


def test_uncompiled_and_rematerialised_forward(reference: Reference, record_property):
    rows = pack(reference.config, [[compose(reference.config, 6, 5, ((2, 6, 10), 1.0), 8)]])
    want, features = reference.outputs(rows)
    model = nnx.merge(reference.graph, reference.params)
    logits, eager = forward(model, rows, remat=True)
    record_property("logits", deviation(np.asarray(logits), want))
    assert deviation(np.asarray(logits), want) <= TOLERANCE
    assert relative(np.asarray(eager)[rows.feature_index[rows.feature_index >= 0]], features) <= 2e-6


def test_bfloat16_stays_bfloat16(periodic: Reference):
    """Hidden states and features keep the parameters' type; logits are float32 and near those of float32 weights."""
    prompt = compose(periodic.config, 6, 5, ((2, 6, 10), 1.0), 8)
    rows = pack(periodic.config, [[prompt]])
    params = cast_parameters(periodic.params, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    types = {}

    def watched(model, rows):
        logits, features = forward(model, rows)
        types["embedded"] = model.embed(rows.tokens, features, rows.feature_index).dtype
        return logits, features

    logits, features = periodic.function(watched)(params, rows)
    assert (features.dtype, types["embedded"], logits.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    exact, _ = periodic.outputs(rows)
    # Weights rounded to 8 bits under sharp attention: alike, not equal.
    assert np.corrcoef(np.asarray(logits).ravel(), exact.ravel())[0, 1] > 0.98
