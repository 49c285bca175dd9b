"""Given continuations, read instead of written: what a model makes of several texts behind one prompt.

    row    prompt (once)  | continuation 1 | continuation 2 | … | padding
    read                               x                x         logits of a few ids behind each, or
                          x x x x x x x    x x x x x x x          log-probs of every token

A continuation sees the prompt and itself (models.attention.Visibility), so that a row costs P + the continuations, not
a prompt for each. Letters: B rows, G continuations, S tokens of a row, R tokens read, N ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vrjax.generation.prompts import Prompt
from vrjax.models.attention import Reach, Visibility, read_attention, row_attention
from vrjax.models.decoder import Shard, unsharded
from vrjax.models.language_model import LanguageModel
from vrjax.models.log_probs import token_log_probs


@dataclass(frozen=True)
class Continuations:
    """A prompt and token ids that may follow it, none of them empty."""

    prompt: Prompt
    tokens: tuple[tuple[int, ...], ...]

    @property
    def length(self) -> int:
        return len(self.prompt) + sum(map(len, self.tokens))

    @property
    def longest(self) -> int:
        return max(map(len, self.tokens))


@dataclass(frozen=True)
class Reading:
    """Of one continuation. logits: of the ids asked for as the next token, float32; log_probs: of its own tokens.

    Whichever was not asked for is empty.
    """

    logits: Float[np.ndarray, "N"]
    log_probs: Float[np.ndarray, "C"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ContinuationRows:
    """B packed rows. last_at: index of each continuation's last token; target_at, targets: of every token of theirs,
    the index that predicts it and its id.
    """

    tokens: Int[np.ndarray, "B S"]
    positions: Int[np.ndarray, "A B S"]
    segment: Int[np.ndarray, "B S"]
    branch: Int[np.ndarray, "B S"]
    last_at: Int[np.ndarray, "B G"]
    target_at: Int[np.ndarray, "B R"]
    targets: Int[np.ndarray, "B R"]


def pack_rows(
    asked: Sequence[Continuations], length: int, group: int, targets: int, axes: int, pad_id: int
) -> ContinuationRows:
    """Rows of `length` tokens with room for `group` continuations and `targets` tokens of theirs (0: none are read)."""
    rows = len(asked)
    tokens = np.full((rows, length), pad_id, np.int32)
    positions = np.zeros((axes, rows, length), np.int32)
    segment, branch = (np.zeros((rows, length), np.int32) for _ in range(2))
    last_at = np.zeros((rows, group), np.int32)
    target_at, target_ids = (np.zeros((rows, targets), np.int32) for _ in range(2))
    for row, one in enumerate(asked):
        prompt = one.prompt
        at, read = len(prompt), 0
        tokens[row, :at], positions[:, row, :at] = prompt.tokens, prompt.positions[:axes]
        for number, ids in enumerate(one.tokens):
            count = len(ids)
            here, there = slice(at, at + count), slice(read, read + count)
            tokens[row, here] = ids
            positions[:, row, here] = prompt.next_position + np.arange(count)
            branch[row, here] = number + 1
            if targets:
                target_at[row, there] = [len(prompt) - 1, *range(at, at + count - 1)]
                target_ids[row, there] = ids
            at, read = at + count, read + count
            last_at[row, number] = at - 1
        segment[row, :at] = 1
    return ContinuationRows(tokens, positions, segment, branch, last_at, target_at, target_ids)


def read_rows(
    model: LanguageModel,
    rows: ContinuationRows,
    features: Float[Array, "M D"] | None,
    feature_index: Int[Array, "B S"] | None,
    ids: Int[Array, "N"],
    layers: tuple[Any, ...] | None,
    *,
    reach: Reach,
    log_probs: bool,
    shard: Shard = unsharded,
) -> tuple[Float[Array, "B G N"], Float[Array, "B R"]]:
    """Logits of `ids` behind every continuation, and log-probs of all their tokens (empty unless asked for).

    reach: no prompt and no continuation is longer. layers: as in `prefill`.
    """
    x = shard(model.embed(jnp.asarray(rows.tokens), features, feature_index), ("batch", "length", None))
    visibility = Visibility(jnp.asarray(rows.segment), jnp.asarray(rows.branch))

    def attend(q: Array, k: Array, v: Array, memory: Any) -> tuple[Array, None]:
        del memory
        return row_attention(q, k, v, visibility, reach), None

    at = jnp.concatenate([jnp.asarray(rows.last_at), jnp.asarray(rows.target_at)], axis=1)

    def attend_last(q: Array, k: Array, v: Array, memory: Any) -> tuple[Array, None]:
        del memory
        return read_attention(q, k, v, visibility, at), None

    tables = model.text.tables(jnp.asarray(rows.positions))
    if layers is None:
        hidden, _ = model.text.run(x, tables, attend, shard=shard)
        read = jnp.take_along_axis(hidden, at[..., None], axis=1)
    else:
        read, _ = model.text.run_unrolled(x, tables, attend, layers, at=at, attend_last=attend_last)
    head, group = model.text.head_weight(), rows.last_at.shape[1]
    logits = jnp.einsum("bgd,nd->bgn", read[:, :group], head[ids], preferred_element_type=jnp.float32)
    if not log_probs:
        return logits, jnp.zeros((len(rows.tokens), 0))
    return logits, token_log_probs(read[:, group:], head, jnp.asarray(rows.targets), shard=shard)[0]
