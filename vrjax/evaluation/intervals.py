"""Bootstrap intervals over questions that come in clusters (the questions of one video are not independent)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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


def clustered_intervals(
    columns: Mapping[str, Sequence[float | None]],
    clusters: Sequence[Hashable],
    *,
    share: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """`clustered_interval` of many columns over the same items, with the same draws for all that have no gaps.

    A None is an item without a value; its column's mean is over the others, and a column of nothing else has no
    interval. Raises ValueError where a column has not as many values as there are clusters.
    """
    whole, found = {}, {}
    for name, values in columns.items():
        if len(values) != len(clusters):
            raise ValueError(f"{name}: {len(values)} values and {len(clusters)} clusters: give one for each value")
        kept = [(value, cluster) for value, cluster in zip(values, clusters, strict=True) if value is not None]
        if len(kept) == len(values):
            whole[name] = values
        elif kept:
            found[name] = clustered_interval(
                [value for value, _ in kept], [cluster for _, cluster in kept], share=share, seed=seed
            )
    if whole and clusters:
        numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
        place = np.array([numbers[cluster] for cluster in clusters])
        size = len(numbers)
        sums = np.stack([np.bincount(place, np.asarray(values, float), size) for values in whole.values()], 1)
        sums = np.concatenate([sums, np.bincount(place, minlength=size)[:, None]], 1)
        rng = np.random.default_rng(seed)
        means = np.empty((RESAMPLES, len(whole)))
        for start in range(0, RESAMPLES, 500):
            drawn = rng.integers(size, size=(500, size)) + size * np.arange(500)[:, None]
            times = np.bincount(drawn.ravel(), minlength=500 * size).reshape(500, size)
            totals = times @ sums
            means[start : start + 500] = totals[:, :-1] / totals[:, -1:]
        bounds = np.quantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0)
        for number, (name, values) in enumerate(whole.items()):
            found[name] = Interval(float(np.mean(np.asarray(values, float))), *map(float, bounds[:, number]))
    return {name: found[name] for name in columns if name in found}
