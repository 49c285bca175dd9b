"""One program as it was compiled for a machine: its memory, its work, and the least time that it can take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax

from vrjax.chips import GIB, Chip


@dataclass(frozen=True)
class ProgramPlan:
    """name and key: as in the run's ledger; phase: of the step; hash: `ledger.lowered_hash`; calls: in a step.

    Bytes of one device: arguments, outputs, aliased (outputs that take their arguments' place), temporary (activations
    and the like); resident: what else is held while it runs, by name. peak: of all these, None where the compiler gave
    up without saying. refused: what the compiler said where the program alone needs more memory than there is.

    Of one device and one call: flops (matrix products), bytes through its memory, sent: bytes to others by kind of
    collective, counts: collectives. Seconds: trace_s (Python to StableHLO), compile_s.
    """

    name: str
    key: str
    phase: str
    hash: str
    calls: int
    devices: int
    resident: dict[str, float]
    flops: float
    trace_s: float
    compile_s: float
    arguments: float = 0.0
    outputs: float = 0.0
    aliased: float = 0.0
    temporary: float = 0.0
    code: float = 0.0
    bytes: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    peak: float | None = None
    refused: str = ""

    def seconds(self, chip: Chip) -> dict[str, float] | None:
        """Least seconds of one call: of computing, of the memory and of the network, as if each had the rest for
        nothing (a roofline: Williams et al. 2009). None for a chip whose speeds are not known.
        """
        if chip.flops is None or chip.bandwidth is None or chip.network is None:
            return None
        return {
            "compute": self.flops / chip.flops,
            "memory": self.bytes / chip.bandwidth,
            "network": sum(self.sent.values()) / chip.network,
        }

    def roofline(self, chip: Chip) -> tuple[float, str] | None:
        """Least seconds in a step, and what they are bound by."""
        found = self.seconds(chip)
        if found is None:
            return None
        bound = max(found, key=lambda name: found[name])
        return self.calls * found[bound], bound

    def as_json(self, chip: Chip) -> dict[str, Any]:
        roofline = self.roofline(chip)
        return {
            "program": self.name,
            "key": self.key,
            "phase": self.phase,
            "hash": self.hash,
            "calls": self.calls,
            "devices": self.devices,
            "fits": self.peak is not None and not self.refused and fits(self.peak, chip),
            "peak_gib": in_gib(self.peak),
            "arguments_gib": in_gib(self.arguments),
            "outputs_gib": in_gib(self.outputs),
            "aliased_gib": in_gib(self.aliased),
            "temporary_gib": in_gib(self.temporary),
            "code_gib": in_gib(self.code),
            "resident_gib": {name: in_gib(value) for name, value in self.resident.items()},
            "flops": self.flops,
            "bytes": self.bytes,
            "collectives": {
                kind: {"count": round(count, 2), "bytes": self.sent.get(kind, 0.0)}
                for kind, count in self.counts.items()
            },
            "trace_s": round(self.trace_s, 2),
            "compile_s": round(self.compile_s, 2),
            "roofline_s": None if roofline is None else roofline[0],
            "bound_by": None if roofline is None else roofline[1],
            "refused": self.refused,
        }


def fits(peak: float, chip: Chip) -> bool:
    return chip.memory is None or peak <= chip.memory


def in_gib(value: float | None) -> float | None:
    return None if value is None else round(value / GIB, 4)


def device_bytes(tree: Any, leave_out: frozenset[int] = frozenset()) -> float:
    """Bytes that arrays or shapes take on one device; those whose id is in `leave_out` do not count."""
    total = 0.0
    for leaf in {id(leaf): leaf for leaf in jax.tree.leaves(tree)}.values():
        if id(leaf) not in leave_out:
            sharding = getattr(leaf, "sharding", None)
            shape = leaf.shape if sharding is None else sharding.shard_shape(tuple(leaf.shape))
            total += math.prod(shape) * leaf.dtype.itemsize
    return total
