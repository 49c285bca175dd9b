"""row_attention and suffix_attention against a naive float64 softmax, values and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrjax.models import attention
from vrjax.models.attention import Reach, Visibility, row_attention, suffix_attention

BATCH, LENGTH, HEADS, KEY_HEADS, SIZE = 2, 13, 6, 2, 4


def naive(q, k, v, mask, pull):
    """One head: q [Q, E], k and v [T, E], mask [Q, T], pull [Q, E] (cotangent). Output and gradients by hand.

    P = softmax(q k^T / sqrt(E)); dV = P^T dO; dS = P (dP - sum(dP P)) with dP = dO V^T.
    """
    q, k, v, pull = (np.asarray(x, np.float64) for x in (q, k, v, pull))
    scores = np.where(mask, q @ k.T * q.shape[-1] ** -0.5, -np.inf)
    top = np.where(mask.any(-1), np.where(mask, scores, -1e300).max(-1), 0.0)
    weights = np.exp(scores - top[:, None])
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    d_weights = pull @ v.T
    d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) * q.shape[-1] ** -0.5
    return weights @ v, d_scores @ k, d_scores.T @ q, weights.T @ pull


def naive_rows(q, k, v, segment, branch, pull):
    """All rows and heads, with the mask spelled out token by token."""
    batch, length, heads, _ = q.shape
    ratio = heads // k.shape[2]
    out, dq, dk, dv = (np.zeros(x.shape) for x in (q, q, k, v))
    for row in range(batch):
        mask = np.zeros((length, length), bool)
        for query in range(length):
            for key in range(query + 1):
                same = segment[row, query] == segment[row, key] != 0
                mask[query, key] = same and branch[row, key] in (0, branch[row, query])
        for head in range(heads):
            own = head // ratio
            result = naive(q[row, :, head], k[row, :, own], v[row, :, own], mask, pull[row, :, head])
            out[row, :, head], dq[row, :, head] = result[0], result[1]
            dk[row, :, own] += result[2]
            dv[row, :, own] += result[3]
    return out, dq, dk, dv


def arrays(seed: int, sharpness: float, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Random arrays, the first (queries) multiplied by `sharpness`."""
    rng = np.random.default_rng(seed)
    first, *rest = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return [sharpness * first, *rest]


def close(found, want, tolerance: float = 2e-5) -> None:
    for mine, theirs in zip(found, want, strict=True):
        assert np.abs(np.asarray(mine) - theirs).max() <= tolerance * max(np.abs(theirs).max(), 1.0)


def pulled(call, pull, *inputs):
    """Output, then the gradients of sum(output x pull)."""
    out, back = jax.vjp(call, *inputs)
    return out, *back(pull)


labels = st.lists(st.integers(0, 2), min_size=BATCH * LENGTH, max_size=BATCH * LENGTH).map(
    lambda values: np.array(values, np.int32).reshape(BATCH, LENGTH)
)


@pytest.fixture(scope="module")
def blockwise():
    """Compiled with blocks of 5 queries, so that 13 tokens make three blocks, the last one short."""
    sizes = attention.QUERY_BLOCK, attention.ONE_BLOCK
    attention.QUERY_BLOCK, attention.ONE_BLOCK = 5, 4

    @jax.jit
    def call(q, k, v, segment, branch, pull):
        visibility = Visibility(segment, branch)
        return pulled(lambda q, k, v: row_attention(q, k, v, visibility), pull, q, k, v)

    shape, key_shape = (BATCH, LENGTH, HEADS, SIZE), (BATCH, LENGTH, KEY_HEADS, SIZE)
    zeros, ids = partial(np.zeros, dtype=np.float32), np.zeros((BATCH, LENGTH), np.int32)
    call(zeros(shape), zeros(key_shape), zeros(key_shape), ids, ids, zeros(shape))
    attention.QUERY_BLOCK, attention.ONE_BLOCK = sizes
    return call


