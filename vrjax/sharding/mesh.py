"""The device mesh: four named axes, always all of them, so that rules and programs need no special cases.

data: copies of the weights, each with its rows; fsdp: rows too, and weights cut along their width; seq: parts of a
long sequence; tensor: parts of each matrix product (heads, MLP width, vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from vrjax.errors import InputError

MESH_AXES = ("data", "fsdp", "seq", "tensor")


def is_cpu(mesh: Mesh) -> bool:
    """Whether the mesh is one of processors, fake devices included; its devices need not be at hand."""
    return mesh.devices.flat[0].platform == "cpu"


def make_mesh(
    data: int = 1, fsdp: int = -1, seq: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """Arrange devices (default: all of them, in every process) in a mesh with the axes MESH_AXES.

    One of the sizes may be -1: it takes what the others leave. The devices of a process form a block, the tensor axis
    first, so that each can sample on its own (`local_mesh`). Raises InputError where the sizes do not multiply out to
    the number of devices.
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
    types = (AxisType.Auto,) * len(MESH_AXES)
    blocks = process_blocks(tuple(sizes.values()), found)
    if blocks is not None:
        return Mesh(blocks, MESH_AXES, axis_types=types)
    return jax.make_mesh(tuple(sizes.values()), MESH_AXES, axis_types=types, devices=found)


def process_blocks(sizes: tuple[int, ...], devices: Sequence[Any]) -> np.ndarray | None:
    """Devices [*sizes] so that those of each process are a block, which fills the last axes first.

    None where there is one process, or its devices do not divide into the axes.

    sizes (2, 2, 2), 2 processes of 4:   0 0 | 1 1      the last two axes lie within a process
                                         0 0 | 1 1
    """
    processes = {device.process_index for device in devices}
    if len(processes) == 1:
        return None
    within, left = [], len(devices) // len(processes)
    for size in reversed(sizes):
        within.insert(0, math.gcd(size, left))
        left //= within[0]
    if left != 1 or len(devices) % len(processes):
        return None
    grid = np.empty(len(devices), object)
    grid[:] = sorted(devices, key=lambda device: (device.process_index, device.id))
    across = [size // part for size, part in zip(sizes, within, strict=True)]
    pairs = [axis for number in range(len(sizes)) for axis in (number, len(sizes) + number)]
    return grid.reshape(*across, *within).transpose(pairs).reshape(sizes)
