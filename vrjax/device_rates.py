"""What one device of this machine does at best, measured: products of matrices, and copies within its memory.

Utilisation is a share of these. They are measured with plain programs, so a share says what better code could win here,
not what the maker's sheet promises.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

_TRIES = 5


@dataclass(frozen=True)
class DeviceRates:
    """flops: operations a second in products of square matrices; bandwidth: bytes a second, read and written.

    size: of the matrices; copied: bytes of the array that was copied.
    """

    flops: float
    bandwidth: float
    size: int
    copied: int


def measure_rates(dtype: Any, device: Any = None) -> DeviceRates:
    """Of the first local device, or `device`; takes about a second. dtype: of the matrices."""
    device = device or jax.local_devices()[0]
    on_cpu = device.platform == "cpu"
    size, copied = (1024, 1 << 26) if on_cpu else (8192, 1 << 30)
    return DeviceRates(matrix_rate(size, dtype, device), copy_rate(copied, device), size, copied)


def matrix_rate(size: int, dtype: Any, device: Any) -> float:
    """Operations a second of a [size, size] by [size, size] product, 2 for each multiply-add."""
    matrix = jax.device_put(jnp.ones((size, size), dtype), device)
    return 2.0 * size**3 / best_seconds(jax.jit(lambda x: x @ x), matrix)


def copy_rate(size: int, device: Any) -> float:
    """Bytes a second through memory while an array of `size` bytes is read and another written."""
    array = jax.device_put(jnp.ones(size // 4, jnp.float32), device)
    return 2.0 * size / best_seconds(jax.jit(lambda x: -x), array)


def best_seconds(run: Callable[[jax.Array], jax.Array], argument: jax.Array) -> float:
    """Shortest of a few runs; the first, which compiles, does not count."""
    jax.block_until_ready(run(argument))
    found = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        jax.block_until_ready(run(argument))
        found.append(time.perf_counter() - start)
    return min(found)
