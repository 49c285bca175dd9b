"""This process's part of the mesh: which rows it reads, and its devices for work on its own rows (sampling)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from vrjax.errors import InputError


def processes_of(mesh: Mesh) -> int:
    """Over how many processes the mesh spreads: those of the machine that its devices belong to, at hand or not."""
    return len({device.process_index for device in mesh.devices.flat})


def row_share(mesh: Mesh, process: int | None = None) -> tuple[int, int]:
    """(index, count): the rows of a batch are read in `count` parts, of which a process (default: this) reads `index`.

    Processes among which only the seq or tensor axis is cut hold the same rows, and read the same part. Raises
    InputError where the rows of two processes overlap in part.

        fsdp 2, tensor 2 over 4 processes of one device     rows 0   0 | 1      processes 0 and 1: (0, 2)
                                                            rows 1   2 | 3      processes 2 and 3: (1, 2)
    """
    process = jax.process_index() if process is None else process
    rows = mesh.devices.reshape(mesh.devices.shape[0] * mesh.devices.shape[1], -1)
    held: dict[int, set[int]] = {}
    for row, devices in enumerate(rows):
        for device in devices:
            held.setdefault(device.process_index, set()).add(row)
    parts = sorted({tuple(sorted(part)) for part in held.values()})
    if sum(map(len, parts)) != len(rows) or len({len(part) for part in parts}) > 1:
        raise InputError(
            f"the mesh ({_sizes(mesh)}) cuts the rows of a batch so that processes share a part of them. Let data × "
            "fsdp, or seq × tensor, divide by the number of processes."
        )
    return parts.index(tuple(sorted(held[process]))), len(parts)


def row_holders(mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """The processes that read each part of a batch's rows, part by part; () where each part has one process alone."""
    readers: dict[int, list[int]] = {}
    for process in sorted({device.process_index for device in mesh.devices.flat}):
        readers.setdefault(row_share(mesh, process)[0], []).append(process)
    if all(len(processes) == 1 for processes in readers.values()):
        return ()
    return tuple(tuple(processes) for _, processes in sorted(readers.items()))


def local_mesh(mesh: Mesh) -> Mesh:
    """The devices of this process with the mesh's axes; the mesh itself where there is one process.

    Raises InputError where they form no block of the mesh, or the seq or tensor axis leaves the process: others would
    then work on the same rows.
    """
    if processes_of(mesh) == 1:
        return mesh
    mine = np.vectorize(lambda device: device.process_index == jax.process_index())(mesh.devices)
    box = tuple(slice(places.min(), places.max() + 1) for places in np.nonzero(mine))
    block = mesh.devices[box]
    if not mine[box].all() or block.shape[2:] != mesh.devices.shape[2:]:
        raise InputError(
            f"the mesh ({_sizes(mesh)}) gives process {jax.process_index()} no block of its own with the whole seq and "
            "tensor axes. Let mesh.seq × mesh.tensor divide the devices of a process."
        )
    return Mesh(block, mesh.axis_names, axis_types=mesh.axis_types)


def _sizes(mesh: Mesh) -> str:
    return ", ".join(f"{name} {size}" for name, size in mesh.shape.items())


def to_local(tree: Any, mesh: Mesh) -> Any:
    """Arrays that lie on the global mesh, cut over axes within a process only, as arrays on the local `mesh`.

    No bytes move: the local array is made of the shards that are here. Shapes (`jax.ShapeDtypeStruct`) stay shapes.
    """

    def take(array: jax.Array) -> Any:
        sharding = array.sharding
        assert isinstance(sharding, NamedSharding)
        if sharding.mesh == mesh:
            return array
        place = NamedSharding(mesh, sharding.spec)
        if isinstance(array, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)
        by_device = {shard.device: shard.data for shard in array.addressable_shards}
        order = place.addressable_devices_indices_map(array.shape)
        return jax.make_array_from_single_device_arrays(array.shape, place, [by_device[device] for device in order])

    return jax.tree.map(take, tree)
