"""Rates from a clock that is given, and that real ones are sane."""

import itertools

import jax
import jax.numpy as jnp
import pytest

from vrjax import device_rates
from vrjax.device_rates import copy_rate, matrix_rate, measure_rates


@pytest.fixture
def clock(monkeypatch):
    """Five runs of 4, 2, 8, 2.5 and 3 seconds."""
    ticks = itertools.chain.from_iterable([(0.0, 4.0), (0.0, 2.0), (0.0, 8.0), (0.0, 2.5), (0.0, 3.0)])
    monkeypatch.setattr(device_rates.time, "perf_counter", lambda: next(ticks))


def test_products_count_two_operations_for_each_multiply_add(clock):
    assert matrix_rate(16, jnp.float32, jax.devices()[0]) == 2 * 16 * 16 * 16 / 2.0


def test_a_copy_reads_and_writes(clock):
    assert copy_rate(4096, jax.devices()[0]) == 2 * 4096 / 2.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_rates_of_this_machine(dtype):
    found = measure_rates(dtype)
    assert 1e8 < found.flops < 1e17
    assert 1e7 < found.bandwidth < 1e14
