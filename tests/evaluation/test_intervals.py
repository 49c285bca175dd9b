"""Clustered bootstrap intervals against normal theory and against what clusters do to it."""

import numpy as np
import pytest

from vrjax.evaluation.intervals import clustered_interval


def test_independent_values_agree_with_normal_theory() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, 400)
    found = clustered_interval(values.tolist(), range(400))
    half = 1.96 * values.std(ddof=1) / 20
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.01)
    assert found.high == pytest.approx(values.mean() + half, abs=0.01)


def test_equal_values_within_clusters_count_once() -> None:
    values = np.random.default_rng(1).normal(0, 1, 50)
    once = clustered_interval(values.tolist(), range(50))
    four = clustered_interval(np.repeat(values, 4).tolist(), np.repeat(range(50), 4).tolist())
    assert four.high - four.low == pytest.approx(once.high - once.low, rel=0.03)
    pooled = clustered_interval(np.repeat(values, 4).tolist(), range(200))
    assert pooled.high - pooled.low < 0.6 * (four.high - four.low)


def test_unequal_clusters_weigh_by_their_questions() -> None:
    assert clustered_interval([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"]).mean == 0.75


def test_wrong_input() -> None:
    with pytest.raises(ValueError, match="one cluster for each value"):
        clustered_interval([], [])
    with pytest.raises(ValueError, match="one cluster for each value"):
        clustered_interval([1.0], [])
