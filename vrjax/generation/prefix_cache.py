"""Prefill: run prompts once and keep their keys and values, for all samples, beams or agent steps that follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vrjax.models.attention import AttentionForRows, Reach, Visibility, plain_attention, read_attention
from vrjax.models.decoder import Shard, unsharded
from vrjax.models.language_model import LanguageModel


@partial(
    jax.tree_util.register_dataclass, data_fields=["keys", "values", "mask", "next_position", "logits"], meta_fields=[]
)
@dataclass(frozen=True)
class Prefix:
    """What B prompts leave behind.

    keys: [L, B, K, E, P] (transposed, as decoding reads them); values: [L, B, K, P, E]; both without L, one a layer,
    where layers are unrolled. mask: which of the P places hold a token; next_position: rotary position of the token
    that comes next; logits: of that token, float32.
    """

    keys: Any
    values: Any
    mask: Bool[Array, "B P"]
    next_position: Int[Array, "B"]
    logits: Float[Array, "B V"]


def prefill(
    model: LanguageModel,
    tokens: Int[Array, "B P"],
    positions: Int[Array, "A B P"],
    lengths: Int[Array, "B"],
    next_position: Int[Array, "B"],
    features: Float[Array, "M D"] | None,
    feature_index: Int[Array, "B P"] | None,
    layers: tuple[Any, ...] | None = None,
    shard: Shard = unsharded,
    attention: AttentionForRows = plain_attention,
) -> Prefix:
    """Run right-padded prompts through the decoder once; a prompt's padding is never attended to.

    layers: the decoder's layers one by one (`Decoder.unstack`), to run them unrolled; None scans the stacked ones.
    attention: of rows, see vrjax.sharding.row_attention.
    """
    mask = jnp.arange(tokens.shape[1]) < lengths[:, None]
    visibility = Visibility(mask.astype(jnp.int32), jnp.zeros_like(tokens))
    x = shard(model.embed(tokens, features, feature_index), ("batch", "length", None))

    attend_rows = attention(visibility, Reach(tokens.shape[1], 0, 0))  # all trunk
    last_at = (lengths - 1)[:, None]

    def kept_of(k: Array, v: Array) -> tuple[Array, Array]:
        return k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)

    def attend(q: Array, k: Array, v: Array, memory: Any) -> tuple[Array, tuple[Array, Array]]:
        del memory
        return attend_rows(q, k, v), kept_of(k, v)

    def attend_last(q: Array, k: Array, v: Array, memory: Any) -> tuple[Array, tuple[Array, Array]]:
        del memory
        return read_attention(q, k, v, visibility, last_at), kept_of(k, v)

    tables = model.text.tables(positions)
    if layers is None:
        hidden, (keys, values) = model.text.run(x, tables, attend, shard=shard)
        last = jnp.take_along_axis(hidden, last_at[..., None], axis=1)
    else:
        last, kept = model.text.run_unrolled(x, tables, attend, layers, at=last_at, attend_last=attend_last)
        keys, values = tuple(key for key, _ in kept), tuple(value for _, value in kept)
    return Prefix(keys, values, mask, next_position, model.text.logits(last[:, 0]))
