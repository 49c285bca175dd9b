"""How many frames, which of them, and at what size: the arithmetic of qwen-vl-utils, without its faults.

The formulas are those of `qwen_vl_utils.vision_process` (`smart_resize`, `smart_nframes`,
`calculate_video_frame_range`), which the released Qwen2.5-VL weights were trained with. All rounding is Python's, half
to even.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from vrjax.errors import InputError, VideoError

MAX_ASPECT_RATIO = 200
FRAME_FACTOR = 2


class SamplingError(InputError, ValueError):
    """A sampling option asks for something that cannot be had (a single frame, a clip that ends before it starts)."""


def smart_resize(
    height: int,
    width: int,
    min_pixels: int = 4 * 28 * 28,
    max_pixels: int = 16384 * 28 * 28,
    factor: int = 28,
    name: str = "",
) -> tuple[int, int]:
    """Choose a size in pixels, (height, width): sides multiples of `factor`, area within the budget, ratio nearly kept.

    The default budget is a picture's; FrameOptions holds a video's. A side never becomes zero, so a very long picture
    may exceed `max_pixels`. `name` is the file, for the error.
    Raises VideoError (kind `aspect_ratio`) where one side is more than 200 times the other, 200 itself passes, and
    (kind `no_frames`) where a side is zero.
    """
    where = f"{name}: " if name else ""
    if min(height, width) < 1:
        raise VideoError(f"{where}the picture is {width}x{height} pixels. Leave this file out.", "no_frames")
    if max(height, width) > MAX_ASPECT_RATIO * min(height, width):
        raise VideoError(
            f"{where}the picture is {width}x{height} pixels, an aspect ratio above {MAX_ASPECT_RATIO}. "
            "Crop it or leave it out.",
            "aspect_ratio",
        )
    rows = max(factor, round(height / factor) * factor)
    columns = max(factor, round(width / factor) * factor)
    if rows * columns > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns


def frame_count(
    total_frames: int,
    video_fps: float,
    frames: int | None = None,
    fps: float | None = None,
    min_frames: int = 4,
    max_frames: int = 768,
) -> int:
    """Count the frames to sample, always even and at least 2 (`smart_nframes` of qwen-vl-utils).

    `frames` asks for a number (rounded half to even to a multiple of 2), otherwise `fps` (2 where both are None) for a
    rate. Never more than the even part of `total_frames`, except for a one-frame clip, whose frame is given twice.
    Raises SamplingError where `frames` rounds to nothing, both are given or an option is out of range, and VideoError
    (kind `zero_fps`) where a rate is asked of a video that has none, (kind `no_frames`) where it is empty.
    """
    if total_frames < 1:
        raise VideoError("The video holds no frame. Leave it out.", "no_frames")
    if frames is not None and fps is not None:
        raise SamplingError("frames and fps were both given. Give one of the two.")
    floor_even = total_frames // FRAME_FACTOR * FRAME_FACTOR
    if frames is not None:
        count = round(frames / FRAME_FACTOR) * FRAME_FACTOR
        if count < FRAME_FACTOR:
            raise SamplingError(f"frames is {frames}, fewer than one pair of frames. Ask for 2 or more.")
        return max(FRAME_FACTOR, min(count, floor_even))
    fps = 2.0 if fps is None else fps
    if not (fps > 0 and math.isfinite(fps)):
        raise SamplingError(f"fps is {fps}. Give a number above 0.")
    if min_frames > max_frames or max_frames < FRAME_FACTOR:
        raise SamplingError(f"min_frames {min_frames} and max_frames {max_frames} leave no even count between them.")
    if not (video_fps > 0 and math.isfinite(video_fps)):
        raise VideoError(f"The video's frame rate is {video_fps}, so fps cannot be met. Ask for frames.", "zero_fps")
    least = math.ceil(min_frames / FRAME_FACTOR) * FRAME_FACTOR
    most = max_frames // FRAME_FACTOR * FRAME_FACTOR
    wanted = min(max(total_frames / video_fps * fps, least), most, total_frames)
    return max(FRAME_FACTOR, math.floor(wanted / FRAME_FACTOR) * FRAME_FACTOR)


def clip_range(
    timestamps: Float64[np.ndarray, " frames"], start: float | None, end: float | None, name: str = ""
) -> tuple[int, int]:
    """First and last frame, both included, with `start` ≤ presentation time ≤ `end` (seconds; None: the video's own).

    At a constant rate this is ceil(start·fps) and min(floor(end·fps), total − 1). Ends outside the video are moved
    onto it; `plan_frames` records that. Raises SamplingError where the range is empty or holds no frame.
    """
    where = f"{name}: " if name else ""
    low = 0.0 if start is None else max(float(start), 0.0)
    high = math.inf if end is None else float(end)
    if math.isnan(low) or math.isnan(high) or not low < high:
        raise SamplingError(f"{where}the clip {start}–{end} s is empty. Give an end after the start.")
    tolerance = 1e-6  # containers store times as fractions; 1.0 s must not miss a frame at 0.9999999 s
    first = int(np.searchsorted(timestamps, low - tolerance, side="left"))
    last = int(np.searchsorted(timestamps, high + tolerance, side="right")) - 1
    if first > last:
        length = float(timestamps[-1]) if len(timestamps) else 0.0
        raise SamplingError(f"{where}the clip {start}–{end} s holds no frame; the last one is at {length:.3f} s.")
    return first, last


def frame_indices(first: int, last: int, count: int) -> tuple[int, ...]:
    """round(linspace(first, last, count)): evenly spread, both ends included."""
    return tuple(int(index) for index in np.round(np.linspace(first, last, count)))