@settings(max_examples=60, deadline=None)
@given(segment=labels, branch=labels, seed=st.integers(0, 1000), sharpness=st.sampled_from([0.1, 1.0, 4.0, 12.0]))
def test_rows_under_any_labels(blockwise, segment, branch, seed: int, sharpness: float):
    shape, key_shape = (BATCH, LENGTH, HEADS, SIZE), (BATCH, LENGTH, KEY_HEADS, SIZE)
    q, k, v, pull = arrays(seed, sharpness, shape, key_shape, key_shape, shape)
    found = blockwise(q, k, v, segment, branch, pull)
    close(found, naive_rows(q, k, v, segment, branch, pull))
    assert (np.asarray(found[0])[segment == 0] == 0).all()


TRUNK, BRANCH = 40, 9
trees = st.lists(
    st.tuples(st.integers(1, TRUNK), st.lists(st.integers(0, BRANCH), max_size=9)), min_size=BATCH, max_size=BATCH
)


@pytest.fixture(scope="module")
def in_loops():
    """Compiled with blocks of 4 queries and few written out, so that 121 tokens go in 7 loops, and one behind the trunk
    where it is known how far the rows reach.
    """
    names = "QUERY_BLOCK", "ONE_BLOCK", "BLOCKS_AT_ONCE", "LOOPS"
    kept = [getattr(attention, name) for name in names]
    for name, value in zip(names, (4, 4, 2, 7), strict=True):
        setattr(attention, name, value)

    def compiled(reach):
        @jax.jit
        def call(q, k, v, segment, branch, pull):
            visibility = Visibility(segment, branch)
            return pulled(lambda q, k, v: row_attention(q, k, v, visibility, reach), pull, q, k, v)

        shape, key_shape = (BATCH, 121, HEADS, SIZE), (BATCH, 121, KEY_HEADS, SIZE)
        zeros, ids = partial(np.zeros, dtype=np.float32), np.zeros((BATCH, 121), np.int32)
        call(zeros(shape), zeros(key_shape), zeros(key_shape), ids, ids, zeros(shape))
        return call

    calls = [compiled(reach) for reach in (None, Reach(TRUNK, BRANCH))]
    for name, value in zip(names, kept, strict=True):
        setattr(attention, name, value)
    return calls


@settings(max_examples=20, deadline=None)
@given(rows=trees, seed=st.integers(0, 1000), sharpness=st.sampled_from([0.1, 1.0, 8.0]))
def test_trees_in_loops_with_and_without_their_reach(in_loops, rows, seed: int, sharpness: float):
    labels = np.zeros((2, BATCH, 121), np.int32)
    for row, (trunk, branches) in enumerate(rows):
        branch = np.repeat(np.arange(len(branches) + 1), [trunk, *branches])
        labels[:, row, : len(branch)] = np.ones_like(branch), branch
    shape, key_shape = (BATCH, 121, HEADS, SIZE), (BATCH, 121, KEY_HEADS, SIZE)
    q, k, v, pull = arrays(seed, sharpness, shape, key_shape, key_shape, shape)
    want = naive_rows(q, k, v, *labels, pull)
    for call in in_loops:
        close(call(q, k, v, *labels, pull), want)


def test_rows_longer_than_two_query_blocks():
    length = 550
    assert length > 2 * attention.QUERY_BLOCK
    shape, key_shape = (1, length, 2, 4), (1, length, 1, 4)
    q, k, v, pull = arrays(0, 3.0, shape, key_shape, key_shape, shape)
    segment = np.repeat([1, 2, 0], [300, length - 310, 10])[None]
    branch = np.repeat([0, 1, 2, 0], [300, 100, 120, length - 520])[None]
    visibility = Visibility(jnp.asarray(segment), jnp.asarray(branch))
    call = jax.jit(
        lambda *inputs: pulled(lambda q, k, v: row_attention(q, k, v, visibility), jnp.asarray(pull), *inputs)
    )
    close(call(q, k, v), naive_rows(q, k, v, segment, branch, pull))


SAMPLES, PREFIX, SUFFIX = 3, 7, 5


