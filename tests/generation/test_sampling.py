"""Sampling against sorted references and against the softmax itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.generation.sampling import SamplingOptions, draw, row_keys, top_k_mask, top_p_mask

VOCABULARY = 50


def nucleus_by_sorting(probabilities: np.ndarray, top_p: float) -> np.ndarray:
    order = np.argsort(-probabilities, kind="stable")
    mass = np.cumsum(probabilities[order])
    count = int(np.searchsorted(mass, top_p)) + 1
    kept = np.zeros(len(probabilities), bool)
    kept[order[:count]] = True
    return kept


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.99), st.floats(0.1, 6.0))
def test_top_p_keeps_the_nucleus_that_sorting_finds(seed, top_p, sharpness):
    logits = np.random.default_rng(seed).normal(size=VOCABULARY) * sharpness
    probabilities = (np.exp(logits) / np.exp(logits).sum()).astype(np.float32)
    kept = np.asarray(top_p_mask(jnp.asarray(probabilities), jnp.float32(top_p)))
    wanted = nucleus_by_sorting(probabilities.astype(np.float64), top_p)
    if (kept != wanted).any():  # only where the mass lies within rounding of top_p
        mass = probabilities[wanted].astype(np.float64).sum()
        smallest = probabilities[wanted].min()
        assert min(abs(mass - top_p), abs(mass - smallest - top_p)) < 1e-5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, VOCABULARY))
def test_top_k_keeps_the_k_largest(seed, k):
    logits = np.random.default_rng(seed).normal(size=(3, VOCABULARY)).astype(np.float32)
    kept = np.asarray(top_k_mask(jnp.asarray(logits), jnp.int32(k)))
    wanted = logits >= np.sort(logits, axis=-1)[:, -k][:, None]
    np.testing.assert_array_equal(kept, wanted)


def sample(logits, options, rows, position=0, allowed=None, ends=None, seed=0):
    keys = row_keys(seed, 0, np.arange(rows), np.arange(1))
    allowed = np.ones(logits.shape[-1], bool) if allowed is None else allowed
    ends = np.zeros(logits.shape[-1], bool) if ends is None else ends
    wide = jnp.broadcast_to(jnp.asarray(logits), (rows, 1, logits.shape[-1]))
    out = draw(
        wide, keys, jnp.int32(position), jnp.asarray(allowed), jnp.asarray(ends), options.numbers(), options.kind
    )
    return [np.asarray(part)[:, 0] for part in out]


def test_frequencies_follow_the_tempered_softmax():
    logits = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    tokens, raw, processed = sample(logits, SamplingOptions(temperature=0.7), rows=20_000)
    expected = np.exp(logits / 0.7) / np.exp(logits / 0.7).sum()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / 20_000, expected, atol=0.012)
    np.testing.assert_allclose(raw, np.log(expected)[tokens], atol=1e-5)
    np.testing.assert_allclose(processed, raw, atol=1e-6)


def test_raw_log_probs_ignore_bans_and_truncation_and_processed_ones_do_not():
    logits = np.array([3.0, 2.0, 1.0, 0.0], np.float32)
    allowed = np.array([False, True, True, True])
    tokens, raw, processed = sample(logits, SamplingOptions(top_k=2), rows=500, allowed=allowed)
    assert set(tokens) == {1, 2}
    full = np.log(np.exp(logits) / np.exp(logits).sum())
    np.testing.assert_allclose(raw, full[tokens], atol=1e-5)
    two = np.exp(logits[1:3]) / np.exp(logits[1:3]).sum()
    np.testing.assert_allclose(np.exp(processed), two[tokens - 1], atol=1e-5)


def test_greedy_takes_the_best_allowed_token_and_min_tokens_holds_back_the_end():
    logits = np.array([0.0, 5.0, 4.0], np.float32)
    ends = np.array([False, True, False])
    options = SamplingOptions(temperature=0, min_tokens=3)
    assert sample(logits, options, 1, position=2, ends=ends)[0][0] == 2
    assert sample(logits, options, 1, position=3, ends=ends)[0][0] == 1


def test_a_draw_depends_on_its_address_alone():
    logits = np.zeros(1000, np.float32)
    alone = sample(logits, SamplingOptions(), rows=1)[0]
    crowd = sample(logits, SamplingOptions(), rows=7)[0]
    assert alone[0] == crowd[0]
    assert len(set(crowd.tolist())) > 1
    assert sample(logits, SamplingOptions(), rows=1, position=1)[0] != alone
    assert sample(logits, SamplingOptions(), rows=1, seed=1)[0] != alone


def test_every_part_of_the_address_matters():
    keys = np.asarray(row_keys(1, 2, np.arange(4), np.arange(5))).reshape(20, -1)
    assert len({tuple(key) for key in keys}) == 20
    other = np.asarray(row_keys(1, 3, np.arange(4), np.arange(5))).reshape(20, -1)
    assert not (keys == other).all(axis=1).any()


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": -2},
        {"max_tokens": 0},
        {"max_tokens": 4, "min_tokens": 5},
    ],
)
def test_senseless_options_are_refused(bad):
    with pytest.raises(InputError):
        SamplingOptions(**bad)


def test_jit_and_eager_agree():
    logits = np.random.default_rng(0).normal(size=64).astype(np.float32)
    options = SamplingOptions(top_p=0.8, temperature=1.3)
    keys = row_keys(0, 0, np.arange(8), np.arange(1))
    args = (
        jnp.broadcast_to(logits, (8, 1, 64)),
        keys,
        jnp.int32(0),
        jnp.ones(64, bool),
        jnp.zeros(64, bool),
        options.numbers(),
    )
    eager = draw(*args, options.kind)
    compiled = jax.jit(draw, static_argnums=6)(*args, options.kind)
    np.testing.assert_array_equal(eager[0], compiled[0])
