"""Prefill behind a kept prefix: only new tokens are run, and they attend to the kept ones and to each other.

kept  k k k k k k . .        (padded to the longest row's)
new   q q q . .              (padded likewise) sees k k k k k k and, causally, itself
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.generation.buckets import bucket
from vrjax.generation.kept_prefixes import BLOCK, KeptPrefixes, block_names
from vrjax.generation.prefix_cache import Prefix
from vrjax.generation.prompts import Prompt
from vrjax.models.attention import Visibility, read_attention
from vrjax.models.decoder import Shard, unsharded
from vrjax.models.language_model import LanguageModel

if TYPE_CHECKING:
    from vrjax.generation.engine import Engine


def extend(
    model: LanguageModel,
    kept: tuple[Float[Array, "L B K E P"], Float[Array, "L B K P E"]],
    kept_lengths: Int[Array, "B"],
    tokens: Int[Array, "B S"],
    positions: Int[Array, "A B S"],
    lengths: Int[Array, "B"],
    next_position: Int[Array, "B"],
    features: Float[Array, "M D"] | None,
    feature_index: Int[Array, "B S"] | None,
    layers: tuple[Any, ...] | None = None,
    shard: Shard = unsharded,
    places: int = 0,
) -> Prefix:
    """The prefix of whole prompts, whose first `kept_lengths` tokens are known by their keys and values.

    tokens, positions, lengths: of the new ones, right-padded. The prefix has P + S places (at least `places`): the kept
    ones, then the new ones, each with its own padding.
    """
    old, new = kept[0].shape[-1], tokens.shape[1]
    there = jnp.concatenate(
        [jnp.arange(old) < kept_lengths[:, None], jnp.arange(new) < lengths[:, None]], axis=1
    )  # [B, P + S]
    visibility = Visibility(there.astype(jnp.int32), jnp.zeros_like(there, jnp.int32))
    at = jnp.broadcast_to(old + jnp.arange(new), tokens.shape)
    more = max(0, places - old - new)

    def attend(q: Array, k: Array, v: Array, memory: Any) -> tuple[Array, tuple[Array, Array]]:
        old_k, old_v = memory
        k = jnp.concatenate([old_k.transpose(0, 3, 1, 2), k], axis=1)
        v = jnp.concatenate([old_v.transpose(0, 2, 1, 3), v], axis=1)
        mixed = read_attention(q, k, v, visibility, at)
        k, v = (jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, 0))) for x in (k, v))
        return mixed, (k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3))

    x = shard(model.embed(tokens, features, feature_index), ("batch", "length", None))
    tables = model.text.tables(positions)
    if layers is None:
        hidden, (keys, values) = model.text.run(x, tables, attend, kept, shard=shard)
    else:
        memory = tuple((kept[0][number], kept[1][number]) for number in range(len(layers)))
        hidden, found = model.text.run_unrolled(x, tables, attend, layers, memory)
        keys, values = tuple(key for key, _ in found), tuple(value for _, value in found)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)[:, 0]
    mask = jnp.pad(there, ((0, 0), (0, more)))
    return Prefix(keys, values, mask, next_position, model.text.logits(last))


def reusable(kept: KeptPrefixes, prompt: Prompt, names: Sequence[bytes], unit: int) -> int:
    """How many blocks of a prompt need not be run: the last token always is, and an image is run whole or not at all.

    unit: patches that make up one token.
    """
    blocks = kept.leading(names[: (len(prompt) - 1) // BLOCK])
    for start, item in reversed(list(zip(prompt.vision_at, prompt.vision, strict=True))):
        if start < blocks * BLOCK < start + item.grid[0] * item.grid[1] * item.grid[2] // unit:
            blocks = start // BLOCK
    return blocks


def tail_of(prompt: Prompt, start: int) -> Prompt:
    """What stands behind the first `start` tokens, which no image reaches across."""
    left = [(item, at - start) for item, at in zip(prompt.vision, prompt.vision_at, strict=True) if at >= start]
    return replace(
        prompt,
        tokens=prompt.tokens[start:],
        positions=prompt.positions[:, start:],
        vision=tuple(item for item, _ in left),
        vision_at=tuple(at for _, at in left),
        trunk=max(0, prompt.trunk - start),
    )


def prefill_from_kept(engine: Engine, prompts: Sequence[Prompt], keep: Sequence[bool], rows: int) -> Prefix:
    """`Engine.prefill`, reusing what is kept; whole blocks of the prompts with `keep` are kept for later ones."""
    kept = engine.kept
    assert kept is not None, "the engine keeps no prefixes"
    names = [block_names(prompt) for prompt in prompts]
    counts = [
        reusable(kept, prompt, all_of, engine.patches_per_token) for prompt, all_of in zip(prompts, names, strict=True)
    ]
    kept.reused += BLOCK * sum(counts)
    offset = 0
    if not any(counts):
        prefix = engine.prefill(prompts, rows)
    else:
        offset = bucket(BLOCK * max(counts), 4 * BLOCK, fineness=2)
        prefix = _extended(engine, prompts, names, counts, rows, offset)
    _keep(kept, prefix, names, counts, keep, offset)
    return prefix


def _extended(
    engine: Engine,
    prompts: Sequence[Prompt],
    names: Sequence[Sequence[bytes]],
    counts: Sequence[int],
    rows: int,
    offset: int,
) -> Prefix:
    assert engine.kept is not None
    more = rows - len(prompts)
    counts = [*counts, *[counts[-1]] * more]
    prompts, names = [*prompts, *[prompts[-1]] * more], [*names, *[names[-1]] * more]
    kept = engine.kept.take([all_of[:count] for all_of, count in zip(names, counts, strict=True)], offset)
    tails = [tail_of(prompt, BLOCK * count) for prompt, count in zip(prompts, counts, strict=True)]
    length = engine.length_of(max(map(len, tails)))
    tokens, positions, lengths, following = engine.arrays(tails, length)
    features, index = engine.vision.splice(tails, length)
    places = bucket(offset + length, 64, fineness=2)
    graph, shard = engine.graph, engine.shard

    def run(params: Any, *arrays: Any) -> Prefix:
        return extend(nnx.merge(graph, params), *arrays, shard=shard, places=places)

    engine.padding.count("prefill", sum(map(len, tails[: rows - more])), rows * length)
    held = np.asarray([BLOCK * count for count in counts], np.int32)
    arguments = (kept, held, tokens, positions, lengths, following, features, index, engine.unrolled_layers())
    key = (rows, offset, length, features is not None)
    return engine.run("extend", key, jax.jit(run), engine.params, *arguments)


def _keep(
    kept: KeptPrefixes,
    prefix: Prefix,
    names: Sequence[Sequence[bytes]],
    counts: Sequence[int],
    keep: Sequence[bool],
    offset: int,
) -> None:
    """Take new blocks of the rows that are to be kept out of a prefix, whose new tokens begin at place `offset`."""
    if any(keep):
        # What was kept before needs not come from the device again. By layer:
        keys = list(jax.device_get(jax.tree.map(lambda array: array[..., offset:], prefix.keys)))
        values = list(jax.device_get(jax.tree.map(lambda array: array[..., offset:, :], prefix.values)))
        for row, (all_of, count) in enumerate(zip(names, counts, strict=True)):
            if not keep[row]:
                continue
            for number in range(count, len(all_of)):
                if all_of[number] not in kept:
                    here = slice((number - count) * BLOCK, (number - count + 1) * BLOCK)
                    kept.keep(
                        all_of[number],
                        np.stack([layer[row, :, :, here] for layer in keys]),
                        np.stack([layer[row, :, here] for layer in values]),
                    )
    for all_of in names:
        kept.touch(all_of)
