"""Reading: continuations in batches through the engine (`continuations` says what a row is)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from vrjax.errors import InputError
from vrjax.generation.buckets import bucket
from vrjax.generation.continuations import Continuations, Reading, pack_rows, read_rows
from vrjax.models.attention import Reach

if TYPE_CHECKING:
    from vrjax.generation.engine import Engine


def read(engine: Engine, asked: Sequence[Continuations], ids: Sequence[int], log_probs: bool) -> list[list[Reading]]:
    """See `Engine.read`."""
    for one in asked:
        if not one.tokens or not all(one.tokens):
            raise InputError(f"{one.prompt.name}: there is no continuation to read, or an empty one.")
        engine.check_context(one.prompt, one.longest)
    order = sorted(range(len(asked)), key=lambda number: (-len(asked[number].tokens), -asked[number].length))
    results: list[list[Reading]] = [[] for _ in asked]
    done = 0
    while done < len(order):
        group = len(asked[order[done]].tokens)
        batch = order[done : done + max(1, engine.options.batch_rows // group)]
        for number, found in zip(batch, _read(engine, [asked[n] for n in batch], ids, log_probs), strict=True):
            results[number] = found
        done += len(batch)
        if engine.progress is not None:
            engine.progress(done, len(order))
    return results


def _read(engine: Engine, asked: Sequence[Continuations], ids: Sequence[int], log_probs: bool) -> list[list[Reading]]:
    multiple = engine.options.length_multiple
    rows, group = bucket(len(asked), 1), max(len(one.tokens) for one in asked)
    padded = [*asked, *[asked[-1]] * (rows - len(asked))]
    length = bucket(max(one.length for one in asked), multiple)
    targets = bucket(max(one.length - len(one.prompt) for one in asked), multiple) if log_probs else 0
    reach = Reach(
        bucket(max(len(one.prompt) for one in asked), multiple), bucket(max(one.longest for one in asked), multiple)
    )
    packed = pack_rows(padded, length, group, targets, engine.axes, engine.chat.pad_id)
    features, index = engine.vision.splice([one.prompt for one in padded], length)
    graph, shard = engine.graph, engine.shard

    def run(params: Any, *arrays: Any) -> Any:
        return read_rows(nnx.merge(graph, params), *arrays, reach=reach, log_probs=log_probs, shard=shard)

    arguments = (engine.params, packed, features, index, np.asarray(ids, np.int32), engine.unrolled_layers())
    shape = (rows, length, group, targets, len(ids), features is not None, reach, log_probs)
    logits, read = jax.device_get(engine.run("read", shape, jax.jit(run), *arguments))
    engine.padding.count("read", sum(one.length for one in asked), rows * length)
    results = []
    for row, one in enumerate(asked):
        ends = np.cumsum([len(tokens) for tokens in one.tokens])
        parts = np.split(read[row, : ends[-1]], ends[:-1]) if log_probs else [read[row]] * len(ends)
        results.append([Reading(logits[row, number], part) for number, part in enumerate(parts)])
    return results
