"""One step's groups as the programs read them: rows on the devices, and on the host what the audit compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from vrjax.generation.prompts import Prompt
from vrjax.training.buckets import RowSize
from vrjax.training.placement import place_rows
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.groups import Group
from vrjax.training.policy.packing import (
    NO_ROW,
    GroupRows,
    GroupSize,
    RowPart,
    empty_part,
    feature_places,
    judge,
    pack_part,
    pack_targets,
    recorded,
    split_groups,
    stack_features,
    token_places,
)
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.sampler import Sampler
from vrjax.training.policy_loss import Counted, PolicyTargets
from vrjax.training.processes import largest, total
from vrjax.training.rows import empty_vision, row_vision, stack_rows
from vrjax.training.state import TrainState


@dataclass(frozen=True)
class PolicyBatch:
    """size: of the rows; rows, targets: on the devices; recorded: log-probs of the sampler, present: 1 where there is a
    token, both [B, R] of this process; counted: responses and tokens in the loss, over all processes.
    """

    size: GroupSize
    rows: GroupRows
    targets: PolicyTargets
    recorded: Float[np.ndarray, "B R"]
    processed: Float[np.ndarray, "B R"]
    present: Float[np.ndarray, "B R"]
    counted: Counted
    bucket: RowSize

    @property
    def key(self) -> tuple:
        """Tells apart the shapes of the rows, for the ledger."""
        return self.size.key(self.rows.text.tokens.shape[0], self.bucket if self.rows.vision else None)


def takes_part(config: GrpoConfig, group: Group) -> list[bool]:
    """Which responses of a group are in the loss: those that were scored and, where asked for, not cut off."""
    return [
        reward.value is not None and (sample.finished or not config.rollout.mask_overlong)
        for sample, reward in zip(group.samples, group.rewards, strict=True)
    ]


def pack_batch(
    config: GrpoConfig,
    prepared: PreparedPolicy,
    groups: Sequence[Group],
    advantages: Float[np.ndarray, "B G"],
    bucket: RowSize,
    sampler: Sampler,
    state: TrainState,
) -> PolicyBatch:
    """Pack this process's groups into its rows of the batch; missing ones (damaged videos) are empty rows.

    bucket: holds all prompts, each with one response of full length, and their vision. state: for features that the
    sampler does not hold.
    """
    model, chat = prepared.model.config, prepared.model.chat
    merge = model.vision.merge_size**2
    rows_here = config.rollout.prompts * config.split_groups // jax.process_count()
    filled = split_groups(groups, config.split_groups)
    parts: list[RowPart | None] = [*filled, *[None] * (rows_here - len(filled))]

    size = NO_ROW
    for part in filled:
        size = size.joined(part.size(merge))
    responses_a_row = config.rollout.group // config.split_groups
    size = GroupSize(*largest(size.as_tuple())).padded(bucket, config.rollout.max_tokens, responses_a_row, merge)

    lengths = [group.lengths for group in groups]
    counted = [takes_part(config, group) for group in groups]
    mine = Counted.of(lengths, counted)
    responses, tokens = total([mine.responses, mine.tokens])
    everyone = Counted(int(responses), int(tokens))
    judged = judge(lengths, counted, advantages, everyone, config.loss)
    owner = [number // config.split_groups for number in range(len(filled))] + [0] * (rows_here - len(filled))

    features = vision = None
    if config.freeze_vision:
        places = [[] if part is None else feature_places(part, merge) for part in parts]
        held = [[] if part is None else sampler.features(_prompt(part).vision, state) for part in parts]
        features = stack_features(held, size, model.text.width)
    else:
        inputs, places = [], []
        for part in parts:
            if part is None or not _prompt(part).vision:
                inputs.append(empty_vision(model.vision, bucket))
                places.append([])
            else:
                one, at = row_vision(_prompt(part).vision, model.vision, bucket)
                inputs.append(one)
                places.append(at)
        vision = stack_rows(inputs)
    text = stack_rows(
        [
            empty_part(size, chat.pad_id) if part is None else pack_part(part, at, size, chat.pad_id)
            for part, at in zip(parts, places, strict=True)
        ]
    )
    rows = GroupRows(text, token_places(parts, size), features, vision)
    targets = pack_targets(parts, owner, judged, size)
    return PolicyBatch(
        size,
        place_rows(rows, prepared.mesh),
        place_rows(targets, prepared.mesh),
        recorded(parts, size, "raw_log_probs"),
        recorded(parts, size, "processed_log_probs"),
        np.asarray(text.weights),
        everyone,
        bucket,
    )


def _prompt(part: RowPart) -> Prompt:
    prompt = part.group.item.prompt
    assert prompt is not None
    return prompt
