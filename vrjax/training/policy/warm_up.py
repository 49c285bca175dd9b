"""The programs of a policy run, compiled before its first step; none is run.

    vision for every grid ─▶ prefill, start, decode for every prompt length ─▶ reference, log-probs, update for every
    bucket and level of response lengths

What is left to the steps: batches with fewer prompts (damaged videos), and decoding in narrower batches once finished
samples are left behind (responses longer than a chunk). known_programs has them, so they are expected when they come.
"""

from __future__ import annotations

import jax

from vrjax.ledger import as_shape
from vrjax.training.policy.compiled import PolicyPrograms
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.known_programs import group_sizes, reachable_buckets
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.sampler import Sampler
from vrjax.training.policy.shapes import (
    abstract_batch,
    encode_shapes,
    go_through_sampling,
    go_through_update,
    prompts_at_once,
    vision_of,
)
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
    engine, survey = sampler.engine, prepared.corpus.survey
    encode_shapes(engine)
    visions = [
        vision_of(grids, prepared.model.config.vision.patch_values)
        for grids in sorted({tuple(plan.grids) for plan in survey.plans if plan is not None})
    ]
    for vision in visions:
        engine.encode(vision)
    rows = prompts_at_once(engine, config, config.rollout.prompts // jax.process_count())
    longest = [row.size.length - config.rollout.max_tokens for row in survey.rows if row.size != NOTHING]
    for length in sorted({engine.length_of(length) for length in longest}):
        go_through_sampling(engine, config, length, visions[0], rows)


def _rehearse_updates(
    config: GrpoConfig, prepared: PreparedPolicy, rehearsal: Rehearsal, sampler: Sampler, state: TrainState
) -> None:
    """Reference, log-probs and update for every size of rows."""
    programs, mesh = PolicyPrograms(config, prepared, rehearsal), prepared.mesh
    reference = programs.reference_of(state)
    for bucket in sorted(reachable_buckets(config, prepared.buckets)):
        for size in group_sizes(config, bucket, prepared.model.config.vision.merge_size**2):
            batch = abstract_batch(config, prepared.model, mesh, size, bucket, prepared)
            go_through_update(config, programs, batch, state, reference, sampler.engine.masks, mesh)
