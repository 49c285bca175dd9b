"""A human study: the same scorer over several annotators' files, averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vrjax.evaluation.benchmark import BenchmarkScore, ItemScore
from vrjax.evaluation.intervals import clustered_intervals


def average_scores(scores: Mapping[str, BenchmarkScore]) -> BenchmarkScore:
    """One score from those of several annotators on the same items, by annotator.

    Every value is the mean over annotators: of an item over those that have the value; intervals resample the videos
    of these means. Failures are added up. Raises ValueError where there is none, or the items differ.
    """
    all_scores = list(scores.values())
    if not all_scores:
        raise ValueError("there is nothing to average")
    first = all_scores[0]
    if any([one.id for one in score.items] != [one.id for one in first.items] for score in all_scores):
        raise ValueError("the scores are of different items")
    items = [_mean_item(together) for together in zip(*(score.items for score in all_scores), strict=True)]
    metrics = [name for name in first.strict if any(one.values[name] is not None for one in items)]
    columns = {name: [one.values[name] for one in items] for name in metrics}
    intervals = clustered_intervals(columns, [one.video for one in items])
    failures: Counter[str] = Counter()
    for score in all_scores:
        failures.update(score.failures)
    return BenchmarkScore(
        benchmark=first.benchmark,
        official=_means([score.official for score in all_scores]),
        strict={name: interval.mean for name, interval in intervals.items()},
        intervals=intervals,
        coverage=sum(score.coverage for score in all_scores) / len(all_scores),
        by_type={kind: _means([score.by_type[kind] for score in all_scores]) for kind in first.by_type},
        failures=failures,
        items=items,
        quirks=(*first.quirks, f"Every value is the mean over {len(all_scores)} annotators' files."),
        details={
            "annotators": {
                name: {"official": dict(score.official), "strict": dict(score.strict), "coverage": score.coverage}
                for name, score in scores.items()
            }
        },
    )


def _means(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: sum(table[name] for table in tables) / len(tables) for name in names}


def _mean_item(together: Sequence[ItemScore]) -> ItemScore:
    values: dict[str, float | None] = {}
    for name in together[0].values:
        known = [value for one in together if (value := one.values[name]) is not None]
        values[name] = sum(known) / len(known) if known else None
    failures = Counter(one.failure for one in together if one.failure is not None)
    first = together[0]
    failure = None if not failures else ", ".join(f"{kind} ({count})" for kind, count in failures.most_common())
    return ItemScore(id=first.id, video=first.video, types=first.types, values=values, failure=failure)


def joined_rows(rows: Mapping[str, Sequence[Mapping[str, Any]]], score: BenchmarkScore) -> list[dict[str, Any]]:
    """Rows of `items.jsonl` for the average: all annotators' answers and evidence beside each other, mean values."""
    joined = []
    for number, one in enumerate(score.items):
        together = {name: of[number] for name, of in rows.items()}
        row = dict(next(iter(together.values())))
        said = {name: one["parsed"] for name, one in together.items()}
        answers = [f"{name}: {parsed.get('answer') or parsed.get('choice')}" for name, parsed in said.items() if parsed]
        row |= {
            "text": None,
            "error": None,
            "parsed": {
                "answer": "; ".join(answers),
                "evidence": [piece for parsed in said.values() for piece in parsed.get("evidence") or ()],
                "spans": [span for parsed in said.values() for span in parsed.get("spans") or ()],
            },
            "values": dict(one.values),
            "failure": one.failure,
            "notes": {},
        }
        joined.append(row)
    return joined
