"""The programs of a policy run, compiled before its first step; none is run.

    vision for every grid ─▶ prefill, start, decode for every prompt length ─▶ reference, log-probs, update for every
    bucket and level of response lengths

What is left to the steps: batches with fewer prompts (damaged videos), and decoding in narrower batches once finished
samples are left behind (responses longer than a chunk). known_programs has them, so they are expected when they come.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from vrjax.generation.buckets import bucket as fill
from vrjax.generation.sampling import row_keys
from vrjax.ledger import as_shape
from vrjax.training.placement import ROWS
from vrjax.training.policy.compiled import PolicyPrograms
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.known_programs import group_sizes, reachable_buckets
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.sampler import Sampler
from vrjax.training.policy.shapes import abstract_batch, encode_shapes, prompt_of, vision_of
from vrjax.training.state import TrainState
from vrjax.training.survey import NOTHING
from vrjax.training.warm_up import Rehearsal


def rehearse_policy(config: GrpoConfig, prepared: PreparedPolicy, rehearsal: Rehearsal) -> None:
    """Go through a step of every size with shapes for arrays."""
    state = jax.tree.map(as_shape, prepared.state)
    sampler = Sampler(prepared.model, prepared.abstract, prepared.policy, prepared.mesh, config.rollout, rehearsal)
    sampler.load(state)
    _rehearse_rollout(config, prepared, sampler)
    _rehearse_updates(config, prepared, rehearsal, sampler, state)


def _rehearse_rollout(config: GrpoConfig, prepared: PreparedPolicy, sampler: Sampler) -> None:
    """The tower for every grid; prefill and decoding for every length of prompts that a full batch can have."""
    engine, rollout, survey = sampler.engine, config.rollout, prepared.corpus.survey
    vision_config, sampling = prepared.model.config.vision, rollout.sampling()
    encode_shapes(engine)
    visions = [
        vision_of(grids, vision_config.patch_values)
        for grids in sorted({tuple(plan.grids) for plan in survey.plans if plan is not None})
    ]
    for vision in visions:
        engine.encode(vision)
    rows = min(max(1, engine.options.batch_rows // rollout.group), fill(rollout.prompts // jax.process_count(), 1))
    longest = [row.size.length - rollout.max_tokens for row in survey.rows if row.size != NOTHING]
    for length in sorted({engine.length_of(length) for length in longest}):
        prompt = prompt_of(length, visions[0], vision_config.merge_size**2)
        prefix = engine.prefill([prompt] * rows, rows)
        keys = row_keys(0, 0, np.zeros(rows, np.uint32), np.arange(rollout.group, dtype=np.uint32))
        state = engine.start(prefix, keys, sampling)
        engine.go_on(prefix, state, sampling, min(engine.options.chunk, rollout.max_tokens))


def _rehearse_updates(
    config: GrpoConfig, prepared: PreparedPolicy, rehearsal: Rehearsal, sampler: Sampler, state: TrainState
) -> None:
    """Reference, log-probs and update for every size of rows."""
    programs, mesh = PolicyPrograms(config, prepared, rehearsal), prepared.mesh
    reference = programs.reference_of(state)
    for bucket in sorted(reachable_buckets(config, prepared.buckets)):
        for size in group_sizes(config, bucket, prepared.model.config.vision.merge_size**2):
            batch = abstract_batch(config, prepared.model, mesh, size, bucket, prepared)
            rows = jax.ShapeDtypeStruct(batch.rows.place.shape, jnp.float32, sharding=NamedSharding(mesh, ROWS))
            targets = batch.targets
            if reference is not None:
                targets = replace(targets, reference=programs.reference(reference, state, batch))
            if config.inner_epochs > 1 or config.lookahead:
                programs.log_probs(state, batch)
            if config.audit.processed_every and not config.lookahead:
                programs.processed(state, batch, jax.tree.map(np.asarray, sampler.engine.masks))
            if config.inner_epochs > 1:
                targets = replace(targets, old=rows)
            if config.lookahead:
                targets = replace(targets, sampler=rows)
            programs.update(state, batch, targets)
