"""Bootstrap intervals over questions that come in clusters (the questions of one video are not independent)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
BLOCK = 500  # resamples at a time: memory stays small with many clusters


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
    return clustered_intervals({"": values}, clusters, share=share, seed=seed)[""]


def clustered_intervals(
    columns: Mapping[str, Sequence[float | None]],
    clusters: Sequence[Hashable],
    *,
    share: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """`clustered_interval` of several metrics over the same questions, with the same clusters drawn for all of them.

    None (or NaN) in a column is a question without that value: it is left out of that column's means. Raises ValueError
    where a column has no values, or not as many as there are clusters.
    """
    for column in columns.values():
        if len(column) != len(clusters) or all(value is None for value in column):
            raise ValueError(f"{len(column)} values and {len(clusters)} clusters: give one cluster for each value")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    place = np.array([numbers[cluster] for cluster in clusters])
    values = [np.array([np.nan if value is None else value for value in column], float) for column in columns.values()]
    known = [~np.isnan(column) for column in values]
    sums = [np.bincount(place, np.nan_to_num(column), len(numbers)) for column in values]
    counts = [np.bincount(place, has, len(numbers)) for has in known]
    totals = np.stack(sums + counts, 1)  # [clusters, 2 · columns]
    rng = np.random.default_rng(seed)
    means = np.empty((RESAMPLES, len(values)))
    rows = np.arange(BLOCK)[:, None] * len(numbers)
    for start in range(0, RESAMPLES, BLOCK):
        drawn = rng.integers(len(numbers), size=(BLOCK, len(numbers)))
        times = np.bincount((drawn + rows).ravel(), minlength=BLOCK * len(numbers)).reshape(BLOCK, -1).astype(float)
        drawn_sums, drawn_counts = np.hsplit(times @ totals, 2)
        with np.errstate(invalid="ignore"):  # 0/0 where none of the clusters drawn has a value
            means[start : start + BLOCK] = drawn_sums / drawn_counts
    low, high = np.nanquantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return {
        name: Interval(float(values[n][known[n]].mean()), float(low[n]), float(high[n]))
        for n, name in enumerate(columns)
    }
