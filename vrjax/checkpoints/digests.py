"""Digests of arrays, to tell a flipped bit in a stored checkpoint from what was saved.

The file format notices a truncated file but not a changed one. A digest is a sum of mixed bits and positions modulo
2^32: any change of a single element changes it, and since integer sums may be taken in any order, it does not depend
on how the array is sharded, nor over how many processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

ODD = 0x9E3779B1  # 2^32 over the golden ratio, odd: multiplying by it is one to one


def digests(arrays: Mapping[str, jax.Array]) -> dict[str, int]:
    """The digest of every array, computed where the arrays are."""
    return {name: int(value) for name, value in jax.device_get(_digests(dict(arrays))).items()}


@jax.jit
def _digests(arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {name: _digest(array) for name, array in arrays.items()}


def _digest(array: jax.Array) -> jax.Array:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag], -1)
    if array.dtype == jnp.bool_:
        bits = array.astype(jnp.uint32)
    elif array.dtype.itemsize == 8:
        bits = jax.lax.bitcast_convert_type(array, jnp.uint32)
    else:
        unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[array.dtype.itemsize]
        bits = jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)
    position = jnp.zeros(bits.shape, jnp.uint32)
    for axis in range(bits.ndim):
        along = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        position += along * jnp.uint32(math.prod(bits.shape[axis + 1 :]) % 2**32)
    mixed = (bits ^ (position * jnp.uint32(ODD))) * jnp.uint32(ODD)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA77)
    return (mixed ^ (mixed >> 13)).sum(dtype=jnp.uint32)
