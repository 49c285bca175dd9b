"""MovieCORE: questions about film clips that ask for reasoning, judged in five dimensions (arXiv 2508.19026).

The official aggregation is that of github.com/joslefaure/MovieCORE: a question counts once in each of its classes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import BenchmarkScore, Item, ItemScore, Prediction, PromptForm
from vrjax.evaluation.captions import Metric, score_captions
from vrjax.evaluation.contrasts import contrast_intervals
from vrjax.evaluation.dimension_judge import DIMENSIONS, DimensionJudge
from vrjax.evaluation.intervals import Interval
from vrjax.evaluation.movie_benchmark import (
    EMPTY_ANSWER,
    MovieBenchmark,
    Verdict,
    classification_of,
    failed,
    means,
    no_verdict,
    reference_of,
)
from vrjax.llm.chat import Chat
from vrjax.records import first_problem

AVERAGE = "average"
OPEN_ANSWER = PromptForm(
    name="open answer",
    version=1,
    template="{question}\nAnswer in two to five sentences, and name what happens in the video that supports it.",
)
SHOWN_TEXT_METRICS = ("bleu_4", "cider", "meteor")


class _Rating(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    score: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] | None
    reason: str = ""


_RATINGS = TypeAdapter(dict[str, _Rating])


Aggregation = Literal["per_item", "official"]


@dataclass(frozen=True, kw_only=True)
class DimensionMeans:
    """Means of ratings, 0 to 5, by dimension, and "average", the mean of the five; by_class: of each class."""

    overall: Mapping[str, float]
    by_class: Mapping[str, Mapping[str, float]]


def aggregate(
    ratings: Sequence[Mapping[str, float | None]],
    classifications: Sequence[str],
    aggregation: Aggregation = "per_item",
) -> DimensionMeans:
    """Average ratings (of each question by dimension; missing or None: unscored, which is no 0).

    classifications: classes of each question, separated by commas. `official` is the authors' evaluate_moviecore.py: a
    question counts once for each of its classes, in the overall means too. `per_item` counts it once there. In both, a
    dimension that has no score at all is 0.
    """
    scored: dict[str, dict[str, list[float]]] = defaultdict(lambda: {name: [] for name in DIMENSIONS})
    everything: dict[str, list[float]] = {name: [] for name in DIMENSIONS}
    for one, classification in zip(ratings, classifications, strict=True):
        kinds = [kind.strip() for kind in classification.split(",")]
        for name in DIMENSIONS:
            if (score := one.get(name)) is not None:
                everything[name].extend([score] * (len(kinds) if aggregation == "official" else 1))
        for kind in kinds:
            for name in DIMENSIONS:
                scores = scored[kind][name]
                if (score := one.get(name)) is not None:
                    scores.append(score)
    return DimensionMeans(overall=_means(everything), by_class={kind: _means(rows) for kind, rows in scored.items()})


def _means(rows: Mapping[str, Sequence[float]]) -> dict[str, float]:
    found = {name: sum(scores) / len(scores) if scores else 0.0 for name, scores in rows.items()}
    return {**found, AVERAGE: sum(found.values()) / len(found)}


@dataclass(frozen=True, kw_only=True)
class MovieCore(MovieBenchmark):
    """text_metrics: also compute these over answers and references ("meteor" needs Java)."""

    text_metrics: tuple[Metric, ...] = ("bleu", "cider")
    prompt: PromptForm = OPEN_ANSWER

    name = "moviecore"
    headline = AVERAGE
    best = 5.0
    submission = "moviecore_predictions.json"
    table = MappingProxyType(
        {
            "Accuracy": "accuracy",
            "Comprehensiveness": "comprehensiveness",
            "Depth": "depth",
            "Evidence": "evidence",
            "Coherence": "coherence",
            "Avg.": AVERAGE,
        }
    )

    def judge_name(self, chat: Chat) -> str:
        return DimensionJudge(chat).name

    async def _judge(self, chat: Chat, item: Item, answer: str, have: Verdict) -> Verdict:
        lacking = [name for name in DIMENSIONS if (have.get(name) or {}).get("score") is None]
        ratings = await DimensionJudge(chat).rate_all(item.question, reference_of(item), answer, lacking)
        return {**have, **{name: rating.as_row() for name, rating in ratings.items()}}

    def _is_verdict(self, keys: frozenset[str]) -> bool:
        return keys <= set(DIMENSIONS)

    def _one_recorded(self, verdict: Any, where: str) -> Verdict:
        """{"accuracy": 4, …} or {"accuracy": {"score": 4, "reason": …}, …}."""
        if not isinstance(verdict, dict):
            raise InputError(f"{where}: is {type(verdict).__name__}, not scores by dimension.")
        if unknown := sorted(verdict.keys() - set(DIMENSIONS)):
            raise InputError(f"{where}: {unknown[0]!r} is no dimension. There are {', '.join(DIMENSIONS)}.")
        rows = {name: one if isinstance(one, dict) else {"score": one} for name, one in verdict.items()}
        try:
            ratings = _RATINGS.validate_python(rows)
        except ValidationError as error:
            raise InputError(f"{where}: {first_problem(error)}. Correct the field.") from error
        return {name: {"score": one.score, "reason": one.reason} for name, one in ratings.items()}

    def _score(self, items: Sequence[Item], predictions: Mapping[str, Prediction], judge: str) -> BenchmarkScore:
        found = [self._item_score(item, predictions.get(item.id), judge) for item in items]
        answered = [item for item in items if item.id in predictions and predictions[item.id].text is not None]
        ratings = {item.id: _scores(predictions[item.id], judge) for item in answered}
        classifications = [classification_of(item) for item in answered]
        judged = [ratings[item.id] for item in answered]
        official = aggregate(judged, classifications, "official")
        official_intervals = dimension_intervals(
            judged,
            [item.video for item in answered],
            [len(one.split(",")) for one in classifications],
        )
        texts = self._text_metrics(answered, predictions)
        strict = dimension_intervals([one.values for one in found], [one.video for one in found])
        kinds = sorted({kind for item in items for kind in item.types})
        complete = sum(len(one) == len(DIMENSIONS) for one in ratings.values())
        return BenchmarkScore(
            benchmark=self.name,
            official={**official.overall, **texts},
            strict={name: interval.mean for name, interval in strict.items()},
            intervals=strict,
            coverage=complete / len(items),
            by_type={kind: _strict_means([one for one in found if kind in one.types]) for kind in kinds},
            failures=Counter(one.failure for one in found if one.failure is not None),
            items=found,
            quirks=(
                "Official: a question counts once for each of its classes. Strict: once.",
                "Official: questions without an answer or a verdict are left out, and an empty answer has the judge's "
                "score. Strict: no answer and an empty one are 0; without a verdict there is no value.",
                "The judge's prompts are our own, after the paper's rubrics.",
            ),
            details={
                "judge": judge,
                "official_intervals": {name: asdict(interval) for name, interval in official_intervals.items()},
                "per_item": dict(aggregate(judged, classifications).overall),
                "official_by_class": {kind: dict(row) for kind, row in official.by_class.items()},
            },
        )

    def _item_score(self, item: Item, prediction: Prediction | None, judge: str) -> ItemScore:
        scores, notes, failure = dict.fromkeys(DIMENSIONS, 0.0), {}, failed(prediction)
        if prediction is not None and failure is None:
            verdict = prediction.judged.get(judge, {})
            notes = {name: one["reason"] for name, one in verdict.items() if one.get("reason")}
            if not self._answer(item, prediction):
                failure = EMPTY_ANSWER
            else:
                scores = _scores(prediction, judge)
                if lacking := [name for name in DIMENSIONS if name not in scores]:
                    failure = no_verdict((verdict.get(lacking[0]) or {}).get("reason", ""))
        values: dict[str, float | None] = {name: scores.get(name) for name in DIMENSIONS}
        values[AVERAGE] = sum(scores.values()) / len(DIMENSIONS) if len(scores) == len(DIMENSIONS) else None
        return ItemScore(id=item.id, video=item.video, types=item.types, values=values, failure=failure, notes=notes)

    def _text_metrics(self, items: Sequence[Item], predictions: Mapping[str, Prediction]) -> dict[str, float]:
        if not self.text_metrics or not items:
            return {}
        scores = score_captions(
            {item.id: self._answer(item, predictions[item.id]) for item in items},
            {item.id: [reference_of(item)] for item in items},
            self.text_metrics,
        )
        return {name: scores.corpus[name] for name in SHOWN_TEXT_METRICS if name in scores.corpus}


def dimension_intervals(
    ratings: Sequence[Mapping[str, float | None]], videos: Sequence[str], weights: Sequence[float] | None = None
) -> dict[str, Interval]:
    """Means and 95% intervals by dimension, and of "average", the mean of the five means; a missing value is no zero.

    ratings: of each item by dimension; weights: how often each item counts. A dimension without any value has no entry,
    and then there is no average.
    """
    columns = np.array([[_number(one.get(name)) for name in DIMENSIONS] for one in ratings]).reshape(
        -1, len(DIMENSIONS)
    )
    known = [n for n in range(len(DIMENSIONS)) if not np.isnan(columns[:, n]).all()]
    contrasts = {DIMENSIONS[n]: np.eye(len(DIMENSIONS))[n].tolist() for n in known}
    if len(known) == len(DIMENSIONS):
        contrasts[AVERAGE] = [1 / len(DIMENSIONS)] * len(DIMENSIONS)
    return contrast_intervals(columns, contrasts, videos, weights) if contrasts else {}


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _scores(prediction: Prediction, judge: str) -> dict[str, float]:
    """The judge's scores by dimension, those that there are."""
    verdict = prediction.judged.get(judge, {})
    return {name: one["score"] for name in DIMENSIONS if (one := verdict.get(name)) and one["score"] is not None}


def _strict_means(scores: Sequence[ItemScore]) -> dict[str, float]:
    found = means(scores, DIMENSIONS)
    if found.keys() >= set(DIMENSIONS):
        found[AVERAGE] = sum(found[name] for name in DIMENSIONS) / len(DIMENSIONS)
    return found
