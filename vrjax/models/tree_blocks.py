"""Which blocks of keys a block of queries sees, of packed rows: what TPU kernels (`tree_attention_tpu`) walk over.

Trunks and branches are ragged, so it depends on the batch, and is read off the rows' labels, on the device:

    keys      trunk        | branch 1 | branch 2
    queries   ■ □          |          |             ■ all of it is seen, no mask is computed
      trunk   ■ ■ □        |          |             □ some of it is
      branch 1  ■ ■ ■ □    | □        |             the others are never loaded
      branch 2  ■ ■ ■ □    |        □ | □

Letters as in `attention`; also I and J, blocks of queries and of keys, and Z = R · (queries of a block).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from vrjax.models.attention import Reach, Visibility

LANES = 128
KEY_BLOCK = 512
QUERY_ROWS = 1024  # rows of all heads in a block of queries
SEGMENT = 1 << 16  # a token's code is segment · this + branch


@dataclass(frozen=True)
class Blocks:
    """queries, keys: tokens of a block, powers of two; steps: most key blocks that a block of queries reads."""

    queries: int
    keys: int
    steps: int
    interpret: bool = False

    def padded(self, length: int) -> int:
        """Tokens of a row that is filled up to whole blocks."""
        most = max(self.queries, self.keys)
        return -(-length // most) * most


@partial(
    jax.tree_util.register_dataclass, data_fields=["reads", "reads_count", "read_by", "read_by_count"], meta_fields=[]
)
@dataclass(frozen=True)
class BlockTable:
    """reads [B, I, steps]: 2 · (number of a key block) + (1 where all of it is seen), as many as `reads_count` [B, I]
    says, then the last one again; read_by [B, J, I], read_by_count: the same from the keys' side.
    """

    reads: Int[Array, "B I steps"]
    reads_count: Int[Array, "B I"]
    read_by: Int[Array, "B J I"]
    read_by_count: Int[Array, "B J"]


def choose_blocks(length: int, queries_per_key: int, reach: Reach | None, *, interpret: bool = False) -> Blocks:
    """Sizes for rows of `length` tokens. queries_per_key: H / K; interpret: run the kernels without a TPU, slowly."""
    queries = max(LANES, _power_below(QUERY_ROWS // queries_per_key))
    keys = KEY_BLOCK
    while keys > LANES and keys > length:
        keys //= 2
    steps = -(-length // keys)
    if reach is not None:
        steps = min(steps, -(-reach.trunk // keys) + -(-(reach.branch + queries) // keys) + 1)
    return Blocks(queries, keys, steps, interpret)


def _power_below(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


@partial(jax.tree_util.register_dataclass, data_fields=["of_queries", "of_keys", "table"], meta_fields=[])
@dataclass(frozen=True)
class TreeRows:
    """What the kernels need to know of packed rows, the same in all layers; row by row, so it may be cut by rows.

    of_queries [B, I, 1, Z], of_keys [B, S, 1]: codes of tokens, see `_codes`.
    """

    of_queries: Int[Array, "B I 1 Z"]
    of_keys: Int[Array, "B S 1"]
    table: BlockTable


def describe_rows(visibility: Visibility, blocks: Blocks, queries_per_key: int) -> TreeRows:
    """queries_per_key: H / K."""
    batch, length = visibility.segment.shape
    codes = _codes(visibility, blocks.padded(length))
    # Padding sees nothing: as a query it has a code that no key has.
    of_queries = jnp.where(codes == 0, -1, codes).reshape(batch, -1, 1, blocks.queries)
    return TreeRows(jnp.tile(of_queries, (1, 1, 1, queries_per_key)), codes[:, :, None], block_table(codes, blocks))


def _codes(visibility: Visibility, length: int) -> Int[Array, "B S"]:
    """segment · 2^16 + branch of each token; 0 for padding, of which there is more behind the row."""
    codes = jnp.where(visibility.segment > 0, visibility.segment * SEGMENT + visibility.branch, 0).astype(jnp.int32)
    return jnp.pad(codes, ((0, 0), (0, length - codes.shape[1])))


def block_table(codes: Int[Array, "B S"], blocks: Blocks) -> BlockTable:
    """Which blocks see anything of which, from the least and the largest segment and branch of each: never a block too
    few, and hardly one too many.
    """
    batch, length = codes.shape
    count_i, count_j = length // blocks.queries, length // blocks.keys

    def ends(values: Array, size: int, ignore: Array) -> tuple[Array, Array]:
        least = jnp.where(ignore, jnp.iinfo(jnp.int32).max, values).reshape(batch, -1, size).min(-1)
        return least, jnp.where(ignore, -1, values).reshape(batch, -1, size).max(-1)

    segment, branch, padding = codes // SEGMENT, codes % SEGMENT, codes == 0
    (i_first, i_last), (j_first, j_last) = (ends(segment, size, padding) for size in (blocks.queries, blocks.keys))
    (i_least, i_most), (j_least, j_most) = (ends(branch, size, padding) for size in (blocks.queries, blocks.keys))
    i_padding, j_padding = (padding.reshape(batch, -1, size).any(-1) for size in (blocks.queries, blocks.keys))

    of_i, of_j = (slice(None), slice(None), None), (slice(None), None, slice(None))
    start_i, start_j = jnp.arange(count_i) * blocks.queries, jnp.arange(count_j) * blocks.keys
    causal = start_j[None, :] < start_i[:, None] + blocks.queries
    segments_meet = (i_first[of_i] <= j_last[of_j]) & (j_first[of_j] <= i_last[of_i])
    branches_meet = (i_least[of_i] <= j_most[of_j]) & (j_least[of_j] <= i_most[of_i])
    needed = causal & segments_meet & (branches_meet | (j_least[of_j] == 0))

    behind = start_j[None, :] + blocks.keys <= start_i[:, None]
    one_segment = (i_first == i_last)[of_i] & (j_first == j_last)[of_j] & (i_first[of_i] == j_first[of_j])
    one_branch = (i_least == i_most)[of_i] & (j_least == j_most)[of_j] & (i_least[of_i] == j_least[of_j])
    whole = behind & one_segment & ((j_most == 0)[of_j] | one_branch) & ~i_padding[of_i] & ~j_padding[of_j]
    reads, reads_count = _listed(needed, whole, blocks.steps)
    read_by, read_by_count = _listed(needed.swapaxes(1, 2), whole.swapaxes(1, 2), count_i)
    return BlockTable(reads, reads_count, read_by, read_by_count)


def _listed(needed: Array, whole: Array, most: int) -> tuple[Array, Array]:
    """Numbers of what is needed along the last axis, in order; the last one repeats, so that nothing new is loaded."""
    order = jnp.argsort(~needed, axis=-1, stable=True)[..., :most]
    count = jnp.minimum(needed.sum(-1), most).astype(jnp.int32)
    last = jnp.maximum(count - 1, 0)[..., None]
    order = jnp.where(jnp.arange(order.shape[-1]) < count[..., None], order, jnp.take_along_axis(order, last, axis=-1))
    return (2 * order + jnp.take_along_axis(whole, order, axis=-1)).astype(jnp.int32), count
