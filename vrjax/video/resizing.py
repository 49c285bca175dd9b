"""Bicubic, antialiased resizing of uint8 frames as small matrix products, one band of rows at a time.

The result is that of torch's uint8 path, which torchvision and so transformers use, to within one grey level: Keys'
cubic with a = −0.5, stretched by the scale when shrinking (after Pillow's `Resample.c`), along the width first, clipped
to 0–255 between the two passes. Pillow 13 sometimes takes the height first, and then differs where it clips.

    frame [H, W, 3] ─ rows of one band ─► planes [3, n, W] float32 ─ @ column weights ─► [3, n, w]
                                                                    row weights @ ─► band [3, r, w]

A weight matrix is banded: an output pixel sees only a few input pixels. Sixteen neighbouring outputs share one small
dense block, so that BLAS does the work, and a band's arrays stay in the processor's cache.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Float64, UInt8

COLUMN_BLOCK = 16  # outputs that share one dense block; 16 is the width of the AVX-512 kernels
ROW_BLOCK = 14
BAND_ROWS = 56
# OpenBLAS gives larger products (m·n·k) to its own threads, which wait in a spin: beside threads over frames, or on a
# busy machine, that costs far more than it brings.
LARGEST_PRODUCT = 2**18


def cubic_weights(source: int, target: int) -> Float64[np.ndarray, "target source"]:
    """Weights of each source pixel in each target pixel along one axis; rows sum to 1, cut off at the borders."""
    scale = source / target
    stretch = max(scale, 1.0)
    weights = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * scale
        low = max(0, int(centre - 2 * stretch + 0.5))
        high = min(source, int(centre + 2 * stretch + 0.5))
        x = np.abs((np.arange(low, high) - centre + 0.5) / stretch)
        near = (1.5 * x - 2.5) * x * x + 1
        far = ((-0.5 * x + 2.5) * x - 4) * x + 2
        values = np.where(x < 1, near, np.where(x < 2, far, 0.0))
        weights[row, low:high] = values / values.sum()
    return weights


@dataclasses.dataclass(frozen=True)
class _Block:
    """Targets [start, stop) along an axis as a dense product over sources [low, high)."""

    start: int
    stop: int
    low: int
    high: int
    weights: Float32[np.ndarray, "targets sources"]


def _blocks(weights: Float64[np.ndarray, "target source"], step: int) -> tuple[_Block, ...]:
    blocks = []
    for start in range(0, len(weights), step):
        part = weights[start : start + step]
        used = np.flatnonzero(part.any(axis=0))
        low, high = int(used[0]), int(used[-1]) + 1
        dense = np.ascontiguousarray(part[:, low:high], dtype=np.float32)
        blocks.append(_Block(start, start + len(part), low, high, dense))
    return tuple(blocks)


class Resizer:
    """Resizes frames of one size to another. Hold one per thread: it owns its scratch arrays."""

    def __init__(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        """`source` and `target` are (height, width) in pixels."""
        self.source, self.target = source, target
        self._columns, self._rows = _axis_blocks(source, target)
        most = max(rows[-1].high - rows[0].low for rows in self._bands())
        self._bytes = np.empty(3 * most * source[1], np.uint8)
        self._planes = np.empty(3 * most * source[1], np.float32)
        self._narrow = np.empty(3 * most * target[1], np.float32)
        self._band = np.empty(3 * BAND_ROWS * target[1], np.float32)

    def _bands(self) -> list[tuple[_Block, ...]]:
        per_band = BAND_ROWS // ROW_BLOCK
        return [self._rows[start : start + per_band] for start in range(0, len(self._rows), per_band)]

    def bands(self, frame: UInt8[np.ndarray, "H W 3"]) -> Iterator[tuple[int, Float32[np.ndarray, "3 r w"]]]:
        """Yield (first row, planes) from top to bottom, at most BAND_ROWS rows each.

        Values are within [0.5, 255.5): casting to uint8 rounds them. The array is overwritten by the next step.
        """
        width, new_width = self.source[1], self.target[1]
        for rows in self._bands():
            low, high = rows[0].low, rows[-1].high
            count = high - low
            # Two steps, separate the colours as bytes and widen them then, are faster than one.
            planes_u8 = self._bytes[: 3 * count * width].reshape(3, count, width)
            np.copyto(planes_u8, frame[low:high].transpose(2, 0, 1))
            planes = self._planes[: 3 * count * width].reshape(3 * count, width)
            np.copyto(planes.reshape(3, count, width), planes_u8)
            narrow = self._narrow[: 3 * count * new_width].reshape(3 * count, new_width)
            for block in self._columns:
                step = max(1, LARGEST_PRODUCT // block.weights.size)
                for row in range(0, 3 * count, step):
                    sources = planes[row : row + step, block.low : block.high]
                    np.matmul(sources, block.weights.T, out=narrow[row : row + step, block.start : block.stop])
            np.clip(narrow, 0, 255, out=narrow)
            narrow = narrow.reshape(3, count, new_width)
            top, bottom = rows[0].start, rows[-1].stop
            band = self._band[: 3 * (bottom - top) * new_width].reshape(3, bottom - top, new_width)
            for block in rows:
                step = max(1, LARGEST_PRODUCT // block.weights.size)
                for column in range(0, new_width, step):
                    sources = narrow[:, block.low - low : block.high - low, column : column + step]
                    targets = band[:, block.start - top : block.stop - top, column : column + step]
                    np.matmul(block.weights, sources, out=targets)
            np.clip(band, 0, 255, out=band)
            np.add(band, 0.5, out=band)
            yield top, band


@functools.lru_cache(maxsize=64)
def _axis_blocks(source: tuple[int, int], target: tuple[int, int]) -> tuple[tuple[_Block, ...], tuple[_Block, ...]]:
    columns = _blocks(cubic_weights(source[1], target[1]), COLUMN_BLOCK)
    rows = _blocks(cubic_weights(source[0], target[0]), ROW_BLOCK)
    return columns, rows
