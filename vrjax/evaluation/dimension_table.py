"""MovieCORE's tables: several systems side by side (table 2), and one against System-1 questions (table 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import BenchmarkScore, ItemScore
from vrjax.evaluation.benchmarks.moviecore import dimension_intervals
from vrjax.evaluation.contrasts import contrast_intervals
from vrjax.evaluation.dimension_judge import DIMENSIONS
from vrjax.evaluation.intervals import Interval

HIGHEST = 5.0


@dataclass(frozen=True, kw_only=True)
class DimensionRow:
    """One system, by dimension and "average", with 95% intervals over clips.

    means: each question once, no answer and an empty one as 0; official: by the authors' aggregation. coverage: share
    of questions with a whole verdict. gains: paired differences of `means` to the first system, over the `paired`
    questions that both have whole values for; None in the first row, and where there is no such question.
    """

    system: str
    means: Mapping[str, Interval]
    official: Mapping[str, Interval]
    coverage: float
    gains: Mapping[str, Interval] | None = None
    paired: int = 0


def dimension_table(systems: Mapping[str, BenchmarkScore]) -> list[DimensionRow]:
    """Compare MovieCORE scores over the same questions, the first as the baseline.

    Raises InputError where the systems were asked different questions.
    """
    rows: list[DimensionRow] = []
    before: dict[str, ItemScore] = {}
    for system, score in systems.items():
        gains, pairs = None, []
        if rows:
            if before.keys() != {one.id for one in score.items}:
                raise InputError(
                    f"{system}: answers other questions than {rows[0].system}. Compare systems over one set."
                )
            pairs = [(one, before[one.id]) for one in score.items if _whole(one) and _whole(before[one.id])]
            if pairs:
                gains = dimension_intervals([_gain(*pair) for pair in pairs], [one.video for one, _ in pairs])
        else:
            before = {one.id: one for one in score.items}
        rows.append(
            DimensionRow(
                system=system,
                means=score.intervals,
                official={name: Interval(**one) for name, one in score.details["official_intervals"].items()},
                coverage=score.coverage,
                gains=gains,
                paired=len(pairs),
            )
        )
    return rows


def _whole(score: ItemScore) -> bool:
    return all(score.values[name] is not None for name in DIMENSIONS)


def _gain(score: ItemScore, before: ItemScore) -> dict[str, float]:
    return {name: (score.values[name] or 0.0) - (before.values[name] or 0.0) for name in DIMENSIONS}


@dataclass(frozen=True, kw_only=True)
class SystemGap:
    """System-1 against System-2, table 5.

    system_1: accuracy on MovieChat-1K times 5; system_2: accuracy on MovieCORE, 0 to 5; gap: the first less the second.
    accuracy: of system_1, in [0, 1]. clips: that both are about.
    """

    system_1: Interval
    system_2: Interval
    gap: Interval
    accuracy: float
    clips: int


def system_gap(moviecore: BenchmarkScore, moviechat: BenchmarkScore) -> SystemGap:
    """Set the accuracies of one system on both benchmarks side by side, each over all its questions.

    Intervals draw clips, and take what both benchmarks ask about a clip together. Raises InputError where a benchmark
    has no judged question.
    """
    system_1, system_2 = _accuracies(moviechat, HIGHEST), _accuracies(moviecore, 1.0)
    if not system_1 or not system_2:
        raise InputError("System-1 and System-2 cannot be compared: one of the two has no judged question.")
    values = np.array([[value, np.nan] for _, value in system_1] + [[np.nan, value] for _, value in system_2])
    contrasts = {"system_1": (1, 0), "system_2": (0, 1), "gap": (1, -1)}
    found = contrast_intervals(values, contrasts, [video for video, _ in [*system_1, *system_2]])
    return SystemGap(
        **found,
        accuracy=found["system_1"].mean / HIGHEST,
        clips=len({video for video, _ in system_1} & {video for video, _ in system_2}),
    )


def _accuracies(score: BenchmarkScore, factor: float) -> list[tuple[str, float]]:
    """(video, value) of the items that have one."""
    return [(one.video, factor * value) for one in score.items if (value := one.values["accuracy"]) is not None]
