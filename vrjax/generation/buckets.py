"""Buckets: the few lengths that anything is padded to, and a count of what the padding costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


def bucket(length: int, multiple: int, fineness: int = 8) -> int:
    """Round up to `multiple`, and for long lengths to about length / fineness: at most 1 / fineness is padding."""
    step = multiple
    while step * 2 * fineness <= length:
        step *= 2
    return -(-length // step) * step


@dataclass
class Padding:
    """Tokens (prefill) and patches (vision) that were there, and those that were computed, padding included."""

    used: Counter[str] = field(default_factory=Counter)
    computed: Counter[str] = field(default_factory=Counter)

    def count(self, phase: str, used: int, computed: int) -> None:
        self.used[phase] += used
        self.computed[phase] += computed

    @property
    def share(self) -> float:
        """Share of everything computed that was padding."""
        return 1 - self.used.total() / max(1, self.computed.total())
