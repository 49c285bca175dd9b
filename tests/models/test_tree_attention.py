"""The fused forms of attention within rows against softmax by hand in float64 and the plain form, values and gradients.

TPU kernels are interpreted here, and compiled for TPUs in tests/planning; the three calls for GPUs run with a plain
kernel in cuDNN's place.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.test_attention import arrays, close, naive_rows, pulled
from vrjax.models import tree_attention_gpu, tree_attention_tpu
from vrjax.models.attention import Reach, Visibility, row_attention
from vrjax.models.tree_blocks import Blocks, block_table, choose_blocks, describe_rows

BATCH, LENGTH, HEADS, KEY_HEADS, SIZE = 2, 61, 4, 2, 8
SHAPE, KEY_SHAPE = (BATCH, LENGTH, HEADS, SIZE), (BATCH, LENGTH, KEY_HEADS, SIZE)
BLOCKS = Blocks(queries=8, keys=16, steps=4, interpret=True)
TRUNK, BRANCH, BRANCHES = 30, 12, 4


def labelled(lengths: list[int], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Segment and branch of a row: a trunk of lengths[0] tokens, then the branches, then padding."""
    branch = np.repeat(np.arange(len(lengths)), lengths)
    segment = np.ones_like(branch)
    return tuple(np.pad(x, (0, length - len(branch))).astype(np.int32) for x in (segment, branch))  # type: ignore[return-value]


trees = st.lists(
    st.tuples(st.integers(1, TRUNK), st.lists(st.integers(0, BRANCH), min_size=0, max_size=BRANCHES)).filter(
        lambda row: row[0] + sum(row[1]) <= LENGTH
    ),
    min_size=BATCH,
    max_size=BATCH,
).map(lambda rows: [np.stack(x) for x in zip(*(labelled([trunk, *rest], LENGTH) for trunk, rest in rows), strict=True)])
any_labels = st.lists(st.integers(0, 2), min_size=BATCH * LENGTH, max_size=BATCH * LENGTH).map(
    lambda values: np.array(values, np.int32).reshape(BATCH, LENGTH)
)


