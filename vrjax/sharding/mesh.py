"""The device mesh: four named axes, always all of them, so that rules and programs need no special cases.

data: copies of the weights, each with its rows; fsdp: rows too, and weights cut along their width; seq: parts of a
long sequence; tensor: parts of each matrix product (heads, MLP width, vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from vrjax.errors import InputError

MESH_AXES = ("data", "fsdp", "seq", "tensor")


def make_mesh(
    data: int = 1, fsdp: int = -1, seq: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """Arrange devices (default: all of them, in every process) in a mesh with the axes MESH_AXES.

    One of the sizes may be -1: it takes what the others leave. Raises InputError where the sizes do not multiply out
    to the number of devices.
    """
    found = list(devices) if devices is not None else jax.devices()
    sizes: dict[str, int] = dict(zip(MESH_AXES, (data, fsdp, seq, tensor), strict=True))
    asked = ", ".join(f"{name} {size}" for name, size in sizes.items())
    free = [name for name, size in sizes.items() if size == -1]
    if len(free) > 1 or any(size < 1 and size != -1 for size in sizes.values()):
        raise InputError(f"mesh ({asked}): each size is a whole number above 0, and at most one is -1 (the rest).")
    fixed = math.prod(size for size in sizes.values() if size != -1)
    if free and len(found) % fixed == 0:
        sizes[free[0]] = len(found) // fixed
    if math.prod(sizes.values()) != len(found):
        raise InputError(
            f"mesh ({asked}): the sizes ask for {'a multiple of ' if free else ''}{fixed} devices, but there are "
            f"{len(found)}. Change a size, or set one to -1 to take what is left."
        )
    return jax.make_mesh(tuple(sizes.values()), MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES), devices=found)
