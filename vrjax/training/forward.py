"""The forward pass of training: packed rows to the hidden states that predict their targets.

Letters: B rows, S tokens, R predicted tokens of a row, M vision features of the batch, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vrjax.models.attention import AttentionForRows, Reach, Visibility, pick_tokens, plain_attention, read_attention
from vrjax.models.decoder import Remat, Shard, unsharded
from vrjax.models.language_model import LanguageModel, VideoLanguageModel
from vrjax.models.qwen2_5_vl import VisionInputs
from vrjax.training.rows import PackedText

READ_SHARE = 2  # a row must be this many times as long as what is read of it


@dataclass(frozen=True)
class ForwardOptions:
    """dtype: of weights and activations; remat: what of the layers the backward pass computes again; unroll: write the
    loop over the decoder's layers out (faster on CPUs, longer to compile); shard, attention (of rows, made once for all
    layers) and pick (of tokens' hidden states): see vrjax.sharding.
    """

    dtype: Any = jnp.float32
    remat: Remat = True
    unroll: bool = False
    shard: Shard = unsharded
    attention: AttentionForRows = plain_attention
    pick: Callable[[Array, Array], Array] = pick_tokens


def encode_rows(model: VideoLanguageModel, vision: VisionInputs, options: ForwardOptions) -> Float[Array, "M D"]:
    """Vision features of B rows, one row's after another's; inputs stand on a first axis [B, F, …]."""
    flat = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), vision)
    return model.encode(flat, remat=bool(options.remat), shard=options.shard)


def target_hidden(
    model: LanguageModel,
    text: PackedText,
    features: Float[Array, "M D"] | None,
    options: ForwardOptions,
    reach: Reach | None = None,
) -> Float[Array, "B R D"]:
    """Hidden states from which the targets are read off, gathered so that the head runs on nothing else.

    features: of all rows, the same number for each, or None for text alone. reach: see `row_attention`.
    """
    batch = text.tokens.shape[0]
    index = None
    if features is not None:
        first = jnp.arange(batch, dtype=jnp.int32)[:, None] * (features.shape[0] // batch)
        index = jnp.where(text.feature_index >= 0, text.feature_index + first, -1)
    x = options.shard(model.embed(jnp.asarray(text.tokens), features, index), ("batch", "length", None))
    visibility = Visibility(jnp.asarray(text.segment), jnp.asarray(text.branch))

    attention = options.attention(visibility, reach)

    def attend(q: Array, k: Array, v: Array, memory: None) -> tuple[Array, None]:
        del memory
        return attention(q, k, v), None

    tables = model.text.tables(jnp.moveaxis(text.positions, 1, 0))
    target_at = jnp.asarray(text.target_at)
    # Where the loop is written out and few tokens are read, the last layer runs for those alone.
    if options.unroll and target_at.shape[1] * READ_SHARE <= text.tokens.shape[1]:

        def attend_last(q: Array, k: Array, v: Array, memory: None) -> tuple[Array, None]:
            del memory
            return read_attention(q, k, v, visibility, target_at), None

        return model.text.run_for(x, tables, attend, attend_last, target_at, remat=options.remat, shard=options.shard)
    hidden, _ = model.text.run(x, tables, attend, remat=options.remat, unroll=options.unroll, shard=options.shard)
    return options.pick(hidden, target_at)
