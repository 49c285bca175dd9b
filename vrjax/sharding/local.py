"""This process's part of the mesh, for work that each process does on its own rows (sampling)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from vrjax.errors import InputError


def processes_of(mesh: Mesh) -> int:
    """Over how many processes the mesh spreads: those of the machine that its devices belong to, at hand or not."""
    return len({device.process_index for device in mesh.devices.flat})


def local_mesh(mesh: Mesh) -> Mesh:
    """The devices of this process with the mesh's axes; the mesh itself where there is one process.

    Raises InputError where they form no block of the mesh, or the tensor axis leaves the process.
    """
    if processes_of(mesh) == 1:
        return mesh
    mine = np.vectorize(lambda device: device.process_index == jax.process_index())(mesh.devices)
    box = tuple(slice(places.min(), places.max() + 1) for places in np.nonzero(mine))
    block = mesh.devices[box]
    if not mine[box].all() or block.shape[-1] != mesh.devices.shape[-1]:
        sizes = ", ".join(f"{name} {size}" for name, size in mesh.shape.items())
        raise InputError(
            f"the mesh ({sizes}) gives process {jax.process_index()} no block of its own with the whole tensor axis. "
            "Let mesh.tensor divide the devices of a process."
        )
    return Mesh(block, mesh.axis_names, axis_types=mesh.axis_types)


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
