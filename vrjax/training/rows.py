"""Training rows: one video and several of its questions in one packed row, the video's tokens shared.

    tokens     system <video pads>  | question 1  response 1 <|im_end|> | question 2  response 2 <|im_end|> | padding
    segment    1 1 1 1 1 1 1 1 1 1  | 1 1 1 1 1   1 1 1 1 1 1           | 1 …                               | 0
    branch     0 0 0 0 0 0 0 0 0 0  | 1 1 1 1 1   1 1 1 1 1 1           | 2 …                               | 0
    positions  p(0) … p(T-1)        | p(T) …                            | p(T) … (starts again)             | 0
    predicted                       |             x x x x x x           |             x x …                 |

A branch sees the trunk and itself (models.attention.Visibility). Only response tokens are predicted, the first end
token included, and nothing after it. Token ids are taken as they are, never decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from vrjax.generation.prompts import Prompt, Vision
from vrjax.models.qwen2_5_vl import VisionConfig, VisionInputs, vision_inputs
from vrjax.models.qwen2_5_vl.layout import frame_shape, has_whole_windows, window_slots
from vrjax.training.buckets import RowSize


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PackedText:
    """The text side of a row [S], or of stacked rows [B, S] (positions then [B, 3, S]).

    feature_index: index of a token's feature among those of the row's own vision inputs, -1 for text.
    target_at [R]: index of the token from which each predicted token is read off (the one before it); targets [R]: the
    predicted ids; weights [R]: their weights in the loss, 0 on padding.
    """

    tokens: Int[np.ndarray, "S"]
    positions: Int[np.ndarray, "3 S"]
    segment: Int[np.ndarray, "S"]
    branch: Int[np.ndarray, "S"]
    feature_index: Int[np.ndarray, "S"]
    target_at: Int[np.ndarray, "R"]
    targets: Int[np.ndarray, "R"]
    weights: Float[np.ndarray, "R"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """B rows of one bucket as the train step reads them; vision inputs have a first axis for the row: [B, F, …]."""

    text: PackedText
    vision: VisionInputs


def pack_text(
    prompts: Sequence[Prompt], responses: Sequence[Sequence[int]], places: Sequence[Int[np.ndarray, "M"]] = ()
) -> PackedText:
    """Pack prompts that share a trunk, each with its response's token ids (end token included where there is one).

    prompts: equal up to their `trunk` tokens. places: index of each vision's features, as `vision_inputs` returns
    them (left out: all features -1, for measuring). Raises ValueError where the trunks differ.
    """
    first = prompts[0]
    trunk = first.trunk
    tokens, positions = [first.tokens[:trunk]], [first.positions[:, :trunk]]
    branch, target_at, targets = [np.zeros(trunk, np.int32)], [], []
    length = trunk
    for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True), 1):
        if prompt.trunk != trunk or not np.array_equal(prompt.tokens[:trunk], first.tokens[:trunk]):
            raise ValueError(f"prompts {first.name!r} and {prompt.name!r} differ in what they should share")
        count = len(response)
        tokens += [prompt.tokens[trunk:], np.asarray(response, np.int32)]
        following = prompt.next_position + np.arange(count, dtype=np.int32)
        positions += [prompt.positions[:, trunk:], np.broadcast_to(following, (3, count))]
        asked = len(prompt) - trunk
        branch.append(np.full(asked + count, number, np.int32))
        first_at = length + asked - 1 if asked else trunk - 1  # the token before the response: all may share it
        target_at.append(np.concatenate([[first_at], np.arange(length + asked, length + asked + count - 1)])[:count])
        targets.append(np.asarray(response, np.int32))
        length += asked + count
    feature_index = np.full(length, -1, np.int32)
    if places:
        feature_index[:trunk] = first.feature_index(places)[:trunk]
    return PackedText(
        tokens=np.concatenate(tokens).astype(np.int32),
        positions=np.concatenate(positions, axis=1).astype(np.int32),
        segment=np.ones(length, np.int32),
        branch=np.concatenate(branch),
        feature_index=feature_index,
        target_at=np.concatenate(target_at).astype(np.int32),
        targets=np.concatenate(targets).astype(np.int32),
        weights=np.ones(sum(map(len, targets)), np.float32),
    )


def pad_text(text: PackedText, bucket: RowSize, pad_id: int) -> PackedText:
    """Pad a row on the right to the bucket's length and number of targets; padding has segment 0 and weight 0."""
    more = bucket.length - len(text.tokens)
    more_targets = bucket.targets - len(text.targets)

    def pad(array: np.ndarray, count: int, value: int = 0) -> np.ndarray:
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, count)], constant_values=value)

    return PackedText(
        tokens=pad(text.tokens, more, pad_id),
        positions=pad(text.positions, more),
        segment=pad(text.segment, more),
        branch=pad(text.branch, more),
        feature_index=pad(text.feature_index, more, -1),
        target_at=pad(text.target_at, more_targets),
        targets=pad(text.targets, more_targets),
        weights=pad(text.weights, more_targets),
    )


def empty_text(bucket: RowSize, pad_id: int) -> PackedText:
    """A row that is all padding."""
    none, row = np.zeros(0, np.int32), np.zeros((3, 0), np.int32)
    return pad_text(PackedText(none, row, none, none, none, none, none, np.zeros(0, np.float32)), bucket, pad_id)


def row_vision(
    vision: Sequence[Vision], config: VisionConfig, bucket: RowSize
) -> tuple[VisionInputs, list[Int[np.ndarray, "M"]]]:
    """Vision inputs of one row in the bucket's shape, and the places of each vision's features."""
    inputs, places = vision_inputs(
        [item.patches for item in vision],
        [item.grid for item in vision],
        config,
        frames=bucket.frames,
        frame_patches=bucket.frame_patches,
        windows=bucket.windows,
    )
    if bucket.ragged and inputs.to_windows is None:  # whole windows in a bucket of ragged ones: patches stay in place
        order = np.broadcast_to(np.arange(bucket.frame_patches, dtype=np.int32), inputs.valid.shape)
        inputs = replace(inputs, to_windows=order.copy(), from_windows=order.copy())
    return inputs, places


def empty_vision(config: VisionConfig, bucket: RowSize) -> VisionInputs:
    """Vision inputs without any frame, in the bucket's shape."""
    frames, patches = bucket.frames, bucket.frame_patches
    slots = bucket.windows * window_slots(config)
    return VisionInputs(
        np.zeros((frames, patches, config.patch_values), np.uint8),
        np.zeros((frames, patches, 2), np.int32),
        np.zeros((frames, patches), bool),
        np.full((frames, slots), patches, np.int32) if bucket.ragged else None,
        np.zeros((frames, patches), np.int32) if bucket.ragged else None,
    )


def row_size(text: PackedText, grids: Sequence[tuple[int, int, int]], config: VisionConfig) -> RowSize:
    """Size of a row before padding."""
    shapes = [frame_shape(grid, config) for grid in grids]
    patches, windows = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    whole = all(has_whole_windows(grid, config) for grid in grids) and patches == windows * window_slots(config)
    return RowSize(
        len(text.tokens), len(text.targets), sum(grid[0] for grid in grids), patches, windows, int(not whole)
    )


def stack_rows(rows: Sequence[Any]) -> Any:
    """Stack trees of equal shapes along a new first axis."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *rows)
