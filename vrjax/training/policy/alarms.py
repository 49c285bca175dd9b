"""Alarms of a collapse: short responses, no entropy left, groups without variance, the format lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from vrjax.training.policy.config import AlarmConfig


class Alarms:
    """Watches the means of the last steps; each alarm is raised once, and again only after it had been well."""

    def __init__(self, config: AlarmConfig, seen: Mapping[str, list[float]] | None = None) -> None:
        """seen: `state` of the run that goes on."""
        self._config = config
        self._seen = {name: deque(values, maxlen=config.window) for name, values in (seen or {}).items()}
        self._raised: set[str] = set()

    def look(self, metrics: Mapping[str, float]) -> list[str]:
        """Sentences for what is newly wrong after this step's metrics; empty where nothing is."""
        config = self._config
        limits = {
            "response_length": (config.shortest, False, "responses are down to {:.1f} tokens on average"),
            "entropy": (config.least_entropy, False, "the policy's entropy is down to {:.4f} nats a token"),
            "equal_groups": (config.most_equal, True, "{:.0%} of the groups have equal rewards and teach nothing"),
            "reward/format": (config.least_format, False, "only {:.0%} of the responses keep the format"),
        }
        found = []
        for name, (limit, above, words) in limits.items():
            value = metrics.get(name, math.nan)
            if math.isnan(value):
                continue
            window = self._seen.setdefault(name, deque(maxlen=config.window))
            window.append(value)
            mean = sum(window) / len(window)
            wrong = len(window) == config.window and (mean > limit if above else mean < limit)
            if wrong and name not in self._raised:
                found.append(f"alarm: over the last {config.window} steps {words.format(mean)}")
            self._raised = self._raised | {name} if wrong else self._raised - {name}
        return found

    @property
    def state(self) -> dict[str, list[float]]:
        """What has been seen, for a checkpoint."""
        return {name: list(values) for name, values in self._seen.items()}
