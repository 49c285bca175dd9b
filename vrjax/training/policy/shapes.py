"""A policy run's step gone through with shapes for arrays, before there is a prompt: for warm-up, and for plans.

Visions, prompts and batches as shapes; and which programs a step asks for with them, in its order. The ledger of the
sampler and the programs must be one that answers with shapes (`warm_up.ShapeLedger`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrjax.generation.buckets import bucket as fill
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import Prompt, Vision
from vrjax.generation.sampling import row_keys
from vrjax.loading import LoadedModel
from vrjax.models.qwen2_5_vl.layout import Grid
from vrjax.training.buckets import RowSize
from vrjax.training.placement import ROWS
from vrjax.training.policy.batch import PolicyBatch
from vrjax.training.policy.compiled import Parts, PolicyPrograms
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.packing import GroupRows, GroupSize, empty_part, token_places
from vrjax.training.policy_loss import Counted, PolicyTargets
from vrjax.training.rows import empty_vision
from vrjax.training.state import TrainState


def encode_shapes(engine: Engine) -> None:
    """Let an engine whose ledger answers with shapes lay features out as it does real ones; what it hands on is a shape
    again, whole on each device.
    """
    tower, splice = engine.vision.run, engine.vision.splice
    mesh = jax.tree.leaves(engine.params)[0].sharding.mesh

    def run(inputs: Any) -> jax.Array:
        shape = tower(inputs)
        return jnp.zeros(shape.shape, shape.dtype)

    def splice_shapes(prompts: Sequence[Prompt], length: int) -> tuple[Any, Any]:
        features, index = splice(prompts, length)
        if features is not None:
            place = NamedSharding(mesh, PartitionSpec())
            features = jax.ShapeDtypeStruct(features.shape, features.dtype, sharding=place)
        return features, index

    engine.vision.run, engine.vision.splice = run, splice_shapes


def vision_of(grids: Sequence[Grid], patch_values: int) -> tuple[Vision, ...]:
    """A plan's video, or its images, of these grids, black."""
    return tuple(
        Vision(np.zeros((math.prod(grid), patch_values), np.uint8), grid, 1.0, f"{number} of {grids}", str(grids))
        for number, grid in enumerate(grids)
    )


def prompt_of(length: int, vision: Sequence[Vision], unit: int) -> Prompt:
    """A prompt of `length` tokens whose images and videos come first; as many of them as there is room for."""
    counts = [math.prod(item.grid) // unit for item in vision]
    places = np.cumsum([0, *counts])
    kept = int(np.searchsorted(places, length, side="right")) - 1
    return Prompt(
        np.zeros(length, np.int32),
        np.zeros((3, length), np.int32),
        length,
        tuple(vision[:kept]),
        tuple(int(place) for place in places[:kept]),
    )


def abstract_batch(
    config: GrpoConfig, model: LoadedModel, mesh: Mesh, size: GroupSize, bucket: RowSize, parts: Parts
) -> PolicyBatch:
    """A step's rows as shapes, made by the functions that pad rows without a prompt."""
    count = config.rollout.prompts * config.split_groups
    place = NamedSharding(mesh, ROWS)

    def rows_of(row: Any) -> Any:
        return jax.tree.map(lambda array: jax.ShapeDtypeStruct((count, *array.shape), array.dtype, sharding=place), row)

    text = rows_of(empty_part(size, model.chat.pad_id))
    features = vision = None
    if config.freeze_vision:
        shape = (count, size.features, model.config.text.width)
        features = jax.ShapeDtypeStruct(shape, parts.policy.options.dtype, sharding=place)
    else:
        vision = rows_of(empty_vision(model.config.vision, bucket))
    tokens = jax.ShapeDtypeStruct((count, size.targets), jnp.float32, sharding=place)
    numbers = jax.ShapeDtypeStruct((count, size.targets), jnp.int32, sharding=place)
    rows = GroupRows(text, numbers, features, vision)  # pyright: ignore[reportArgumentType]
    targets = PolicyTargets(tokens, tokens, tokens, numbers)  # pyright: ignore[reportArgumentType]
    nothing = np.zeros(token_places([None], size).shape, np.float32)
    return PolicyBatch(size, rows, targets, nothing, nothing, nothing, Counted(1, 1), bucket)


def prompts_at_once(engine: Engine, config: GrpoConfig, prompts: int) -> int:
    """Of `prompts` that a process samples, how many are decoded together."""
    return min(max(1, engine.options.batch_rows // config.rollout.group), fill(prompts, 1))


def go_through_sampling(engine: Engine, config: GrpoConfig, length: int, vision: Sequence[Vision], rows: int) -> None:
    """Prefill, start and one chunk of decoding for `rows` prompts of `length` tokens."""
    rollout, sampling = config.rollout, config.rollout.sampling()
    prompt = prompt_of(length, vision, engine.config.vision.merge_size**2)
    prefix = engine.prefill([prompt] * rows, rows)
    keys = row_keys(0, 0, np.zeros(rows, np.uint32), np.arange(rollout.group, dtype=np.uint32))
    state = engine.start(prefix, keys, sampling)
    engine.go_on(prefix, state, sampling, min(engine.options.chunk, rollout.max_tokens))


def go_through_update(
    config: GrpoConfig, programs: PolicyPrograms, batch: PolicyBatch, state: TrainState, reference: Any, masks: Any,
    mesh: Mesh,
) -> None:  # fmt: skip
    """Every program that reads packed rows, of one size. reference: parameters, or None; masks: the sampler's."""
    rows = jax.ShapeDtypeStruct(batch.rows.place.shape, jnp.float32, sharding=NamedSharding(mesh, ROWS))
    targets = batch.targets
    if reference is not None:
        targets = replace(targets, reference=programs.reference(reference, state, batch))
    if config.inner_epochs > 1 or config.lookahead:
        programs.log_probs(state, batch)
    if config.audit.processed_every and not config.lookahead:
        programs.processed(state, batch, jax.tree.map(np.asarray, masks))
    if config.inner_epochs > 1:
        targets = replace(targets, old=rows)
    if config.lookahead:
        targets = replace(targets, sampler=rows)
    programs.update(state, batch, targets)
