"""Attention within packed rows as kernels for TPUs (Pallas): `attention.row_attention` without scores in HBM.

Flash attention (Dao et al. 2022; Dao 2023) over the blocks that hold anything to see (`tree_blocks`).

Scores stand transposed, [keys, queries]: maxima and sums then run down the rows and leave one row of numbers, which is
the layout in which log-sum-exps are kept.

Letters as in `attention`; also I and J, blocks of queries and of keys, and Z = R · (queries of a block): the rows of
all heads that share a key head. Numbers of a block of queries lie as [E, Z].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from vrjax.models.attention import KEPT, NEGATIVE
from vrjax.models.tree_blocks import SEGMENT, Blocks, BlockTable, TreeRows

FORWARD, OF_QUERIES, OF_KEYS = "tree_attention", "tree_attention_of_queries", "tree_attention_of_keys"


def tree_attention(
    q: Float[Array, "B S H E"], k: Float[Array, "B S K E"], v: Float[Array, "B S K E"], rows: TreeRows, blocks: Blocks
) -> Float[Array, "B S H E"]:
    """`attention.row_attention` by kernels; rows: of `describe_rows`, for the same blocks and H / K."""
    batch, length, heads, size = q.shape
    key_heads, padded = k.shape[2], blocks.padded(length)
    ratio = heads // key_heads
    q, k, v = (jnp.pad(x, ((0, 0), (0, padded - length), (0, 0), (0, 0))) for x in (q, k, v))
    q = q.reshape(batch, -1, blocks.queries, key_heads, ratio, size).transpose(0, 3, 1, 5, 4, 2)
    q = q.reshape(*q.shape[:4], -1)  # [B, K, I, E, Z]
    k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    out: Any = _attend(q, k, v, rows.of_queries, rows.of_keys, rows.table, blocks)
    out = out.reshape(*out.shape[:4], ratio, blocks.queries).transpose(0, 2, 5, 1, 4, 3)
    return out.reshape(batch, padded, heads, size)[:, :length]


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def _attend(
    q: Array, k: Array, v: Array, of_queries: Array, of_keys: Array, table: BlockTable, blocks: Blocks
) -> Array:
    return _forward(q, k, v, of_queries, of_keys, table, blocks)[0]


def _forward(q: Array, k: Array, v: Array, of_queries: Array, of_keys: Array, table: BlockTable, blocks: Blocks) -> Any:
    batch, key_heads, count, size, rows = q.shape
    of_i = _Specs(blocks, size, rows, from_queries=True)
    out, log_total = pl.pallas_call(
        partial(_forward_kernel, blocks=blocks),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, key_heads, count, table.reads.shape[2]),
            in_specs=[of_i.query, of_i.key, of_i.key_transposed, of_i.query_code, of_i.key_code],
            out_specs=[of_i.query, of_i.query_row],
            scratch_shapes=[pltpu.VMEM((size, rows), jnp.float32), *[pltpu.VMEM((1, rows), jnp.float32)] * 2],
        ),
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((batch, key_heads, count, 1, rows), jnp.float32),
        ],
        compiler_params=_COMPILER,
        interpret=blocks.interpret,
        name=FORWARD,
        cost_estimate=_cost(q, k, blocks, 2),
    )(table.reads, table.reads_count, q, k, v.swapaxes(2, 3), of_queries, of_keys)
    out, log_total = checkpoint_name(out, KEPT), checkpoint_name(log_total, KEPT)
    return out, (q, k, v, of_queries, of_keys, table, out, log_total)


def _gradients(blocks: Blocks, kept: Any, pull: Float[Array, "B K I E Z"]) -> tuple[Any, ...]:
    q, k, v, of_queries, of_keys, table, out, log_total = kept
    batch, key_heads, count, size, rows = q.shape
    mean = (pull.astype(jnp.float32) * out.astype(jnp.float32)).sum(3, keepdims=True)
    pull = pull.astype(q.dtype)
    of_i, of_j = (_Specs(blocks, size, rows, from_queries=side) for side in (True, False))
    (of_q,) = pl.pallas_call(
        partial(_query_kernel, blocks=blocks),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, key_heads, count, table.reads.shape[2]),
            in_specs=[of_i.query, of_i.key, of_i.key_transposed, of_i.key, of_i.query_code, of_i.key_code, of_i.query,
                      of_i.query_row, of_i.query_row],
            out_specs=[of_i.query],
            scratch_shapes=[pltpu.VMEM((size, rows), jnp.float32)],
        ),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)],
        compiler_params=_COMPILER,
        interpret=blocks.interpret,
        name=OF_QUERIES,
        cost_estimate=_cost(q, k, blocks, 3),
    )(table.reads, table.reads_count, q, k, k.swapaxes(2, 3), v, of_queries, of_keys, pull, log_total,
      mean)  # fmt: skip
    of_k, of_v = pl.pallas_call(
        partial(_key_kernel, blocks=blocks),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, key_heads, k.shape[2] // blocks.keys, count),
            in_specs=[of_j.query, of_j.key, of_j.key, of_j.query_code, of_j.key_code, of_j.query, of_j.query_row,
                      of_j.query_row],
            out_specs=[of_j.key, of_j.key],
            scratch_shapes=[pltpu.VMEM((blocks.keys, size), jnp.float32)] * 2,
        ),
        out_shape=[jax.ShapeDtypeStruct(k.shape, k.dtype), jax.ShapeDtypeStruct(v.shape, v.dtype)],
        compiler_params=_COMPILER,
        interpret=blocks.interpret,
        name=OF_KEYS,
        cost_estimate=_cost(q, k, blocks, 4),
    )(table.read_by, table.read_by_count, q, k, v, of_queries, of_keys, pull, log_total, mean)  # fmt: skip
    return of_q, of_k, of_v, None, None, None


def _cost(q: Array, k: Array, blocks: Blocks, products: int) -> pl.CostEstimate:
    """Work of a kernel that multiplies so many times for each pair of blocks, if trunks and branches are the longest
    that the rows allow.
    """
    batch, key_heads, count, size, rows = q.shape
    pairs = sum(min(blocks.steps, -(-(i + 1) * blocks.queries // blocks.keys)) for i in range(count))
    pairs *= batch * key_heads
    passing = products * (q.size * q.dtype.itemsize + pairs * blocks.keys * size * k.dtype.itemsize) // 2
    return pl.CostEstimate(
        flops=2 * products * pairs * blocks.keys * size * rows,
        transcendentals=pairs * blocks.keys * rows,
        bytes_accessed=passing,
    )


_attend.defvjp(_forward, _gradients)
_COMPILER = pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"))


class _Specs:
    """Which block of each array a step of a grid (row, key head, block, step) works on. from_queries: the grid's blocks
    are those of queries, and the table names key blocks; else the other way round.
    """

    def __init__(self, blocks: Blocks, size: int, rows: int, *, from_queries: bool) -> None:
        def i_of(b: Any, block: Any, step: Any, table: Any) -> Any:
            return block if from_queries else table[b, block, step] >> 1

        def j_of(b: Any, block: Any, step: Any, table: Any) -> Any:
            return table[b, block, step] >> 1 if from_queries else block

        def at_query(b: Any, head: Any, block: Any, step: Any, table: Any, _: Any) -> Any:
            return b, head, i_of(b, block, step, table), 0, 0

        self.query = pl.BlockSpec((None, None, None, size, rows), at_query)
        self.query_row = pl.BlockSpec((None, None, None, 1, rows), at_query)
        self.query_code = pl.BlockSpec(
            (None, None, 1, rows), lambda b, head, block, step, table, _: (b, i_of(b, block, step, table), 0, 0)
        )
        self.key = pl.BlockSpec(
            (None, None, blocks.keys, size),
            lambda b, head, block, step, table, _: (b, head, j_of(b, block, step, table), 0),
        )
        self.key_transposed = pl.BlockSpec(
            (None, None, size, blocks.keys),
            lambda b, head, block, step, table, _: (b, head, 0, j_of(b, block, step, table)),
        )
        self.key_code = pl.BlockSpec(
            (None, blocks.keys, 1), lambda b, head, block, step, table, _: (b, j_of(b, block, step, table), 0)
        )


def _product(a: Array, b: Array, contract: tuple[int, int] = (1, 0)) -> Float[Array, "M N"]:
    return jax.lax.dot_general(a, b, (((contract[0],), (contract[1],)), ((), ())), preferred_element_type=jnp.float32)


def _scores(q: Array, k: Array, query_code: Array | None, key_code: Array, i: Any, j: Any, blocks: Blocks) -> Array:
    """[keys, Z] of two blocks. query_code None: all of it is seen."""
    scores = _product(k, q) * q.shape[0] ** -0.5
    if query_code is None:
        return scores
    place = jax.lax.broadcasted_iota(jnp.int32, (1, q.shape[1]), 1) & (blocks.queries - 1)
    query_at = i * blocks.queries + place
    key_at = j * blocks.keys + jax.lax.broadcasted_iota(jnp.int32, (k.shape[0], 1), 0)
    trunk = query_code & ~jnp.int32(SEGMENT - 1)
    seen = (key_at <= query_at) & ((key_code == query_code) | (key_code == trunk))
    return jnp.where(seen, scores, NEGATIVE)


def _for_each(table: Any, count: Any, step_of: Callable[[Any, bool], None]) -> None:
    """Call step_of(number of the other block, whether it needs the mask) where this step of the grid has work."""
    b, block, step = pl.program_id(0), pl.program_id(2), pl.program_id(3)
    entry, due = table[b, block, step], step < count[b, block]

    @pl.when(due & ((entry & 1) == 1))
    def _() -> None:
        step_of(entry >> 1, False)

    @pl.when(due & ((entry & 1) == 0))
    def _() -> None:
        step_of(entry >> 1, True)


def _forward_kernel(
    table: Any, count: Any, q: Any, k: Any, v: Any, query_code: Any, key_code: Any, out: Any, log_total: Any,
    mixed: Any, top: Any, total: Any, *, blocks: Blocks,
) -> None:  # fmt: skip
    i, step = pl.program_id(2), pl.program_id(3)

    @pl.when(step == 0)
    def _() -> None:
        mixed[...] = jnp.zeros_like(mixed)
        total[...] = jnp.zeros_like(total)
        top[...] = jnp.full_like(top, NEGATIVE / 10)  # above the scores of a query that sees nothing

    def step_of(j: Any, masked: bool) -> None:
        scores = _scores(q[...], k[...], query_code[...] if masked else None, key_code[...], i, j, blocks)
        higher = jnp.maximum(top[...], scores.max(0, keepdims=True))
        weights = jnp.exp(scores - higher)
        shrink = jnp.exp(top[...] - higher)
        total[...] = total[...] * shrink + weights.sum(0, keepdims=True)
        mixed[...] = mixed[...] * shrink + _product(v[...], weights.astype(v.dtype))
        top[...] = higher

    _for_each(table, count, step_of)

    @pl.when(step == pl.num_programs(3) - 1)
    def _() -> None:
        safe = jnp.maximum(total[...], 1e-30)
        out[...] = (mixed[...] / safe).astype(out.dtype)
        log_total[...] = top[...] + jnp.log(safe)


def _query_kernel(
    table: Any, count: Any, q: Any, k: Any, k_transposed: Any, v: Any, query_code: Any, key_code: Any, pull: Any,
    log_total: Any, mean: Any, of_q: Any, sum_q: Any, *, blocks: Blocks,
) -> None:  # fmt: skip
    i, step = pl.program_id(2), pl.program_id(3)

    @pl.when(step == 0)
    def _() -> None:
        sum_q[...] = jnp.zeros_like(sum_q)

    def step_of(j: Any, masked: bool) -> None:
        scores = _scores(q[...], k[...], query_code[...] if masked else None, key_code[...], i, j, blocks)
        weights = jnp.exp(scores - log_total[...])
        of_scores = weights * (_product(v[...], pull[...]) - mean[...])
        sum_q[...] += _product(k_transposed[...], of_scores.astype(k.dtype))

    _for_each(table, count, step_of)

    @pl.when(step == pl.num_programs(3) - 1)
    def _() -> None:
        of_q[...] = (sum_q[...] * q.shape[0] ** -0.5).astype(of_q.dtype)


def _key_kernel(
    table: Any, count: Any, q: Any, k: Any, v: Any, query_code: Any, key_code: Any, pull: Any, log_total: Any,
    mean: Any, of_k: Any, of_v: Any, sum_k: Any, sum_v: Any, *, blocks: Blocks,
) -> None:  # fmt: skip
    j, step = pl.program_id(2), pl.program_id(3)

    @pl.when(step == 0)
    def _() -> None:
        sum_k[...] = jnp.zeros_like(sum_k)
        sum_v[...] = jnp.zeros_like(sum_v)

    def step_of(i: Any, masked: bool) -> None:
        scores = _scores(q[...], k[...], query_code[...] if masked else None, key_code[...], i, j, blocks)
        weights = jnp.exp(scores - log_total[...])
        sum_v[...] += _product(weights.astype(v.dtype), pull[...], (1, 1))
        of_scores = weights * (_product(v[...], pull[...]) - mean[...])
        sum_k[...] += _product(of_scores.astype(q.dtype), q[...], (1, 1))

    _for_each(table, count, step_of)

    @pl.when(step == pl.num_programs(3) - 1)
    def _() -> None:
        of_k[...] = (sum_k[...] * q.shape[0] ** -0.5).astype(of_k.dtype)
        of_v[...] = sum_v[...].astype(of_v.dtype)