@jax.jit
def compiled_suffix(q, new_k, new_v, prefix_k, prefix_v, suffix_k, suffix_v, prefix_mask, suffix_mask, pull):
    def call(q, new_k, new_v, prefix_k, prefix_v, suffix_k, suffix_v):
        prefix, suffix = (jnp.swapaxes(prefix_k, 2, 3), prefix_v), (suffix_k, suffix_v)  # keys lie transposed
        return suffix_attention(q, new_k, new_v, prefix, prefix_mask, suffix, suffix_mask)

    return pulled(call, pull, q, new_k, new_v, prefix_k, prefix_v, suffix_k, suffix_v)


@settings(max_examples=60, deadline=None)
@given(
    prefix_mask=st.lists(st.booleans(), min_size=BATCH * PREFIX, max_size=BATCH * PREFIX),
    filled=st.integers(0, SUFFIX),
    seed=st.integers(0, 1000),
    sharpness=st.sampled_from([0.1, 1.0, 4.0, 12.0]),
)
def test_new_token_reads_prefix_suffix_and_itself(prefix_mask, filled: int, seed: int, sharpness: float):
    """All samples of a prompt share its prefix; its gradient is the sum over samples and over heads."""
    new_shape = (BATCH, SAMPLES, KEY_HEADS, SIZE)
    prefix_shape, suffix_shape = (BATCH, KEY_HEADS, PREFIX, SIZE), (BATCH, SAMPLES, KEY_HEADS, SUFFIX, SIZE)
    shape = (BATCH, SAMPLES, HEADS, SIZE)
    q, *inputs, pull = arrays(
        seed, sharpness, shape, new_shape, new_shape, prefix_shape, prefix_shape, suffix_shape, suffix_shape, shape
    )
    new_k, new_v, prefix_k, prefix_v, suffix_k, suffix_v = inputs
    seen, own = np.array(prefix_mask).reshape(BATCH, PREFIX), np.arange(SUFFIX) < filled
    out, dq = np.zeros(shape), np.zeros(shape)
    gradients = [np.zeros(x.shape) for x in inputs]
    for row, sample, head in np.ndindex(BATCH, SAMPLES, HEADS):
        key_head = head // (HEADS // KEY_HEADS)
        here, one, prefix = (row, sample, slice(head, head + 1)), (row, sample, key_head), (row, key_head)
        out[here], dq[here], dk, dv = naive(
            q[here],
            np.concatenate([prefix_k[prefix], suffix_k[one], new_k[one][None]]),
            np.concatenate([prefix_v[prefix], suffix_v[one], new_v[one][None]]),
            np.concatenate([seen[row], own, [True]])[None],
            pull[here],
        )
        for part, place, entries in (
            (0, one, slice(PREFIX + SUFFIX, None)),
            (2, prefix, slice(0, PREFIX)),
            (4, one, slice(PREFIX, PREFIX + SUFFIX)),
        ):
            gradients[part][place] += dk[entries].reshape(gradients[part][place].shape)
            gradients[part + 1][place] += dv[entries].reshape(gradients[part][place].shape)
    close(compiled_suffix(q, *inputs, seen, own, pull), [out, dq, *gradients])


def test_large_scores_do_not_overflow():
    shape, key_shape = (1, 4, 2, 4), (1, 4, 1, 4)
    q, k, v = arrays(0, 1e4, shape, key_shape, key_shape)
    ones = np.ones((1, 4), np.int32)
    out = row_attention(
        jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), Visibility(jnp.asarray(ones), jnp.asarray(0 * ones))
    )
    assert np.isfinite(np.asarray(out)).all()
    want = naive_rows(q, k, v, ones, 0 * ones, np.zeros(shape))[0]
    np.testing.assert_allclose(out, want, atol=1e-2)


def test_mask_of_the_drawing():
    """Trunk of three, branches of three and two, as drawn in vrjax.models.attention."""
    visibility = Visibility(jnp.ones((1, 8), jnp.int32), jnp.array([[0, 0, 0, 1, 1, 1, 2, 2]]))
    rows = ["x.......", "xx......", "xxx.....", "xxxx....", "xxxxx...", "xxxxxx..", "xxx...x.", "xxx...xx"]
    found = visibility.mask(slice(0, 8), slice(0, 8))[0]
    assert ["".join("x" if seen else "." for seen in row) for row in np.asarray(found)] == rows
