"""MovieChat-1K: short questions about the clips that MovieCORE asks deeper ones about (Song et al. 2024).

Scored as HERMES reports it (github.com/joslefaure/HERMES): a judge says whether an answer matches, yes or no, and how
well, 0 to 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import BenchmarkScore, Item, ItemScore, Prediction, PromptForm
from vrjax.evaluation.contrasts import contrast_intervals
from vrjax.evaluation.match_judge import MatchJudge
from vrjax.evaluation.movie_benchmark import (
    EMPTY_ANSWER,
    MovieBenchmark,
    MovieItem,
    Verdict,
    failed,
    means,
    no_verdict,
    reference_of,
)
from vrjax.evaluation.movie_questions import MovieQuestion
from vrjax.llm.chat import Chat
from vrjax.records import first_problem

METRICS = ("accuracy", "score")
SHORT_ANSWER = PromptForm(name="short answer", version=1, template="{question}\nAnswer briefly.")


def _truth(value: Any) -> Any:
    """`yes` is right; whatever else stands there is not, as in HERMES' scorer."""
    return value.strip().lower() == "yes" if isinstance(value, str) else value


class _Match(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    correct: Annotated[bool | None, BeforeValidator(_truth)] = Field(validation_alias=AliasChoices("correct", "pred"))
    score: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class MovieChat(MovieBenchmark):
    """asked: `global` questions are about the whole clip, `breakpoint` ones about a moment of it, `all` both."""

    asked: Literal["global", "breakpoint", "all"] = "global"
    prompt: PromptForm = SHORT_ANSWER

    name = "moviechat"
    headline = "accuracy"
    submission = "moviechat_predictions.json"
    table = MappingProxyType({"Acc.": "accuracy", "Score": "average_score"})

    def takes(self, question: MovieQuestion) -> bool:
        return self.asked == "all" or (question.time is not None) == (self.asked == "breakpoint")

    def judge_name(self, chat: Chat) -> str:
        return MatchJudge(chat).name

    def question(self, item: Item) -> str:
        """What is asked about a moment says which."""
        asked = super().question(item)
        if not isinstance(item, MovieItem) or item.time is None:
            return asked
        return f"At {item.time:.1f} seconds into the video: {asked}"

    async def _judge(self, chat: Chat, item: Item, answer: str, have: Verdict) -> Verdict:
        if have.get("correct") is not None:
            return have
        return (await MatchJudge(chat).match(item.question, reference_of(item), answer)).as_row()

    def _is_verdict(self, keys: frozenset[str]) -> bool:
        return bool(keys & {"correct", "pred"}) and "score" in keys

    def _one_recorded(self, verdict: Any, where: str) -> Verdict:
        """{"correct": true, "score": 4, "reason": …}, or HERMES' {"pred": "yes", "score": 4}."""
        try:
            return _Match.model_validate(verdict).model_dump()
        except ValidationError as error:
            raise InputError(f"{where}: {first_problem(error)}. Correct the field.") from error

    def _score(self, items: Sequence[Item], predictions: Mapping[str, Prediction], judge: str) -> BenchmarkScore:
        found = [self._item_score(item, predictions.get(item.id), judge) for item in items]
        judged = [
            verdict
            for prediction in predictions.values()
            if prediction.text is not None and (verdict := prediction.judged.get(judge, {})).get("correct") is not None
        ]
        right = sum(bool(verdict["correct"]) for verdict in judged)
        total = sum(verdict["score"] or 0.0 for verdict in judged)
        videos = [one.video for one in found]
        columns = np.array([[_number(one.values[metric]) for metric in METRICS] for one in found])
        known = [n for n in range(len(METRICS)) if not np.isnan(columns[:, n]).all()]
        intervals = contrast_intervals(columns, {METRICS[n]: np.eye(len(METRICS))[n].tolist() for n in known}, videos)
        kinds = sorted({kind for item in items for kind in item.types})
        return BenchmarkScore(
            benchmark=self.name,
            official={
                "accuracy": 100 * right / len(judged) if judged else 0.0,
                "average_score": total / len(judged) if judged else 0.0,
            },
            strict={metric: interval.mean for metric, interval in intervals.items()},
            intervals=intervals,
            coverage=len(judged) / len(items),
            by_type={kind: means([one for one in found if kind in one.types], METRICS) for kind in kinds},
            failures=Counter(one.failure for one in found if one.failure is not None),
            items=found,
            quirks=(
                "Official accuracy is in percent, over the answers that the judge gave a verdict on. Strict accuracy "
                "is a fraction: no answer and an empty one are wrong, and without a verdict there is no value.",
                "HERMES puts answers and references in lower case before they are judged; here they are judged as "
                "they were written.",
                "The judge's prompt is our own, after the protocol of Video-ChatGPT.",
            ),
            details={"judge": judge},
        )

    def _item_score(self, item: Item, prediction: Prediction | None, judge: str) -> ItemScore:
        failure, notes = failed(prediction), {}
        values: dict[str, float | None] = {"accuracy": 0.0, "score": 0.0}
        if prediction is not None and failure is None:
            verdict = prediction.judged.get(judge, {})
            reason = verdict.get("reason", "")
            notes = {"judge": reason} if reason else {}
            if not self._answer(item, prediction):
                failure = EMPTY_ANSWER
            elif verdict.get("correct") is None:
                values = {"accuracy": None, "score": None}
                failure = no_verdict(reason)
            else:
                values = {"accuracy": float(verdict["correct"]), "score": verdict["score"]}
        return ItemScore(id=item.id, video=item.video, types=item.types, values=values, failure=failure, notes=notes)


def _number(value: float | None) -> float:
    return np.nan if value is None else value
