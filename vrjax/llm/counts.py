"""What a client did: calls, retries, faults by kind, tokens."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from vrjax.llm.chat import Usage


class Counts:
    """Running totals of one client. Safe between threads.

    requests: asked of the client; calls: sent to the backend; retries: calls after the first of a request;
    cached: answered from the cache; shared: answered by another's running call; faults: failed calls by kind, later
    mended or not; failed: requests that stayed without a reply, by kind; usage_estimated: calls whose tokens the server
    did not count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.numbers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.usage = Usage()

    def add(self, name: str) -> None:
        with self._lock:
            self.numbers[name] += 1

    def fault(self, kind: str) -> None:
        with self._lock:
            self.faults[kind] += 1

    def failure(self, kind: str) -> None:
        with self._lock:
            self.failed[kind] += 1

    def spend(self, usage: Usage) -> None:
        with self._lock:
            self.usage = self.usage + usage
            self.numbers["usage_estimated"] += usage.estimated

    def as_dict(self, cost: float | None = None) -> dict[str, Any]:
        """Plain numbers for logs and reports; cost: money spent, where prices are known."""
        with self._lock:
            names = ("requests", "calls", "retries", "cached", "shared", "usage_estimated")
            return {
                **{name: self.numbers[name] for name in names},
                "faults": dict(self.faults),
                "failed": dict(self.failed),
                "prompt_tokens": self.usage.prompt_tokens,
                "completion_tokens": self.usage.completion_tokens,
                "cost": cost,
            }
