"""The programs of a policy run (GRPO), in the order of its first step, each compiled and none run.

    place ─▶ reference_of ─▶ spread ─▶ vision, prefill, start, decode ─▶ reference ─▶ [log_probs] ─▶ update

Trainer, sampler and engine are the run's own; only their arrays are shapes (`recorder`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
from jax.sharding import Mesh

from vrjax.errors import InputError
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import Vision
from vrjax.generation.vision_features import batches
from vrjax.loading import LoadedModel
from vrjax.models.qwen2_5_vl.layout import Grid
from vrjax.planning.recorder import PlanLedger
from vrjax.planning.workload import Workload
from vrjax.sharding import processes_of
from vrjax.training.placement import check_batch
from vrjax.training.policy.compiled import PolicyPrograms
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.known_programs import group_sizes
from vrjax.training.policy.preparation import PolicyParts, assemble_policy
from vrjax.training.policy.sampler import Sampler
from vrjax.training.policy.shapes import (
    abstract_batch,
    encode_shapes,
    go_through_sampling,
    go_through_update,
    prompts_at_once,
    vision_of,
)


def plan_policy(
    config: GrpoConfig,
    model: LoadedModel,
    mesh: Mesh,
    local: Mesh,
    work: Workload,
    ledger: PlanLedger,
    *,
    every_size: bool = False,
) -> PolicyParts:
    """Compile all programs of a step. local: where a process samples; every_size: rows for short responses too, not the
    longest alone.

    Raises InputError where mesh, batch and model do not fit together, before anything is compiled.
    """
    rollout, processes = config.rollout, processes_of(mesh)
    check_batch(rollout.prompts * config.split_groups, config.micro_batches, mesh, "rollout.prompts × split_groups")
    if rollout.prompts % processes:
        raise InputError(
            f"rollout.prompts {rollout.prompts} is not divisible by {processes} processes, each of which samples its "
            "own. Change the number."
        )
    parts = assemble_policy(config, model, mesh, work.steps, ledger.run)
    programs = PolicyPrograms(config, parts, ledger)
    ledger.alive = {"training state": parts.state}
    reference = programs.reference_of(parts.state)
    ledger.alive["reference policy"] = reference

    # ---- Rollout: each process samples its own prompts
    sampler = Sampler(model, parts.abstract, parts.policy, mesh, rollout, ledger, local)
    sampler.load(parts.state)
    ledger.alive["sampling weights"] = sampler.engine.params
    prompts = rollout.prompts // processes
    with_vision = _encode(sampler.engine, work.grids, prompts, ledger)
    ledger.alive["vision features"] = _kept_features(sampler.engine, with_vision, prompts)
    rows = prompts_at_once(sampler.engine, config, prompts)
    batches_of_prompts = -(-prompts // rows)  # the last one is filled up
    chunk = min(sampler.engine.options.chunk, rollout.max_tokens)
    ledger.calls = {
        "prefill": batches_of_prompts, "start": batches_of_prompts,
        "decode": batches_of_prompts * -(-rollout.max_tokens // chunk), "update": config.inner_epochs,
    }  # fmt: skip
    ledger.loop_trips = {"decode": chunk}
    largest = max(work.buckets, key=lambda bucket: bucket.length)
    for bucket in work.buckets if every_size else (largest,):
        length = bucket.length - rollout.max_tokens
        go_through_sampling(sampler.engine, config, length, max(with_vision, key=len), rows)
    masks = sampler.engine.masks
    ledger.alive.pop("sampling weights")

    # ---- Update
    for bucket in work.buckets:
        for size in group_sizes(config, bucket, model.config.vision.merge_size**2, every_size=every_size):
            batch = abstract_batch(config, model, mesh, size, bucket, parts)
            go_through_update(config, programs, batch, parts.state, reference, masks, mesh)
    return parts


def _encode(
    engine: Engine, grids: Sequence[tuple[Grid, ...]], prompts: int, ledger: PlanLedger
) -> list[tuple[Vision, ...]]:
    """Compile the tower for every grid; each kind of prompt with its images and videos, encoded."""
    encode_shapes(engine)
    found = [vision_of(kind, engine.config.vision.patch_values) for kind in grids]
    for vision in found:
        ledger.calls = {"vision": prompts * len(batches(vision))}
        engine.encode(vision)
    return found


def _kept_features(engine: Engine, kinds: Sequence[tuple[Vision, ...]], prompts: int) -> jax.ShapeDtypeStruct:
    """The engine keeps a step's features, at most so many bytes, for the update to read."""
    config, dtype = engine.config, jax.tree.leaves(engine.params)[0].dtype
    unit, width = config.vision.merge_size**2, config.text.width
    tokens = prompts * max(sum(math.prod(item.grid) for item in vision) // unit for vision in kinds)
    room = engine.options.feature_cache_bytes // (width * dtype.itemsize)
    return jax.ShapeDtypeStruct((min(tokens, room), width), dtype)
