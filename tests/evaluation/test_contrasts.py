"""Weighted sums of means: against the plain bootstrap written out, and against `clustered_interval`."""

import numpy as np
import pytest

from vrjax.evaluation.contrasts import contrast_intervals
from vrjax.evaluation.intervals import clustered_interval


def written_out(values, coefficients, clusters, weights, seed=0):
    """Draw clusters, pool their rows, take each column's weighted mean over the rows that have it, sum up."""
    rng = np.random.default_rng(seed)
    names = list(dict.fromkeys(clusters))
    rows = [[n for n, cluster in enumerate(clusters) if cluster == name] for name in names]
    found = []
    for _ in range(20):
        for drawn in rng.integers(len(names), size=(500, len(names))):
            pooled = np.concatenate([rows[number] for number in drawn])
            means = []
            for column in values[pooled].T:
                known = ~np.isnan(column)
                if known.any():
                    means.append(np.average(column[known], weights=weights[pooled][known]))
            if len(means) == values.shape[1]:
                found.append(np.dot(means, coefficients))
    return np.quantile(found, [0.025, 0.975])


def test_columns_with_gaps_and_weights():
    rng = np.random.default_rng(4)
    values = rng.integers(6, size=(25, 3)).astype(float)
    values[rng.random((25, 3)) < 0.3] = np.nan
    clusters = [f"v{n}" for n in rng.integers(6, size=25)]
    weights = rng.integers(1, 4, size=25).astype(float)
    coefficients = np.array([0.5, 0.25, -1.0])
    found = contrast_intervals(values, {"sum": coefficients, "first": [1, 0, 0]}, clusters, weights)["sum"]
    low, high = written_out(values, coefficients, clusters, weights)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    means = [np.average(one[~np.isnan(one)], weights=weights[~np.isnan(one)]) for one in values.T]
    assert found.mean == pytest.approx(np.dot(means, coefficients))


def test_one_column_is_the_clustered_interval():
    values, clusters = np.random.default_rng(0).random(30), [n % 7 for n in range(30)]
    found = contrast_intervals(values[:, None], {"mean": [1]}, clusters)["mean"]
    other = clustered_interval(values.tolist(), clusters)
    assert (found.mean, found.low, found.high) == pytest.approx((other.mean, other.low, other.high))


def test_resamples_without_a_value_are_left_out():
    found = contrast_intervals(np.array([[1.0, 7.0], [np.nan, 7.0]]), {"a": [1, 0], "b": [0, 1]}, ["a", "b"])
    assert [(one.mean, one.low, one.high) for one in found.values()] == [(1, 1, 1), (7, 7, 7)]


def test_wrong_input():
    with pytest.raises(ValueError, match="no value"):
        contrast_intervals(np.array([[1.0, np.nan]]), {"both": [1, 1]}, ["a"])
    assert contrast_intervals(np.array([[1.0, np.nan]]), {"one": [1, 0]}, ["a"])["one"].mean == 1
    with pytest.raises(ValueError, match="one for each"):
        contrast_intervals(np.ones((2, 1)), {"mean": [1]}, ["a"])
