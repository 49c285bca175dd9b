"""Host side of the vision tower: which patch goes where. NumPy only; no model, no device.

Windows never cross a temporal patch, and full attention stays within one temporal patch too, so the tower treats
temporal patches ("frames" below, F of them) as independent rows: it sees [F, N, patch values], whatever videos and
images they come from. Within a frame, merged tokens (2 x 2 patches) stand in window order:

    merged grid 3 x 5, windows of 4 x 4:     window 1        window 2 (ragged)
        0  1  2  3 | 4                       0 1 2 3 5 6 7 8 10 11 12 13 | 4 9 14
        5  6  7  8 | 9
        10 11 12 13| 14

Frames are padded to N patches. Where every window is whole, window attention is a reshape; else it gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import jax
import numpy as np
from jaxtyping import Int, UInt8

from vrjax.models.qwen2_5_vl.config import VisionConfig

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class FrameLayout:
    """Layout of one frame of h x w merged tokens.

    order: merged-token index (row by row) at each place in window order.
    window_sizes: merged tokens in each window.
    """

    order: np.ndarray
    window_sizes: tuple[int, ...]

    @property
    def inverse(self) -> np.ndarray:
        """Place in window order of each merged token."""
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(len(self.order))
        return inverse


@lru_cache(maxsize=512)
def frame_layout(height: int, width: int, window: int) -> FrameLayout:
    """Window order of a frame of `height` x `width` merged tokens, windows of `window` x `window`."""
    index = np.arange(height * width).reshape(height, width)
    windows = [
        index[top : top + window, left : left + window].reshape(-1)
        for top in range(0, height, window)
        for left in range(0, width, window)
    ]
    return FrameLayout(np.concatenate(windows), tuple(len(part) for part in windows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VisionInputs:
    """What the vision tower reads. F frames of N patches each, N a multiple of merge².

    patches: uint8 pixels in window order, vector order (channel, 2 frames, row, column).
    coordinates: (row, column) of each patch, for its rotary embedding.
    valid: False on padding patches.
    to_windows: for ragged windows, patch index at each of W·slots places of the padded windows (N: nothing there);
        None where all windows are whole.
    from_windows: place of each patch in the padded windows; None likewise.
    """

    patches: UInt8[np.ndarray, "F N V"]
    coordinates: Int[np.ndarray, "F N 2"]
    valid: np.ndarray
    to_windows: np.ndarray | None
    from_windows: np.ndarray | None

    @property
    def shape_key(self) -> tuple:
        """What a compiled program depends on."""
        windows = None if self.to_windows is None else self.to_windows.shape[1]
        return (*self.patches.shape[:2], windows)


def window_slots(config: VisionConfig) -> int:
    """Patches in a whole window."""
    return (config.window * config.merge_size) ** 2


def frame_shape(grid: Grid, config: VisionConfig) -> tuple[int, int]:
    """(patches, windows) of one frame of `grid` (t, h, w) in patches."""
    merged_h, merged_w = grid[1] // config.merge_size, grid[2] // config.merge_size
    windows = -(-merged_h // config.window) * -(-merged_w // config.window)
    return grid[1] * grid[2], windows


def has_whole_windows(grid: Grid, config: VisionConfig) -> bool:
    side = config.window * config.merge_size
    return grid[1] % side == 0 and grid[2] % side == 0


def vision_inputs(
    patches: Sequence[UInt8[np.ndarray, "S V"]],
    grids: Sequence[Grid],
    config: VisionConfig,
    frames: int | None = None,
    frame_patches: int | None = None,
    windows: int | None = None,
) -> tuple[VisionInputs, list[Int[np.ndarray, "M"]]]:
    """Lay out the patches of several videos and images for the tower.

    patches: one array per video or image, rows in merge-block order (t, then blocks of 2 x 2), t·h·w of them.
    grids: (t, h, w) in patches of each. frames, frame_patches, windows: sizes to pad to (default: as small as fits).

    Returns the inputs and, for each video, the index of its merged tokens (in the order that the prompt lists them)
    among the tower's flattened output [F · N / merge²]. Raises ValueError where sizes do not fit.
    """
    unit, slots = config.merge_size**2, window_slots(config)
    total = sum(grid[0] for grid in grids)
    shapes = [frame_shape(grid, config) for grid in grids]
    frames = frames or total
    frame_patches = frame_patches or max(shape[0] for shape in shapes)
    windows = windows or max(shape[1] for shape in shapes)
    if total > frames or any(shape[0] > frame_patches or shape[1] > windows for shape in shapes):
        raise ValueError(
            f"{total} frames with {shapes} patches and windows exceed {frames}, {frame_patches}, {windows}"
        )
    whole = all(has_whole_windows(grid, config) for grid in grids) and frame_patches == windows * slots

    values = patches[0].shape[1]
    laid = np.zeros((frames, frame_patches, values), np.uint8)
    coordinates = np.zeros((frames, frame_patches, 2), np.int32)
    valid = np.zeros((frames, frame_patches), bool)
    to_windows = None if whole else np.full((frames, windows * slots), frame_patches, np.int32)
    from_windows = None if whole else np.zeros((frames, frame_patches), np.int32)
    places, frame = [], 0
    for rows, grid in zip(patches, grids, strict=True):
        t, h, w = grid
        if rows.shape != (t * h * w, values):
            raise ValueError(f"grid {grid} wants {t * h * w} patches, found {rows.shape}")
        merged_h, merged_w = h // config.merge_size, w // config.merge_size
        layout = frame_layout(merged_h, merged_w, config.window)
        count, here = h * w, slice(frame, frame + t)
        laid[here, :count].reshape(t, count // unit, unit, values)[...] = rows.reshape(t, count // unit, unit, values)[
            :, layout.order
        ]
        block_row, block_column = np.divmod(layout.order, merged_w)
        within_row, within_column = np.divmod(np.arange(unit), config.merge_size)
        coordinates[here, :count, 0] = (block_row[:, None] * config.merge_size + within_row).reshape(-1)
        coordinates[here, :count, 1] = (block_column[:, None] * config.merge_size + within_column).reshape(-1)
        valid[here, :count] = True
        if to_windows is not None and from_windows is not None:
            starts = np.concatenate([[0], np.cumsum(layout.window_sizes)]) * unit
            for number, (start, end) in enumerate(pairwise(starts)):
                target = number * slots + np.arange(end - start)
                to_windows[here, target] = np.arange(start, end)
                from_windows[here, start:end] = target
        per_frame = frame_patches // unit
        places.append(((frame + np.arange(t))[:, None] * per_frame + layout.inverse[None]).reshape(-1).astype(np.int32))
        frame += t
    return VisionInputs(laid, coordinates, valid, to_windows, from_windows), places
