"""Machines that need not be at hand: TPU slices that libtpu describes, and fake CPU devices.

v5e:4x8      32 chips of a TPU v5e in 4 x 8      v5p:2x2x4, v6e:4x4 likewise
h100:8       8 GPUs, for which 8 CPU devices stand in: nothing compiles for a GPU that is not there
cpu:8        8 CPU devices in this process
here         the devices of this machine
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from vrjax.chips import CHIPS, Chip, chip_of
from vrjax.errors import InputError

LIBTPU = "libtpu is not installed, and without it nothing is compiled for a TPU. Run: pip install 'vrjax[plan]'"


SLICES, GPUS = ("v5e", "v5p", "v6e"), ("h100", "h200")  # of vrjax.chips, those that can be planned for


@dataclass(frozen=True)
class Topology:
    """name: as it was asked for; devices: in the order of their ids, to be compiled for, not run on; stand_in: they are
    CPU devices in the place of others.
    """

    name: str
    chip: Chip
    devices: tuple[Any, ...]
    stand_in: bool = False


def open_topology(name: str) -> Topology:
    """The devices of a machine by its name, `KIND:SIZE`.

    Raises InputError for a kind or size that does not exist, a missing libtpu, or more CPU devices than this process
    has (`prepare_cpu_devices`, before the first use of JAX).
    """
    if name == "here":
        devices = jax.devices()
        chip = chip_of(devices[0].device_kind) or Chip(devices[0].device_kind, None, None, None, None)
        limit = (devices[0].memory_stats() or {}).get("bytes_limit")
        return Topology(name, replace(chip, memory=float(limit) if limit else chip.memory), tuple(devices))
    found = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name)
    if found is None or found[1] not in ("cpu", *SLICES, *GPUS):
        raise InputError(
            f"topology {name!r} is not known. Give v5e:4x8, v6e:4x4, v5p:2x2x4 (chips of a TPU slice), h100:8, h200:8, "
            "cpu:8 (fake devices) or here."
        )
    kind, sizes = found[1], [int(size) for size in found[2].split("x")]
    if kind == "cpu" or kind in GPUS:
        if len(sizes) > 1 or sizes[0] < 1:
            raise InputError(f"topology {name!r}: give a number of devices, such as {kind}:8.")
        machine = _cpu(name, sizes[0])
        return Topology(name, CHIPS[kind], machine.devices, stand_in=True) if kind in GPUS else machine
    if importlib.util.find_spec("libtpu") is None and not os.environ.get("TPU_LIBRARY_PATH"):
        raise InputError(f"topology {name!r}: {LIBTPU}")
    wanted = 3 if kind == "v5p" else 2
    if len(sizes) != wanted:
        raise InputError(f"topology {name!r}: a {kind} slice has {wanted} sizes, such as {_EXAMPLES[kind]}.")
    from jax.experimental import topologies

    try:
        devices = topologies.get_topology_desc(name, platform="tpu").devices
    except Exception as error:  # of several types, by what libtpu finds wrong
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"topology {name!r}: there is no such slice, says libtpu ({reason}). Give one of Google's sizes, such as "
            f"{_EXAMPLES[kind]}."
        ) from error
    if len(devices) != math.prod(sizes):
        raise InputError(f"topology {name!r}: libtpu describes {len(devices)} devices, not {math.prod(sizes)}.")
    return Topology(name, CHIPS[kind], tuple(devices))


def host_mesh(topology: Topology, local: Mesh) -> Mesh:
    """The mesh of one host's chips as a slice of their own, in the place of `local`, the host's part of a larger slice.

    libtpu compiles for whole slices alone where chips cannot route past others (v5e, v6e). A mesh that is the whole
    slice comes back as it is.
    """
    if local.devices.size == len(topology.devices) or topology.stand_in or topology.chip.flops is None:
        return local
    sides = [len({device.coords[axis] for device in local.devices.flat}) for axis in range(3)]
    kind = topology.name.split(":")[0]
    host = open_topology(f"{kind}:" + "x".join(map(str, sides if kind == "v5p" else sides[:2])))
    by_place = {tuple(device.coords): device for device in host.devices}
    corner = [min(device.coords[axis] for device in local.devices.flat) for axis in range(3)]
    devices = np.empty(local.devices.shape, object)
    for index, device in np.ndenumerate(local.devices):
        devices[index] = by_place[tuple(a - b for a, b in zip(device.coords, corner, strict=True))]
    return Mesh(devices, local.axis_names, axis_types=local.axis_types)


_EXAMPLES = {"v5e": "v5e:4x8", "v6e": "v6e:4x4", "v5p": "v5p:2x2x4"}


def _cpu(name: str, count: int) -> Topology:
    devices = jax.devices("cpu")
    if len(devices) < count:
        raise InputError(
            f"topology {name!r}: this process has {len(devices)} CPU devices. Start it with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}."
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / count
    return Topology(name, Chip("CPU", memory, None, None, None), tuple(devices[:count]))


def prepare(name: str) -> None:
    """Set JAX up for a topology; before its first use in this process. No TPU is looked for.

    libtpu only compiles here, so it needs neither to be alone on the machine nor to ask where it is.
    """
    if name == "here":
        return
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    if found := re.fullmatch(r"(?:cpu|h100|h200):(\d+)", name):
        jax.config.update("jax_num_cpu_devices", max(int(found[1]), 1))
