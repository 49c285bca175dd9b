"""mRoPE positions: three numbers (time, height, width) for each token of a prompt. NumPy, on the host.

Rule `released` (the default) is the one that the released weights were trained with (Qwen's rope2d code and
transformers 4.49): the temporal id of a grid is int(i * seconds_per_grid * tokens_per_second), truncated after the
product, and text goes on at the maximum over all three axes + 1.
Rule `transformers_5` goes on at offset + max(h, w) / merge, which ignores time; it exists to match a deployment that
has this drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Int

from vrjax.models.qwen2_5_vl.config import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.layout import Grid

PositionRule = Literal["released", "transformers_5"]


def temporal_ids(grid_t: int, seconds_per_grid: float, tokens_per_second: float) -> Int[np.ndarray, "T"]:
    """int(i * seconds_per_grid * tokens_per_second) for each grid i, multiplied in float32 as in the released code."""
    seconds = np.arange(grid_t, dtype=np.float32) * np.float32(seconds_per_grid)
    return (seconds * np.float32(tokens_per_second)).astype(np.int32)


def prompt_positions(
    tokens: Int[np.ndarray, "S"],
    grids: Sequence[Grid],
    seconds_per_grid: Sequence[float | None],
    config: Qwen2_5VLConfig,
    rule: PositionRule = "released",
) -> tuple[Int[np.ndarray, "3 S"], int]:
    """Positions of a prompt and the position of the token that follows it.

    tokens: with pads expanded, one run of image or video pads per entry of `grids`, in order.
    grids: (t, h, w) in patches. seconds_per_grid: seconds that one temporal patch spans; None for an image.
    Raises ValueError where runs of pads and grids disagree.
    """
    merge = config.vision.merge_size
    positions = np.zeros((3, len(tokens)), np.int32)
    is_pad = (tokens == config.image_token) | (tokens == config.video_token)
    index = following = video = 0
    while index < len(tokens):
        end = index + 1
        if not is_pad[index]:
            while end < len(tokens) and not is_pad[end]:
                end += 1
            positions[:, index:end] = following + np.arange(end - index)
            following += end - index
            index = end
            continue
        while end < len(tokens) and tokens[end] == tokens[index]:
            end += 1
        if video >= len(grids):
            raise ValueError(f"the prompt has a run of pads at token {index} but only {len(grids)} images and videos")
        t, h, w = grids[video][0], grids[video][1] // merge, grids[video][2] // merge
        if end - index != t * h * w:
            raise ValueError(f"image or video {video} fills {t * h * w} tokens, but the prompt has {end - index} pads")
        seconds = seconds_per_grid[video]
        time = np.arange(t) if seconds is None else temporal_ids(t, seconds, config.vision.tokens_per_second)
        grid = np.stack(np.broadcast_arrays(time[:, None, None], np.arange(h)[:, None], np.arange(w)[None]))
        positions[:, index:end] = following + grid.reshape(3, -1)
        following += max(h, w) if rule == "transformers_5" else int(grid.max()) + 1
        index, video = end, video + 1
    if video != len(grids):
        raise ValueError(f"{len(grids)} images and videos were given, but the prompt has pads for {video}")
    return positions, following
