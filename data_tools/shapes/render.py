"""Paint a script as video frames.

The background is noise around the mean colour of CLIP's normalisation, so that after normalisation it is near zero:
a small model then has only the figures and the clock to look at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, UInt8

from data_tools.shapes.world import CANVAS, CELL, RADIUS, Appearance, Script

CLIP_MEAN_RGB = (122.77, 116.75, 104.09)  # 255 times (.48145466, .4578275, .40821073)
COLOUR_RGB = {"red": (230, 40, 40), "green": (30, 180, 60), "blue": (40, 70, 235), "yellow": (245, 225, 40)}
NOISE_STD = 6.0  # grey levels
_WHITE, _RING_RADIUS, _RING_WIDTH = (255, 255, 255), RADIUS + 2.0, 1.4  # pixels

# Digits on 5 × 7 pixels, a row a number, most significant bit left; index 10 is the colon.
_DIGITS = (
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 6, 8, 16, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
_DIGIT_LEFT = (1, 7, 16, 22)  # of M, M, S, S: the seconds fill the second patch of 14 px
_CORNER_LEFT = (1, 7)  # of S, S in the other corners
_DIGIT_TOP = 3
_COLON_LEFT = 13


def render(
    script: Script, rng: np.random.Generator, *, fps: int = 2, size: int = CANVAS, clock: bool = True
) -> UInt8[np.ndarray, "T H W 3"]:
    """Frames of `script` at times 0, 1/fps, 2/fps … seconds, `size` pixels high and wide, RGB.

    `rng` draws the noise. A figure wears a white ring while it acts. With `clock`, the time MM:SS, rounded down, is
    drawn in white in the top left quarter, and its seconds again in the other three corners, behind the figures: so
    each quarter of the picture tells the time.
    Raises ValueError where `size` is not a multiple of 56.
    """
    if size % CANVAS:
        raise ValueError(f"the frame size must be a multiple of {CANVAS} pixels, not {size}")
    zoom = size // CANVAS
    count = script.duration * fps
    frames = rng.standard_normal((count, size, size, 3), dtype=np.float32)
    frames *= NOISE_STD
    frames += np.asarray(CLIP_MEAN_RGB, np.float32)
    for number in range(count):
        time = number / fps
        if clock:
            _paint_corners(frames[number], int(time), zoom)
        for figure in script.at(time):
            if figure.acting:
                _paint_ring(frames[number], figure, zoom)
            _paint(frames[number], figure, zoom)
        if clock:
            _paint_clock(frames[number], int(time), zoom)
    return np.clip(np.rint(frames), 0, 255).astype(np.uint8)


def _paint(frame: Float[np.ndarray, "H W 3"], figure: Appearance, zoom: int) -> None:
    """Blend `figure` into `frame`, in place, with smooth edges."""
    radius = RADIUS * zoom * figure.scale
    _blend(frame, figure, zoom, radius, COLOUR_RGB[figure.colour], lambda dx, dy: _outside(figure.kind, dx, dy, radius))


def _paint_ring(frame: Float[np.ndarray, "H W 3"], figure: Appearance, zoom: int) -> None:
    """A white ring around a figure while it acts, so that a small model sees when something happens."""
    radius, half = _RING_RADIUS * zoom, 0.5 * _RING_WIDTH * zoom
    _blend(frame, figure, zoom, radius, _WHITE, lambda dx, dy: np.abs(np.sqrt(dx**2 + dy**2) - radius) - half)


def _blend(
    frame: Float[np.ndarray, "H W 3"],
    figure: Appearance,
    zoom: int,
    radius: float,
    colour: tuple[int, int, int],
    outside: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> None:
    """Blend a colour into `frame` where `outside` (dx, dy from the figure's centre) is negative, edges smooth."""
    x, y = (coordinate * zoom for coordinate in figure.centre)
    reach = int(radius) + 2
    left, right = max(0, int(x) - reach), min(frame.shape[1], int(x) + reach + 1)
    top, bottom = max(0, int(y) - reach), min(frame.shape[0], int(y) + reach + 1)
    if left >= right or top >= bottom:
        return
    dx = np.arange(left, right, dtype=np.float32)[None, :] + 0.5 - np.float32(x)
    dy = np.arange(top, bottom, dtype=np.float32)[:, None] + 0.5 - np.float32(y)
    cover = np.clip(0.5 - outside(dx, dy), 0.0, 1.0)[..., None]
    region = frame[top:bottom, left:right]
    region += (np.asarray(colour, np.float32) - region) * cover


def _outside(kind: str, dx: np.ndarray, dy: np.ndarray, radius: float) -> np.ndarray:
    """About how many pixels each point lies outside the figure; negative inside."""
    if kind == "circle":
        return np.sqrt(dx**2 + dy**2) - radius
    if kind == "square":
        return np.maximum(np.abs(dx), np.abs(dy)) - 0.9 * radius
    if kind == "triangle":  # point up, base and height two radii
        return np.maximum(dy - radius, (2 * np.abs(dx) - dy - radius) / 5**0.5)
    long, short = np.maximum(np.abs(dx), np.abs(dy)), np.minimum(np.abs(dx), np.abs(dy))
    return np.maximum(long - radius, short - 0.32 * radius)  # cross


def _paint_clock(frame: Float[np.ndarray, "H W 3"], second: int, zoom: int) -> None:
    """MM:SS in the top left quarter."""
    minutes, seconds = divmod(second, 60)
    mask = np.zeros((CELL, 2 * CELL), bool)
    for left, digit in zip(_DIGIT_LEFT, f"{minutes:02d}{seconds:02d}", strict=True):
        mask |= _digit(int(digit), left, mask.shape)
    mask[[_DIGIT_TOP + 2, _DIGIT_TOP + 4], _COLON_LEFT] = True
    _whiten(frame, mask, (0, 0), zoom)


def _paint_corners(frame: Float[np.ndarray, "H W 3"], second: int, zoom: int) -> None:
    """SS in the other three corners, a patch of 14 pixels each."""
    tens, ones = divmod(second % 60, 10)
    mask = _digit(tens, _CORNER_LEFT[0], (CELL, CELL)) | _digit(ones, _CORNER_LEFT[1], (CELL, CELL))
    far = CANVAS - CELL
    for corner in ((0, far), (far, 0), (far, far)):
        _whiten(frame, mask, corner, zoom)


def _digit(digit: int, left: int, shape: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(shape, bool)
    for row, bits in enumerate(_DIGITS[digit]):
        mask[_DIGIT_TOP + row, left : left + 5] = [bits >> shift & 1 for shift in (4, 3, 2, 1, 0)]
    return mask


def _whiten(frame: Float[np.ndarray, "H W 3"], mask: np.ndarray, corner: tuple[int, int], zoom: int) -> None:
    top, left = corner[0] * zoom, corner[1] * zoom
    mask = mask.repeat(zoom, 0).repeat(zoom, 1)
    frame[top : top + mask.shape[0], left : left + mask.shape[1]][mask] = 255.0
