"""Attention: who may look at whom, and the sums themselves.

Axis letters as in docs/architecture: B batch, S queries, T keys, H heads, K key/value heads, R = H / K queries that
share one key head, E head size, G samples of a prompt, P prefix, C completion.

Sequences are packed rows. Each token has a segment (0: padding; tokens see only their own segment) and a branch
(0: the trunk; every branch sees the trunk and itself, never another branch):

        trunk | branch 1 | branch 2          e.g. one video, two questions;
        t t t | a a a    | b b               one prompt, two completions.
    a:  x x x | x x x    |                   (and causal within each)
    b:  x x x |          | x x
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

# (q [B, S, H, E], k, v [B, S, K, E]) -> [B, S, H, E]
AttendRows = Callable[[Array, Array, Array], Array]

NEGATIVE = -1e30
KEPT = "attention"  # name of what a policy of recomputation may keep: attention's output, and a kernel's log-sum-exp
QUERY_BLOCK = 128
BLOCKS_AT_ONCE = 16
LOOPS = 16  # into which the blocks of longer rows are cut
ONE_BLOCK = 384  # rows up to this long are done at once: their scores are small enough to keep


@partial(jax.tree_util.register_dataclass, data_fields=["segment", "branch"], meta_fields=[])
@dataclass(frozen=True)
class Visibility:
    """segment [B, S] (0 = padding) and branch [B, S] (0 = trunk) of each token of packed rows."""

    segment: Int[Array, "B S"]
    branch: Int[Array, "B S"]

    def mask(self, queries: slice, keys: slice) -> Bool[Array, "B S T"]:
        """True where a query (index within `queries`) may see a key (index within `keys`)."""
        order = jnp.arange(self.segment.shape[1])
        return self.mask_of(self.taken(queries), order[queries], self.taken(keys), order[keys])

    def taken(self, tokens: slice) -> Visibility:
        return Visibility(self.segment[:, tokens], self.branch[:, tokens])

    @staticmethod
    def mask_of(
        queries: Visibility, query_at: Int[Array, "S"], keys: Visibility, key_at: Int[Array, "T"]
    ) -> Bool[Array, "B S T"]:
        """The same for tokens at given places of their rows."""
        segment, branch = queries.segment[:, :, None], queries.branch[:, :, None]
        key_segment, key_branch = keys.segment[:, None], keys.branch[:, None]
        causal = query_at[None, :, None] >= key_at[None, None]
        same = (segment == key_segment) & (segment > 0)
        return causal & same & ((key_branch == 0) | (key_branch == branch))


def heads_first(x: Float[Array, "B S H E"], key_heads: int) -> Float[Array, "B K R S E"]:
    batch, length, heads, size = x.shape
    return x.reshape(batch, length, key_heads, heads // key_heads, size).transpose(0, 2, 3, 1, 4)


@jax.custom_vjp
def softmax_sum(
    q: Float[Array, "B K Q E"], k: Float[Array, "B K T E"], v: Float[Array, "B K T E"], mask: Bool[Array, "B K Q T"]
) -> Float[Array, "B K Q E"]:
    """softmax(q k^T / sqrt(E)) v with the softmax in float32; a query that sees nothing gives zeros.

    mask: any of its sizes may be 1, or Q a fraction of the queries: heads that share it stand one after the other. The
    backward pass keeps no weights but makes them again from each query's log-sum-exp (Dao et al. 2022, algorithm 4).
    """
    return _softmax_sum(q, k, v, mask)[0]


def _scores(q: Array, k: Array, mask: Array) -> Float[Array, "B K Q T"]:
    scores = jnp.einsum("bkqe,bkte->bkqt", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    if mask.shape[2] in (1, q.shape[2]):
        return jnp.where(mask, scores, NEGATIVE)
    by_head = scores.reshape(*scores.shape[:2], -1, mask.shape[2], scores.shape[3])
    return jnp.where(mask[:, :, None], by_head, NEGATIVE).reshape(scores.shape)


def _softmax_sum(q: Array, k: Array, v: Array, mask: Array) -> tuple[Array, Any]:
    scores = _scores(q, k, mask)
    top = jnp.maximum(scores.max(-1, keepdims=True), NEGATIVE / 10)  # above the scores of a query that sees nothing
    weights = jnp.exp(scores - top)
    total = jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)
    out = jnp.einsum("bkqt,bkte->bkqe", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    out = (out / total).astype(q.dtype)
    return out, (q, k, v, mask, out, top + jnp.log(total))


def _softmax_sum_gradients(kept: Any, pull: Float[Array, "B K Q E"]) -> tuple[Array, Array, Array, None]:
    q, k, v, mask, out, log_total = kept
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    weights = jnp.exp(_scores(q, k, mask) - log_total)
    of_values = product("bkqt,bkqe->bkte", weights.astype(v.dtype), pull)
    mean = (pull.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1, keepdims=True)
    of_scores = (weights * (product("bkqe,bkte->bkqt", pull, v) - mean) * q.shape[-1] ** -0.5).astype(q.dtype)
    of_q, of_k = product("bkqt,bkte->bkqe", of_scores, k), product("bkqt,bkqe->bkte", of_scores, q)
    return of_q.astype(q.dtype), of_k.astype(k.dtype), of_values.astype(v.dtype), None


softmax_sum.defvjp(_softmax_sum, _softmax_sum_gradients)


@dataclass(frozen=True)
class Reach:
    """How far queries behind the trunk look back. trunk: no row's trunk is longer; branch: nor any of its branches;
    branches: nor are there more of them (None: not known).
    """

    trunk: int
    branch: int
    branches: int | None = None

    def keys(self, start: int, end: int) -> tuple[slice, ...]:
        """The stretches of keys that queries from `start` to `end` can see: the trunk, and at most a branch back.

        trunk | branch 1 | branch 2 | branch 3
        k k k |          |    k k k | q q
        """
        near = max(self.trunk, start - self.branch)
        return (slice(0, end),) if near >= end or near <= self.trunk else (slice(0, self.trunk), slice(near, end))


# Attention of the rows that these describe, made once for all layers.
AttentionForRows = Callable[[Visibility, Reach | None], AttendRows]


def row_attention(
    q: Float[Array, "B S H E"],
    k: Float[Array, "B S K E"],
    v: Float[Array, "B S K E"],
    visibility: Visibility,
    reach: Reach | None = None,
) -> Float[Array, "B S H E"]:
    """Self-attention within packed rows, query block by query block.

    A block of queries reads only the keys up to its own end, so the upper triangle costs nothing; with `reach` it also
    leaves out branches that lie too far back for it to see. Each block is recomputed in the backward pass, so no S x S
    array is ever held. Short rows are one block, and kept.
    """
    batch, length, heads, size = q.shape
    key_heads = k.shape[2]
    q = heads_first(q, key_heads)
    k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)

    def block(q_block: Array, k: Array, v: Array, mask: Array) -> Array:
        out = softmax_sum(q_block.reshape(batch, key_heads, -1, size), k, v, mask[:, None])
        return out.reshape(*q_block.shape)

    def static_block(q_block: Array, k: Array, v: Array, start: int, end: int) -> Array:
        near = (slice(0, end),) if reach is None else reach.keys(start, end)
        mask = _joined([visibility.mask(slice(start, end), part) for part in near], -1)
        near_k, near_v = (_joined([x[:, :, part] for part in near], 2) for x in (k, v))
        return block(q_block, near_k, near_v, mask)

    if length <= ONE_BLOCK:
        out = static_block(q, k, v, 0, length)
    elif length <= BLOCKS_AT_ONCE * QUERY_BLOCK:
        recomputed = jax.checkpoint(static_block, static_argnums=(3, 4))
        bounds = [(start, min(start + QUERY_BLOCK, length)) for start in range(0, length, QUERY_BLOCK)]
        out = jnp.concatenate([recomputed(q[:, :, :, a:b], k, v, a, b) for a, b in bounds], axis=3)
    else:
        out = _in_turn(block, q, k, v, visibility, reach)
    return out.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads, size)


def _in_turn(
    block: Callable[..., Array], q: Array, k: Array, v: Array, visibility: Visibility, reach: Reach | None
) -> Float[Array, "B K R S E"]:
    """Blocks of queries in loops, so that few blocks' scores exist at a time, in the backward pass too.

    Written out, they would be independent of each other, and a compiler is free to compute all their scores at once.
    A loop's blocks read the same keys, up to the end of its last one, hence several loops; and one for all blocks that
    lie so far behind the trunk that they read it, and a branch back, by `reach`:

        trunk | branches        loops of 3 blocks
        1 1 1 | · · · · · ·
        2 2 2   2 2 · · · ·
        3 3 3   · · · 3 3 3     behind the trunk
    """
    length = q.shape[3]
    count = -(-length // QUERY_BLOCK)
    more = count * QUERY_BLOCK - length
    q = jnp.pad(q, ((0, 0), (0, 0), (0, 0), (0, more), (0, 0)))
    k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, more), (0, 0))) for x in (k, v))
    labels = Visibility(*(jnp.pad(x, ((0, 0), (0, more))) for x in (visibility.segment, visibility.branch)))
    order = jnp.arange(count * QUERY_BLOCK)
    window = count * QUERY_BLOCK if reach is None else min(reach.branch + QUERY_BLOCK, count * QUERY_BLOCK)
    # Blocks before this one read all keys up to the end of their loop.
    behind = count if reach is None else min(count, -(-(reach.trunk + window) // QUERY_BLOCK))

    def stretch(x: Array, axis: int, start: Array | int, size: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(x, start, size, axis)

    def body(parts: tuple[tuple[int, Array | int, int], ...], start: Array, q_block: Array) -> Array:
        """parts: first key, its index at least, and how many, of each stretch of keys that the block reads."""
        queries = Visibility(*(stretch(x, 1, start, QUERY_BLOCK) for x in (labels.segment, labels.branch)))
        masks = []
        for least, first, size in parts:
            keys = Visibility(*(stretch(x, 1, first, size) for x in (labels.segment, labels.branch)))
            at = stretch(order, 0, first, size)
            mask = Visibility.mask_of(queries, stretch(order, 0, start, QUERY_BLOCK), keys, at)
            masks.append(mask & (at >= least))
        near_k, near_v = (_joined([stretch(x, 2, first, size) for _, first, size in parts], 2) for x in (k, v))
        return block(q_block, near_k, near_v, _joined(masks, -1))

    def turns(first: int, last: int, parts_of: Callable[[Array], tuple[Any, ...]]) -> Array:
        here = q[:, :, :, first * QUERY_BLOCK : last * QUERY_BLOCK]
        here = jnp.moveaxis(here.reshape(*here.shape[:3], last - first, QUERY_BLOCK, here.shape[4]), 3, 0)

        @jax.checkpoint  # or every turn would leave a copy of the keys behind
        def turn(start: Array, q_block: Array) -> Array:
            return body(parts_of(start), start, q_block)

        starts = jnp.arange(first, last) * QUERY_BLOCK
        _, out = jax.lax.scan(lambda carry, part: (carry, turn(*part)), None, (starts, here))
        return jnp.moveaxis(out, 0, 3).reshape(*q.shape[:3], -1, q.shape[4])

    each = -(-behind // LOOPS)
    found = []
    for first in range(0, behind, each):
        last = min(first + each, behind)
        found.append(turns(first, last, lambda start, end=last * QUERY_BLOCK: ((0, 0, end),)))
    if behind < count and reach is not None:
        trunk = reach.trunk
        found.append(turns(behind, count, lambda start: ((0, 0, trunk), (trunk, start + QUERY_BLOCK - window, window))))
    return jnp.concatenate(found, axis=3)[:, :, :, :length]


def plain_attention(visibility: Visibility, reach: Reach | None = None) -> AttendRows:
    """`row_attention` of these rows; other forms (vrjax.sharding.row_attention) stand in the same place."""
    return partial(row_attention, visibility=visibility, reach=reach)


def pick_tokens(hidden: Float[Array, "B S D"], at: Int[Array, "B R"]) -> Float[Array, "B R D"]:
    return jnp.take_along_axis(hidden, at[..., None], axis=1)


def read_attention(
    q: Float[Array, "B R H E"],
    k: Float[Array, "B S K E"],
    v: Float[Array, "B S K E"],
    visibility: Visibility,
    at: Int[Array, "B R"],
) -> Float[Array, "B R H E"]:
    """The same for the queries of the tokens at `at` alone, in any order; blocks of them see all keys under a mask."""
    batch, count, heads, size = q.shape
    key_heads, length = k.shape[2], k.shape[1]
    k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    segment, branch = (jnp.take_along_axis(x, at, axis=1)[..., None] for x in (visibility.segment, visibility.branch))
    key_segment, key_branch = visibility.segment[:, None], visibility.branch[:, None]
    seen = (at[..., None] >= jnp.arange(length)) & (segment == key_segment) & (segment > 0)
    seen &= (key_branch == 0) | (key_branch == branch)
    parts = []
    for start in range(0, count, 2 * QUERY_BLOCK):
        here = slice(start, min(start + 2 * QUERY_BLOCK, count))
        rows = heads_first(q[:, here], key_heads)
        out = softmax_sum(rows.reshape(batch, key_heads, -1, size), k, v, seen[:, None, here])
        parts.append(out.reshape(rows.shape))
    return _joined(parts, 3).transpose(0, 3, 1, 2, 4).reshape(batch, count, heads, size)


def _joined(parts: list[Array], axis: int) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)


def suffix_attention(
    q: Float[Array, "B G H E"],
    new_k: Float[Array, "B G K E"],
    new_v: Float[Array, "B G K E"],
    prefix: tuple[Float[Array, "B K E P"], Float[Array, "B K P E"]],
    prefix_mask: Bool[Array, "B P"],
    suffix: tuple[Float[Array, "B G K C E"], Float[Array, "B G K C E"]],
    suffix_mask: Bool[Array, "C"],
) -> Float[Array, "B G H E"]:
    """One new token per sample: all G samples of a prompt read its one prefix; each reads its own suffix and itself.

    prefix, suffix: keys and values; the prefix's keys lie transposed, which is how a product with few rows reads them
    fastest.

    One softmax over the three parts (a shared maximum, a shared sum), never a merge of finished softmaxes. The new
    token's key and value come apart from the suffix, so that a cache is written once a step, after all layers.
    """
    batch, group, heads, size = q.shape
    key_heads = new_k.shape[2]
    ratio, dtype = heads // key_heads, q.dtype

    def by_prompt(x: Array) -> Array:  # [B, G, K, R, *] -> [B, K, G·R, *]: the rows that share a prefix's key head
        return jnp.swapaxes(x, 1, 2).reshape(batch, key_heads, group * ratio, *x.shape[4:])

    def by_sample(x: Array) -> Array:
        return jnp.swapaxes(x.reshape(batch, key_heads, group, ratio, *x.shape[3:]), 1, 2)

    q = q.reshape(batch, group, key_heads, ratio, size) * size**-0.5
    of_prefix = jnp.einsum("bkqe,bkep->bkqp", by_prompt(q), prefix[0], preferred_element_type=jnp.float32)
    of_prefix = jnp.where(prefix_mask[:, None, None], of_prefix, NEGATIVE)
    of_suffix = jnp.einsum("bgkre,bgkce->bgkrc", q, suffix[0], preferred_element_type=jnp.float32)
    of_suffix = jnp.where(suffix_mask, of_suffix, NEGATIVE)
    of_self = jnp.einsum("bgkre,bgke->bgkr", q, new_k, preferred_element_type=jnp.float32)

    top = jnp.maximum(jnp.maximum(by_sample(of_prefix.max(-1)), of_suffix.max(-1)), of_self)
    of_prefix = jnp.exp(of_prefix - by_prompt(top)[..., None])
    of_suffix = jnp.exp(of_suffix - top[..., None])
    of_self = jnp.exp(of_self - top)
    total = by_sample(of_prefix.sum(-1)) + of_suffix.sum(-1) + of_self
    out = by_sample(
        jnp.einsum("bkqp,bkpe->bkqe", of_prefix.astype(dtype), prefix[1], preferred_element_type=jnp.float32)
    )
    out += jnp.einsum("bgkrc,bgkce->bgkre", of_suffix.astype(dtype), suffix[1], preferred_element_type=jnp.float32)
    out += of_self[..., None] * new_v[:, :, :, None].astype(jnp.float32)
    return (out / total[..., None]).reshape(batch, group, heads, size).astype(dtype)
