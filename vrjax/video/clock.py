"""The clock MM:SS in a frame's top-right corner, white with a black edge, as EG-VQA's released pipeline shows time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

FRAME_SHARE = 1 / 12  # text height as a share of the frame's shorter side
SMALLEST_TEXT = 10  # pixels; below this the default font cannot be read


def clock_text(seconds: float) -> str:
    """`MM:SS` of a presentation time, whole seconds, rounded down; minutes go past 59 (75 minutes is `75:00`)."""
    # Times such as 2.9999999 come from fractions that mean 3.
    whole = int(max(seconds, 0.0) + 1e-6)
    return f"{whole // 60:02d}:{whole % 60:02d}"


def draw_clock(frames: UInt8[np.ndarray, "n h w 3"], timestamps: Sequence[float]) -> UInt8[np.ndarray, "n h w 3"]:
    """Return frames with the time of each (seconds) drawn in. The input is left as it is."""
    from PIL import Image, ImageDraw, ImageFont

    if len(frames) != len(timestamps):
        raise ValueError(f"{len(frames)} frames and {len(timestamps)} times: give one time a frame.")
    out = np.empty_like(frames)
    size = max(SMALLEST_TEXT, round(min(frames.shape[1:3]) * FRAME_SHARE))
    font = ImageFont.load_default(size)
    edge = max(1, size // 12)
    for number, seconds in enumerate(timestamps):
        picture = Image.fromarray(frames[number])
        corner = (picture.width - size // 3, size // 3)
        ImageDraw.Draw(picture).text(
            corner, clock_text(seconds), fill="white", font=font, anchor="rt", stroke_width=edge, stroke_fill="black"
        )
        out[number] = np.asarray(picture)
    return out
