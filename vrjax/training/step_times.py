"""Step times of a run, as its metrics have them: their median, and the steps that stand out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

WINDOW, SLOW, LEAST = 20, 1.5, 3


@dataclass(frozen=True)
class SlowStep:
    """seconds, against the median of up to WINDOW steps before it; phase: that grew most, with its seconds and median
    (empty where the run notes no phases).
    """

    step: int
    seconds: float
    usual: float
    phase: str = ""
    phase_seconds: float = 0.0
    phase_usual: float = 0.0


def timed_rows(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of steps that say how long they took."""
    return [row for row in metrics if isinstance(row.get("seconds"), int | float)]


def phases_of_step(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase; vision, prefill and decode are parts of the rollout, which then counts without them."""
    found = {name.removeprefix("seconds/"): value for name, value in row.items() if name.startswith("seconds/")}
    parts = [found[name] for name in ("vision", "prefill", "decode") if name in found]
    if parts and "rollout" in found:
        found["other rollout"] = max(found.pop("rollout") - sum(parts), 0.0)
    return found


def slow_steps(rows: Sequence[Mapping[str, Any]]) -> list[SlowStep]:
    """Steps slower than SLOW times the median of those before them, of which there are LEAST or more."""
    found = []
    for number in range(LEAST, len(rows)):
        before = rows[max(0, number - WINDOW) : number]
        seconds, usual = rows[number]["seconds"], median(row["seconds"] for row in before)
        if seconds <= SLOW * usual:
            continue
        here, earlier = phases_of_step(rows[number]), [phases_of_step(row) for row in before]
        usuals = {name: median(phases.get(name, 0.0) for phases in earlier) for name in here}
        grown = max(here, key=lambda name: here[name] - usuals[name], default="")
        found.append(
            SlowStep(rows[number]["step"], seconds, usual, grown, here.get(grown, 0.0), usuals.get(grown, 0.0))
        )
    return found


def median_phases(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median seconds of a step ("step"), and of each phase that the run notes, over all steps but the first."""
    later = rows[1:] or rows
    if not later:
        return {}
    phases = [phases_of_step(row) for row in later]
    names = dict.fromkeys(name for found in phases for name in found)
    return {"step": median(row["seconds"] for row in later)} | {
        name: median(found.get(name, 0.0) for found in phases) for name in names
    }
