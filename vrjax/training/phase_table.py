"""What a step's phases took and did, beside what the device can do at best: `profile/phases.json` and `phases.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vrjax.device_rates import DeviceRates

COLUMNS = ("phase", "seconds", "share", "TFLOP", "TFLOP/s", "of products", "GB moved", "of copies")


@dataclass(frozen=True)
class Phase:
    """Means over the profiled steps. flops: matrix products of this process's devices together; moved: bytes through
    the memory of one device. None where a phase has no program, or its work is not known.
    """

    name: str
    seconds: float
    flops: float | None = None
    moved: float | None = None


def phases_of(
    seconds: Mapping[str, float], flops: Mapping[str, float], moved: Mapping[str, float], steps: int
) -> list[Phase]:
    """Phases by their sums over `steps` steps."""

    def mean(sums: Mapping[str, float], name: str) -> float | None:
        return sums[name] / steps if name in sums else None

    return [Phase(name, total / steps, mean(flops, name), mean(moved, name)) for name, total in seconds.items()]


def as_json(phases: Sequence[Phase], steps: int, device: str, devices: int, rates: DeviceRates) -> dict[str, Any]:
    """devices: of this process. Shares of the rates: flops over those of all devices, bytes over one device's."""
    rows = []
    for phase in phases:
        per_second = phase.flops / phase.seconds if phase.flops is not None and phase.seconds > 0 else None
        moved = phase.moved / phase.seconds if phase.moved is not None and phase.seconds > 0 else None
        rows.append(
            {
                "phase": phase.name,
                "seconds": phase.seconds,
                "flops": phase.flops,
                "flops_per_second": per_second,
                "utilisation": None if per_second is None else per_second / (devices * rates.flops),
                "bytes": phase.moved,
                "bandwidth_utilisation": None if moved is None else moved / rates.bandwidth,
            }
        )
    return {
        "steps": steps,
        "device": device,
        "devices": devices,
        "matrix_flops_per_second": rates.flops,
        "copied_bytes_per_second": rates.bandwidth,
        "matrix_size": rates.size,
        "phases": rows,
    }


def table_rows(content: Mapping[str, Any]) -> list[list[str]]:
    """`phases.json` as cells, one row a phase, in the order of COLUMNS."""
    total = sum(row["seconds"] for row in content["phases"]) or 1.0

    def cell(value: float | None, form: str, scale: float = 1.0) -> str:
        return "" if value is None else format(value / scale, form)

    return [
        [
            row["phase"],
            f"{row['seconds']:.4f}",
            f"{row['seconds'] / total:.1%}",
            cell(row["flops"], ".4g", 1e12),
            cell(row["flops_per_second"], ".4g", 1e12),
            cell(row["utilisation"], ".1%"),
            cell(row["bytes"], ".4g", 1e9),
            cell(row["bandwidth_utilisation"], ".1%"),
        ]
        for row in content["phases"]
    ]


def explained(content: Mapping[str, Any]) -> list[str]:
    """What the columns mean, in sentences."""
    return [
        f"Means of {content['steps']} step(s), while they were traced, on {content['devices']} device(s) of kind "
        f"{content['device']}. Each phase was waited for, so nothing overlaps here that overlaps in a run.",
        f"of products: share of {content['matrix_flops_per_second'] / 1e12:.3g} TFLOP/s a device, measured with "
        f"matrices of {content['matrix_size']}; the vision tower is counted, and what is computed twice.",
        f"of copies: share of {content['copied_bytes_per_second'] / 1e9:.3g} GB/s a device, measured with a copy; "
        "bytes are read off the compiled programs.",
    ]


def as_markdown(content: Mapping[str, Any]) -> str:
    lines = ["# Phases of a step", "", *[f"{line}\n" for line in explained(content)]]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row) + " |" for row in table_rows(content)]
    return "\n".join(lines) + "\n"
