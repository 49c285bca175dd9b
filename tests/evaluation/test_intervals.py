"""Clustered bootstrap intervals against normal theory and against what clusters do to it."""

import numpy as np
import pytest

from vrjax.evaluation.intervals import clustered_interval, clustered_intervals


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


def one_at_a_time(values: list[float], clusters: list[str], seed: int = 0) -> tuple[float, float]:
    """The bootstrap as it is written down: draw clusters, pool their values, take the mean."""
    rng = np.random.default_rng(seed)
    names = list(dict.fromkeys(clusters))
    members = [[value for value, cluster in zip(values, clusters, strict=True) if cluster == name] for name in names]
    means = []
    for _ in range(20):
        for drawn in rng.integers(len(names), size=(500, len(names))):
            means.append(np.mean([value for number in drawn for value in members[number]]))
    return tuple(np.quantile(means, [0.025, 0.975]))


def test_several_columns_are_each_the_plain_bootstrap() -> None:
    rng = np.random.default_rng(3)
    clusters = [f"v{number}" for number in rng.integers(7, size=30)]
    columns = {"a": rng.random(30).tolist(), "b": rng.integers(2, size=30).astype(float).tolist()}
    for name, found in clustered_intervals(columns, clusters).items():
        assert (found.low, found.high) == pytest.approx(one_at_a_time(columns[name], clusters), abs=1e-12)
        assert found == clustered_interval(columns[name], clusters)


def test_a_value_that_is_missing_is_no_zero() -> None:
    clusters = ["a", "a", "b", "c", "c"]
    found = clustered_intervals({"all": [1.0, 0.0, 1.0, 0.0, 1.0], "some": [1.0, None, 1.0, None, 1.0]}, clusters)
    assert found["all"].mean == 0.6
    assert (found["some"].mean, found["some"].low, found["some"].high) == (1, 1, 1)
    only_a = clustered_intervals({"x": [0.25, 0.75, None, None, None]}, clusters)["x"]
    assert (only_a.low, only_a.high) == (0.5, 0.5)  # resamples without cluster a have no mean
    with pytest.raises(ValueError, match="one cluster for each value"):
        clustered_intervals({"x": [None, None]}, ["a", "b"])
