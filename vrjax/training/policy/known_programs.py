"""Which programs a policy run may compile: known before the first step, from the survey of its data.

Rows of the update pad to a bucket of prompts and one of packing.LEVELS, so that a program for longer responses may come
late and is still planned. Of the rollout all prompts' lengths and grids are known (generation.known_programs). What is
none of these is unexpected: the survey is not that of the data, or some size depends on what was sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax

from vrjax.generation.known_programs import Program
from vrjax.training.buckets import RowSize
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.packing import LEVELS, NO_ROW, GroupSize
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.sampler import Sampler
from vrjax.training.survey import NOTHING


def group_sizes(config: GrpoConfig, bucket: RowSize, merge: int, *, every_size: bool = True) -> list[GroupSize]:
    """Sizes that rows of a bucket's prompts can have, from short responses to the longest, or the longest alone."""
    responses = config.rollout.group // config.split_groups
    most = responses * config.rollout.max_tokens
    levels = LEVELS if every_size else LEVELS[-1:]
    small = [GroupSize(1, math.ceil(most * level), 1, 1, 1) for level in levels]
    return list(dict.fromkeys(size.padded(bucket, config.rollout.max_tokens, responses, merge) for size in small))


def row_programs(config: GrpoConfig) -> tuple[str, ...]:
    """Names of the programs that read packed rows."""
    wanted = {
        "reference": config.loss.kl_weight != 0,
        "log_probs": config.inner_epochs > 1 or config.lookahead > 0,
        "processed": config.audit.processed_every > 0 and not config.lookahead,
        "update": True,
    }
    return tuple(name for name, used in wanted.items() if used)


def reachable_buckets(config: GrpoConfig, buckets: Sequence[RowSize]) -> set[RowSize]:
    """Buckets that a step's rows may have: where groups are drawn again, joins of them too."""
    found = set(buckets)
    for bucket in buckets if config.rollout.resample_rounds else ():
        found |= {bucket.joined(other) for other in found}
    return found


def known_programs(config: GrpoConfig, prepared: PreparedPolicy, sampler: Sampler) -> frozenset[Program]:
    """Name and key of every program that the run may ask its ledger for."""
    rollout, merge = config.rollout, prepared.model.config.vision.merge_size**2
    responses, rows = rollout.group // config.split_groups, rollout.prompts * config.split_groups
    found: set[Program] = {("spread", None), ("reference_of", None)}
    for bucket in reachable_buckets(config, prepared.buckets):
        nothing = NO_ROW.padded(bucket, rollout.max_tokens, responses, merge)  # no video of a batch can be read
        for size in [*group_sizes(config, bucket, merge), nothing]:
            key = size.key(rows, None if config.freeze_vision else bucket)
            found |= {(program, key) for program in row_programs(config)}
    survey = prepared.corpus.survey
    return frozenset(found) | sampler.known_programs(
        grids=[tuple(plan.grids) for plan in survey.plans if plan is not None],
        lengths=[row.size.length - rollout.max_tokens for row in survey.rows if row.size != NOTHING],
        requests=rollout.prompts // jax.process_count(),
    )
