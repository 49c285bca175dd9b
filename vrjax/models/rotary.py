"""Rotary position embeddings: plain, in three axes (mRoPE), and the two-dimensional form of the vision tower.

All use the half-split convention of Hugging Face: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), with x1 and x2 the
first and second half of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def inverse_frequencies(size: int, theta: float) -> np.ndarray:
    """theta^(-2i/size) for i < size/2 (Su et al. 2021, eq. 15). `size`: rotated numbers in a head."""
    return (1.0 / (np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size)))).astype(
        np.float32
    )


def axis_of_frequency(sections: Sequence[int]) -> np.ndarray:
    """Which axis (0 time, 1 height, 2 width) turns each frequency: [16, 24, 24] -> 16 zeros, 24 ones, 24 twos."""
    return np.repeat(np.arange(len(sections)), sections)


def rotary_tables(
    positions: Int[Array, "A B S"], frequencies: Float[np.ndarray, "F"], axes: Int[np.ndarray, "F"] | None = None
) -> tuple[Float[Array, "B S F"], Float[Array, "B S F"]]:
    """Cosine and sine of position x frequency in float32.

    positions: one row per axis; axes: the row that each frequency reads (None: all read the first).
    """
    positions = positions.astype(jnp.float32)
    if axes is None:
        angles = positions[0][..., None] * frequencies
    else:
        angles = jnp.moveaxis(positions[axes], 0, -1) * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Float[Array, "B S H E"], cos: Float[Array, "B S F"], sin: Float[Array, "B S F"]) -> Array:
    """Turn the heads of `x` by the given tables; computed in float32, returned in x's type."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[..., None, :], sin[..., None, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def grid_rotary_tables(
    coordinates: Int[Array, "F N 2"], head_size: int, theta: float = 10_000.0
) -> tuple[Array, Array]:
    """Tables of the vision tower: a quarter of the head turns with the row, a quarter with the column.

    coordinates: (row, column) of each patch. Returns cosine and sine [F, N, head_size // 2].
    """
    frequencies = inverse_frequencies(head_size // 2, theta)
    angles = coordinates.astype(jnp.float32)[..., None] * frequencies
    angles = angles.reshape(*angles.shape[:-2], -1)
    return jnp.cos(angles), jnp.sin(angles)


def llama3_scaled(
    frequencies: np.ndarray, factor: float, low_factor: float, high_factor: float, original_length: int
) -> np.ndarray:
    """Llama 3's stretched frequencies: long wavelengths divided by `factor`, short ones kept, a ramp between."""
    wavelengths = 2 * np.pi / frequencies
    low, high = original_length / low_factor, original_length / high_factor
    ramp = (original_length / wavelengths - low_factor) / (high_factor - low_factor)
    between = (1 - ramp) * frequencies / factor + ramp * frequencies
    scaled = np.where(wavelengths > low, frequencies / factor, np.where(wavelengths < high, frequencies, between))
    return scaled.astype(np.float32)