def by_kernels(q, k, v, segment, branch, pull, blocks=BLOCKS):
    rows = describe_rows(Visibility(segment, branch), blocks, HEADS // KEY_HEADS)
    return pulled(lambda q, k, v: tree_attention_tpu.tree_attention(q, k, v, rows, blocks), pull, q, k, v)


def by_three_calls(q, k, v, segment, branch, pull):
    rows = tree_attention_gpu.describe_rows(Visibility(segment, branch), Reach(TRUNK, BRANCH, BRANCHES))
    kernel = tree_attention_gpu.PlainKernel()
    return pulled(lambda q, k, v: tree_attention_gpu.tree_attention(q, k, v, rows, kernel), pull, q, k, v)


kernels, three_calls = jax.jit(by_kernels), jax.jit(by_three_calls)


@settings(max_examples=25, deadline=None)
@given(segment=any_labels, branch=any_labels, seed=st.integers(0, 1000), sharpness=st.sampled_from([0.1, 1.0, 12.0]))
def test_kernels_under_any_labels(segment, branch, seed: int, sharpness: float):
    q, k, v, pull = arrays(seed, sharpness, SHAPE, KEY_SHAPE, KEY_SHAPE, SHAPE)
    found = kernels(q, k, v, segment, branch, pull)
    close(found, naive_rows(q, k, v, segment, branch, pull))
    assert (np.asarray(found[0])[segment == 0] == 0).all()


@pytest.mark.parametrize("form", [kernels, three_calls], ids=["kernels", "three calls"])
def test_both_forms_on_trees(form):
    @settings(max_examples=25, deadline=None)
    @given(labels=trees, seed=st.integers(0, 1000), sharpness=st.sampled_from([0.1, 1.0, 6.0]))
    def check(labels, seed: int, sharpness: float) -> None:
        segment, branch = labels
        q, k, v, pull = arrays(seed, sharpness, SHAPE, KEY_SHAPE, KEY_SHAPE, SHAPE)
        used = segment[..., None, None] > 0
        pull = pull * used  # nobody reads padding
        found = form(q, k, v, segment, branch, pull)
        want = naive_rows(q, k, v, segment, branch, pull)
        close([np.asarray(found[0]) * used, *found[1:]], want)

    check()


@pytest.mark.slow
def test_rows_as_the_update_has_them():
    """Blocks as on a TPU, of which no more are read than the rows' reach allows: fewer than the row has. Against the
    plain form.
    """
    lengths = [[700, *[90, 128, 5, 77, 128] * 4], [512, *[128] * 19]]
    length = 3000
    segment, branch = (np.stack(x) for x in zip(*(labelled(row, length) for row in lengths), strict=True))
    blocks = choose_blocks(length, HEADS // KEY_HEADS, Reach(700, 128), interpret=True)
    assert (blocks.queries, blocks.keys, blocks.steps) == (512, 512, 5)
    shape, key_shape = (2, length, 2, SIZE), (2, length, 1, SIZE)
    q, k, v, pull = arrays(3, 2.0, shape, key_shape, key_shape, shape)
    pull *= segment[..., None, None] > 0
    found = jax.jit(partial(by_kernels, blocks=blocks))(q, k, v, segment, branch, pull)
    plain = pulled(lambda q, k, v: row_attention(q, k, v, Visibility(segment, branch)), pull, q, k, v)
    close(found, plain)
    reads = describe_rows(Visibility(segment, branch), replace(blocks, steps=6), 2).table.reads_count
    assert int(reads.max()) <= blocks.steps


@settings(max_examples=40, deadline=None)
@given(labels=trees)
def test_no_block_is_left_out_and_none_is_whole_that_is_not(labels):
    segment, branch = (jnp.asarray(x) for x in labels)
    padded = BLOCKS.padded(LENGTH)
    codes = jnp.pad(jnp.where(segment > 0, segment * (1 << 16) + branch, 0), ((0, 0), (0, padded - LENGTH)))
    table = jax.device_get(block_table(codes, BLOCKS))
    seen = np.asarray(Visibility(segment, branch).mask(slice(None), slice(None)))
    seen = np.pad(seen, ((0, 0), (0, padded - LENGTH), (0, padded - LENGTH)))
    tiles = seen.reshape(BATCH, padded // BLOCKS.queries, BLOCKS.queries, -1, BLOCKS.keys).transpose(0, 1, 3, 2, 4)
    for row, i in np.ndindex(*table.reads_count.shape):
        entries = table.reads[row, i, : table.reads_count[row, i]]
        listed = {int(entry) // 2: bool(entry % 2) for entry in entries}
        assert set(np.flatnonzero(tiles[row, i].any((1, 2)))) <= set(listed)
        assert all(tiles[row, i, j].all() for j, whole in listed.items() if whole)
    for row, j in np.ndindex(*table.read_by_count.shape):
        entries = table.read_by[row, j, : table.read_by_count[row, j]]
        assert set(np.flatnonzero(tiles[row, :, j].any((1, 2)))) <= {int(entry) // 2 for entry in entries}


def test_three_calls_lower_to_cudnn():
    """Without a GPU they are not run, but JAX checks shapes and writes the calls: three forward, three backward."""
    shape, key_shape = (2, 1024, 8, 128), (2, 1024, 2, 128)
    arrays = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in (shape, key_shape, key_shape, shape)]
    ids = jax.ShapeDtypeStruct(shape[:2], jnp.int32)

    def gradients(q, k, v, pull, segment, branch):
        rows = tree_attention_gpu.describe_rows(Visibility(segment, branch), Reach(704, 128, 4))
        return pulled(lambda q, k, v: tree_attention_gpu.tree_attention(q, k, v, rows), pull, q, k, v)

    text = jax.jit(gradients).trace(*arrays, ids, ids).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__cudnn$fmhaSoftmax(") == 3
    assert text.count("@__cudnn$fmhaSoftmaxBackward(") == 3


@pytest.mark.gpu
def test_cudnn_equals_the_plain_form():
    """bfloat16, as cuDNN has it: within its rounding of the plain form in float32."""
    segment, branch = (np.stack(x) for x in zip(labelled([700, 90, 128, 5, 77], 1024), strict=True))
    shape, key_shape = (1, 1024, 8, 128), (1, 1024, 2, 128)
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in arrays(0, 1.0, shape, key_shape, key_shape, shape)]
    *inputs, pull = inputs
    pull *= segment[..., None, None] > 0
    rows = tree_attention_gpu.describe_rows(Visibility(segment, branch), Reach(704, 128, 4))
    found = pulled(lambda q, k, v: tree_attention_gpu.tree_attention(q, k, v, rows), pull, *inputs)
    wide = [x.astype(jnp.float32) for x in (pull, *inputs)]
    plain = pulled(lambda q, k, v: row_attention(q, k, v, Visibility(segment, branch)), *wide)
    for mine, theirs in zip(found, plain, strict=True):
        used = segment[..., None, None] > 0
        error = np.abs(np.asarray(mine, np.float32) - theirs) * used
        assert error.max() <= 0.03 * max(np.abs(theirs).max(), 1.0)
