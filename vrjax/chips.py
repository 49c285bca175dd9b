"""Accelerators as their makers state them: what plans reckon with, and what utilisation is a share of."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class Chip:
    """One chip. memory: bytes that a program can use; flops: dense bfloat16 operations a second; bandwidth: of its
    memory, network: of all links to other chips together, one way, both in bytes a second. None where it is not stated
    here, or depends on the machine. kinds: how JAX's `device_kind` of it begins.
    """

    name: str
    memory: float | None
    flops: float | None
    bandwidth: float | None
    network: float | None
    kinds: tuple[str, ...] = ()


# TPUs: cloud.google.com/tpu/docs ("System architecture"); memory: the limit that the compiler itself names when a
# program does not fit; the rest is the runtime's. GPUs: NVIDIA's data sheets of the SXM modules; memory less a GB for
# driver and runtime.
CHIPS = {
    "v4": Chip("TPU v4", None, 275e12, None, None, ("TPU v4",)),
    "v5e": Chip("TPU v5e", 15.75 * GIB, 197e12, 819e9, 200e9, ("TPU v5e", "TPU v5 lite")),
    "v5p": Chip("TPU v5p", 95.74 * GIB, 459e12, 2765e9, 600e9, ("TPU v5p", "TPU v5")),
    "v6e": Chip("TPU v6e", 31.25 * GIB, 918e12, 1640e9, 448e9, ("TPU v6e", "TPU v6 lite")),
    "a100": Chip("NVIDIA A100 SXM", None, 312e12, None, None, ("NVIDIA A100",)),
    "h100": Chip("NVIDIA H100 SXM", 79e9, 989e12, 3350e9, 450e9, ("NVIDIA H100",)),
    "h200": Chip("NVIDIA H200 SXM", 140e9, 989e12, 4800e9, 450e9, ("NVIDIA H200",)),
}


def chip_of(device_kind: str) -> Chip | None:
    """The chip behind JAX's `device_kind`; None for one that is not listed, such as CPUs."""
    found = [(len(kind), chip) for chip in CHIPS.values() for kind in chip.kinds if device_kind.startswith(kind)]
    return max(found, key=lambda pair: pair[0])[1] if found else None
