"""Bootstrap intervals of weighted sums of means: the mean of five dimensions, the gap between two sets of questions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from vrjax.evaluation.intervals import RESAMPLES, Interval

_BLOCK = 500  # resamples at a time


def contrast_intervals(
    values: Float[np.ndarray, "N C"],
    contrasts: Mapping[str, Sequence[float]],
    clusters: Sequence[Hashable],
    weights: Sequence[float] | None = None,
    *,
    share: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """For each contrast, Σ_c coefficient_c · mean_c; mean_c is of column c, over the rows with a value (no NaN) in it.

    Percentile bootstrap over whole clusters, the same ones drawn for all contrasts; for one column it equals
    `clustered_interval`. weights: how often each row counts. A resample without any value in a column that a contrast
    needs is left out of it. Raises ValueError where such a column is empty, or the lengths differ.
    """
    values = np.asarray(values, float)
    weight = np.ones(len(values)) if weights is None else np.asarray(weights, float)
    if not len(values) == len(clusters) == len(weight):
        raise ValueError(f"{len(values)} rows, {len(clusters)} clusters and {len(weight)} weights: give one for each")
    known = ~np.isnan(values)
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    place = np.array([numbers[cluster] for cluster in clusters])
    sums = np.zeros((len(numbers), values.shape[1]))
    counts = np.zeros_like(sums)
    np.add.at(sums, place, np.where(known, values, 0) * weight[:, None])
    np.add.at(counts, place, known * weight[:, None])

    rng = np.random.default_rng(seed)
    rows = np.arange(_BLOCK)[:, None] * len(numbers)
    drawn_means = np.empty((RESAMPLES, values.shape[1]))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums.sum(0) / counts.sum(0)
        for start in range(0, RESAMPLES, _BLOCK):
            drawn = rng.integers(len(numbers), size=(_BLOCK, len(numbers)))
            times = np.bincount((drawn + rows).ravel(), minlength=_BLOCK * len(numbers)).reshape(_BLOCK, -1)
            drawn_means[start : start + _BLOCK] = (times @ sums) / (times @ counts)

    found = {}
    for name, given in contrasts.items():
        coefficients = np.asarray(given, float)
        used = coefficients != 0
        if np.isnan(means[used]).any():
            raise ValueError(f"{name}: a column has no value")
        low, high = np.nanquantile(drawn_means[:, used] @ coefficients[used], [(1 - share) / 2, (1 + share) / 2])
        found[name] = Interval(float(means[used] @ coefficients[used]), float(low), float(high))
    return found
