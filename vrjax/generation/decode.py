"""Decoding: the loop that draws one token per sample and step. It runs on the device, many tokens at a call.

All G samples of a prompt read that prompt's one prefix; each owns a short suffix of at most C tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vrjax.generation.prefix_cache import Prefix
from vrjax.generation.sampling import SamplingNumbers, draw
from vrjax.models.attention import suffix_attention
from vrjax.models.language_model import LanguageModel


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["step", "tokens", "raw", "processed", "done", "lengths", "row_keys", "keys", "values"],
    meta_fields=[],
)
@dataclass(frozen=True)
class DecodeState:
    """Samples in the making. step: tokens drawn so far (the same for all rows).

    tokens, raw and processed log-probs: [B, G, C]; done: an end token was drawn; lengths: tokens up to and with it;
    row_keys: random address of each row; keys, values: suffix caches, one [B, G, K, C, E] a layer, or stacked
    [L, B, G, K, C, E].
    """

    step: Int[Array, ""]
    tokens: Int[Array, "B G C"]
    raw: Float[Array, "B G C"]
    processed: Float[Array, "B G C"]
    done: Bool[Array, "B G"]
    lengths: Int[Array, "B G"]
    row_keys: Array
    keys: Any
    values: Any


@partial(jax.tree_util.register_dataclass, data_fields=["allowed", "ends"], meta_fields=[])
@dataclass(frozen=True)
class VocabularyMasks:
    """allowed: ids that may be drawn; ends: ids that end a response. Both bool [V]."""

    allowed: Bool[Array, "V"]
    ends: Bool[Array, "V"]


def record(
    state: DecodeState,
    logits: Float[Array, "B G V"],
    masks: VocabularyMasks,
    numbers: SamplingNumbers,
    kind: tuple[bool, bool, bool],
) -> DecodeState:
    """Draw token number `step` of every row and write it down; finished rows get nothing."""
    token, raw, processed = draw(logits, state.row_keys, state.step, masks.allowed, masks.ends, numbers, kind)
    token = jnp.where(state.done, 0, token)
    at = (0, 0, state.step)

    def write(array: Array, value: Array) -> Array:
        return jax.lax.dynamic_update_slice(array, jnp.where(state.done, 0, value)[..., None].astype(array.dtype), at)

    return replace(
        state,
        step=state.step + 1,
        tokens=write(state.tokens, token),
        raw=write(state.raw, raw),
        processed=write(state.processed, processed),
        lengths=state.lengths + ~state.done,
        done=state.done | masks.ends[token],
    )


def start(
    prefix: Prefix,
    row_keys: Array,
    masks: VocabularyMasks,
    numbers: SamplingNumbers,
    kind: tuple[bool, bool, bool],
    capacity: int,
) -> DecodeState:
    """Room for `capacity` tokens a row, and the first token of each, drawn from the prompts' last logits."""
    rows = row_keys.shape[0], row_keys.shape[1]
    keys, values = suffix_caches(prefix, rows, capacity)
    state = DecodeState(
        step=jnp.int32(0),
        tokens=jnp.zeros((*rows, capacity), jnp.int32),
        raw=jnp.zeros((*rows, capacity), jnp.float32),
        processed=jnp.zeros((*rows, capacity), jnp.float32),
        done=jnp.zeros(rows, bool),
        lengths=jnp.zeros(rows, jnp.int32),
        row_keys=row_keys,
        keys=keys,
        values=values,
    )
    logits = jnp.broadcast_to(prefix.logits[:, None], (*rows, prefix.logits.shape[-1]))
    return record(state, logits, masks, numbers, kind)


def next_logits(
    model: LanguageModel,
    prefix: Prefix,
    token: Int[Array, "B G"],
    index: Int[Array, ""],
    caches: tuple[Any, Any],
    layers: tuple[Any, ...] | None,
) -> tuple[Float[Array, "B G V"], tuple[Any, Any]]:
    """Run token number `index` of every row; returns the logits of the next one and the caches with it.

    caches: keys and values of the suffixes, as in DecodeState.
    """
    old_keys, old_values = caches
    batch, group = token.shape
    capacity = jax.tree.leaves(old_keys)[0].shape[-2]
    axes = 1 if model.config.text.sections is None else 3
    positions = jnp.broadcast_to(prefix.next_position[:, None] + index, (axes, batch, group))
    written = jnp.arange(capacity) < index

    def attend(q: Array, k: Array, v: Array, memory: Any) -> tuple[Array, tuple[Array, Array]]:
        prefix_kv, suffix_kv = memory
        return suffix_attention(q, k, v, prefix_kv, prefix.mask, suffix_kv, written), (k, v)

    x, tables = model.text.embed(token), model.text.tables(positions)
    write = jax.lax.dynamic_update_slice
    if layers is None:
        memory = ((prefix.keys, prefix.values), caches)
        hidden, (k, v) = model.text.run(x, tables, attend, memory)
        at = (0, 0, 0, 0, index, 0)
        keys = write(old_keys, k[:, :, :, :, None], at)
        values = write(old_values, v[:, :, :, :, None], at)
    else:
        cached = (prefix.keys, prefix.values, old_keys, old_values)
        memory = tuple(((pk, pv), (sk, sv)) for pk, pv, sk, sv in zip(*cached, strict=True))
        hidden, new = model.text.run_unrolled(x, tables, attend, layers, memory)
        at = (0, 0, 0, index, 0)
        keys = tuple(write(old, k[:, :, :, None], at) for old, (k, _) in zip(old_keys, new, strict=True))
        values = tuple(write(old, v[:, :, :, None], at) for old, (_, v) in zip(old_values, new, strict=True))
    return model.text.logits(hidden), (keys, values)


