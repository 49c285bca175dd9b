"""What a reward runner has done so far, in numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RewardCounts:
    """Counts since the runner was made.

    scored, unscored: samples, the latter by fault; the fault of a composite reward's part is `part.fault`.
    failures: failed attempts by kind, also those that a later attempt made good. retries: attempts after the first.
    abandoned: attempts that ran out of time. seconds: during which anything was being scored. waited_s: seconds for
    which callers had nothing to do but wait for results.
    """

    scored: int
    unscored: Mapping[str, int]
    failures: Mapping[str, int]
    retries: int
    abandoned: int
    seconds: float
    waited_s: float

    @property
    def unscored_share(self) -> float:
        """Unscored samples in all samples; 0 where there are none."""
        missing = sum(self.unscored.values())
        return missing / (self.scored + missing) if missing else 0.0

    def as_row(self) -> dict[str, Any]:
        """The counts as a JSON row."""
        return {
            "scored": self.scored,
            "unscored": dict(self.unscored),
            "unscored_share": self.unscored_share,
            "failures": dict(self.failures),
            "retries": self.retries,
            "abandoned": self.abandoned,
            "seconds": self.seconds,
            "waited_s": self.waited_s,
        }


class Stopwatch:
    """Seconds during which at least one thing was running. Started and stopped from one thread, read from any."""

    def __init__(self) -> None:
        self._running = 0
        self._since = 0.0
        self._seconds = 0.0

    def start(self) -> None:
        """One more thing runs."""
        if self._running == 0:
            self._since = time.perf_counter()
        self._running += 1

    def stop(self) -> None:
        """One thing fewer runs."""
        self._running -= 1
        if self._running == 0:
            self._seconds += time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        """The sum so far, with what has not yet stopped."""
        return self._seconds + (time.perf_counter() - self._since if self._running else 0.0)
