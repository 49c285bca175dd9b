"""From the scores of questions to the numbers of a benchmark: means, intervals, classes, coverage, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, ItemScore
from vrjax.evaluation.intervals import clustered_intervals


def tally(
    benchmark: Benchmark, scores: Sequence[ItemScore], official: Mapping[str, float], quirks: Sequence[str] = ()
) -> BenchmarkScore:
    """All numbers of a benchmark.

    Strict values are means over all questions; one whose value is None (unscored) is left out, and lowers the
    coverage, as does one with a failure. A metric that no question has a value of is left out.
    """
    if not scores:
        raise ValueError("there is nothing to tally")
    metrics = [name for name in scores[0].values if any(score.values[name] is not None for score in scores)]
    columns = {name: [score.values[name] for score in scores] for name in metrics}
    intervals = clustered_intervals(columns, [score.video for score in scores]) if columns else {}
    whole = [score.failure is None and None not in score.values.values() for score in scores]
    return BenchmarkScore(
        benchmark=benchmark.name,
        official=dict(official),
        strict={name: intervals[name].mean for name in metrics},
        intervals=intervals,
        coverage=sum(whole) / len(scores),
        by_type=_by_type(scores, columns),
        failures=Counter(score.failure for score in scores if score.failure is not None),
        items=list(scores),
        quirks=tuple(quirks),
    )


def _by_type(scores: Sequence[ItemScore], columns: Mapping[str, Sequence[float | None]]) -> dict[str, dict[str, float]]:
    members: dict[str, list[int]] = {}
    for number, score in enumerate(scores):
        for kind in dict.fromkeys(score.types):
            members.setdefault(kind, []).append(number)
    table = {
        name: np.array([np.nan if value is None else value for value in column]) for name, column in columns.items()
    }
    found: dict[str, dict[str, float]] = {}
    for kind in sorted(members):
        found[kind] = {"n": float(len(members[kind]))}
        for name, column in table.items():
            values = column[members[kind]]
            if not np.isnan(values).all():
                found[kind][name] = float(np.nanmean(values))
    return found