def suffix_caches(prefix: Prefix, rows: tuple[int, int], capacity: int) -> tuple[Any, Any]:
    """Room for the keys and values of `capacity` tokens of each row, empty."""

    def room(values: Array) -> Array:
        *layers, _, kv_heads, _, size = values.shape
        return jnp.zeros((*layers, *rows, kv_heads, capacity, size), values.dtype)

    return jax.tree.map(room, prefix.values), jax.tree.map(room, prefix.values)


def take_rows(cache: Array, rows: Int[Array, "B W"]) -> Array:
    """Rows of each prompt's suffix cache ([B, G, K, C, E], or stacked [L, B, G, K, C, E]), reordered or fewer."""
    prompts = jnp.arange(rows.shape[0])[:, None]
    return cache[:, prompts, rows] if cache.ndim == 6 else cache[prompts, rows]


def compact(state: DecodeState, keep: Int[Array, "B W"]) -> DecodeState:
    """The samples of `state` that go on: columns `keep` of each prompt, so that finished ones cost nothing more."""
    rows = jnp.arange(keep.shape[0])[:, None]

    def take(array: Array) -> Array:
        return array[rows, keep]

    return DecodeState(
        step=state.step,
        tokens=take(state.tokens),
        raw=take(state.raw),
        processed=take(state.processed),
        done=take(state.done),
        lengths=take(state.lengths),
        row_keys=take(state.row_keys),
        keys=jax.tree.map(lambda cache: take_rows(cache, keep), state.keys),
        values=jax.tree.map(lambda cache: take_rows(cache, keep), state.values),
    )


@dataclass
class Drawn:
    """What was drawn, on the host: tokens, raw and processed log-probs [B, G, C], lengths and done [B, G].

    place: of the columns that are still being decoded, [B, W].
    """

    tokens: np.ndarray
    raw: np.ndarray
    processed: np.ndarray
    lengths: np.ndarray
    done: np.ndarray
    place: np.ndarray

    @staticmethod
    def room(batch: int, group: int, capacity: int) -> Drawn:
        wide = (batch, group, capacity)
        return Drawn(
            np.zeros(wide, np.int32),
            np.zeros(wide, np.float32),
            np.zeros(wide, np.float32),
            np.zeros(wide[:2], np.int32),
            np.zeros(wide[:2], bool),
            np.broadcast_to(np.arange(group), wide[:2]).copy(),
        )

    def write(self, state: DecodeState) -> None:
        """Take over what the columns of `state` hold."""
        rows = np.arange(len(self.place))[:, None]
        found = jax.device_get((state.tokens, state.raw, state.processed, state.lengths, state.done))
        for mine, new in zip((self.tokens, self.raw, self.processed, self.lengths, self.done), found, strict=True):
            mine[rows, self.place] = new


def columns_to_keep(done: Bool[np.ndarray, "B W"]) -> Int[np.ndarray, "B N"] | None:
    """Columns to go on with, N a power of two and at most half of W; None where that does not hold those that go on."""
    most = int((~done).sum(1).max())
    width = 1 << max(most - 1, 0).bit_length()
    return None if width > done.shape[1] // 2 else np.argsort(done, axis=1, kind="stable")[:, :width]


def decode(
    model: LanguageModel,
    prefix: Prefix,
    state: DecodeState,
    masks: VocabularyMasks,
    numbers: SamplingNumbers,
    until: Int[Array, ""],
    layers: tuple[Any, ...] | None,
    kind: tuple[bool, bool, bool],
) -> DecodeState:
    """Go on until every row is done or `until` tokens were drawn; no word with the host on the way.

    layers: the decoder's layers one by one (`Decoder.unstack`), to run them unrolled (prefix and state then have
    their caches one by one too); None scans the stacked ones.
    """

    def unfinished(state: DecodeState) -> Array:
        return (state.step < until) & ~state.done.all()

    def body(state: DecodeState) -> DecodeState:
        index = state.step - 1
        token = jax.lax.dynamic_slice_in_dim(state.tokens, index, 1, axis=2)[..., 0]
        logits, (keys, values) = next_logits(model, prefix, token, index, (state.keys, state.values), layers)
        return record(replace(state, keys=keys, values=values), logits, masks, numbers, kind)

    return jax.lax.while_loop(unfinished, body, state)
