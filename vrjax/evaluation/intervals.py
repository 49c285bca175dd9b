"""Bootstrap intervals over questions that come in clusters (the questions of one video are not independent)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A mean with its bounds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def clustered_interval(
    values: Sequence[float], clusters: Sequence[Hashable], *, share: float = 0.95, seed: int = 0
) -> Interval:
    """Percentile bootstrap of the mean; whole clusters are drawn with replacement (Efron and Tibshirani 1993, ch. 8).

    For two runs over the same questions pass the differences: the interval is then that of the paired gain.
    Raises ValueError where there are no values, or not as many clusters.
    """
    if not values or len(values) != len(clusters):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters: give one cluster for each value")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    place = np.array([numbers[cluster] for cluster in clusters])
    sums = np.bincount(place, values, len(numbers))
    counts = np.bincount(place, minlength=len(numbers))
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 500):  # 500 at a time: memory stays small with many clusters
        drawn = rng.integers(len(numbers), size=(500, len(numbers)))
        means[start : start + 500] = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return Interval(float(np.mean(values)), float(low), float(high))
