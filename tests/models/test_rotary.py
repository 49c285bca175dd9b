"""Rotary frequencies and rotation against published values, torch and complex numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from vrjax.models.rotary import (
    axis_of_frequency,
    grid_rotary_tables,
    inverse_frequencies,
    llama3_scaled,
    rotary_tables,
    rotate,
)

# Scaled / plain inverse frequency of Llama-3.2-1B (head 64, theta 500,000, factor 32, 1, 4, 8,192).
LLAMA_3_2_1B = [1.0] * 15 + [0.605573, 0.303743, 0.103448] + [0.03125] * 14


def test_llama3_scaling():
    plain = inverse_frequencies(64, 500_000.0)
    scaled = llama3_scaled(plain, factor=32.0, low_factor=1.0, high_factor=4.0, original_length=8192)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled / plain, LLAMA_3_2_1B, atol=2e-6)


@pytest.mark.parametrize(("size", "theta"), [(128, 1e6), (64, 5e5), (40, 1e4), (16, 2e4)])
def test_inverse_frequencies(size: int, theta: float):
    """Against float64; and against torch's float32 as transformers computes it, at most two units in the last place."""
    found = inverse_frequencies(size, theta)
    np.testing.assert_allclose(found, theta ** -(np.arange(0, size, 2) / size), rtol=1e-6)
    theirs = 1.0 / (theta ** (torch.arange(0, size, 2, dtype=torch.int64).float() / size))
    np.testing.assert_array_max_ulp(found, theirs.numpy(), maxulp=2)


def test_axis_of_frequency():
    assert axis_of_frequency([2, 1, 3]).tolist() == [0, 0, 1, 2, 2, 2]


def test_rotation_is_a_complex_product():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 3, 8)).astype(np.float32)
    positions = rng.integers(0, 50, (3, 2, 5))
    frequencies, sections = inverse_frequencies(8, 100.0), [1, 2, 1]
    found = rotate(jnp.asarray(x), *rotary_tables(jnp.asarray(positions), frequencies, axis_of_frequency(sections)))
    want = np.empty_like(x)
    for frequency, axis in enumerate([0, 1, 1, 2]):
        angle = positions[axis] * float(frequencies[frequency])
        turned = (x[..., frequency] + 1j * x[..., frequency + 4]) * np.exp(1j * angle)[:, :, None]
        want[..., frequency], want[..., frequency + 4] = turned.real, turned.imag
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_grid_tables_turn_rows_then_columns():
    cosine, sine = grid_rotary_tables(jnp.array([[[3, 7]]]), head_size=8)
    want = [3 * 1.0, 3 * 0.01, 7 * 1.0, 7 * 0.01]  # 10,000^(-2i/4), i = 0, 1
    np.testing.assert_allclose(cosine[0, 0], np.cos(want), atol=1e-6)
    np.testing.assert_allclose(sine[0, 0], np.sin(want), atol=1e-6)
