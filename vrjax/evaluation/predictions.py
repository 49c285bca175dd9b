"""Predictions beside their questions: whose they are, and what could be read of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, Item, Parsed, Prediction
from vrjax.evaluation.official_files import names

MISSING, NO_REPLY = "missing", "no reply"


@dataclass(frozen=True)
class Answered:
    """A question with its prediction, None where there is none, and what was read of it."""

    item: Item
    prediction: Prediction | None
    read: Parsed

    @property
    def labels(self) -> Mapping[str, Any]:
        """What the question is scored against. `check_labels` says for a whole benchmark whether it is there."""
        if self.item.reference is None:
            raise InputError(f"question {self.item.id} has no labels to score against. Score a split with labels.")
        return self.item.reference

    @property
    def choice(self) -> str | None:
        """The letter, as it was given."""
        return self.read.values.get("choice")

    @property
    def spans(self) -> list[tuple[float, float]]:
        """(start, end) in seconds, as they were given."""
        return [(span[0], span[1]) for span in self.read.values.get("spans") or ()]


def answered(
    benchmark: Benchmark, items: Sequence[Item], predictions: Sequence[Prediction], needs: Sequence[str]
) -> list[Answered]:
    """Each question with its prediction, by id.

    needs: the parsed values without which a prediction is not read in full. Raises InputError for a prediction of no
    question, and for two of one.
    """
    known = {item.id for item in items}
    if unknown := [one.id for one in predictions if one.id not in known]:
        raise InputError(
            f"{benchmark.name}: predictions of unknown questions: {names(unknown)}. "
            "Score them with the questions that they were made for."
        )
    by_id = {one.id: one for one in predictions}
    if len(by_id) < len(predictions):
        seen: set[str] = set()
        twice = [one.id for one in predictions if one.id in seen or seen.add(one.id)]
        raise InputError(f"{benchmark.name}: several predictions of one question: {names(twice)}. Keep one of each.")
    return [Answered(item, by_id.get(item.id), _read(benchmark, item, by_id.get(item.id), needs)) for item in items]


def _read(benchmark: Benchmark, item: Item, prediction: Prediction | None, needs: Sequence[str]) -> Parsed:
    if prediction is None:
        return Parsed(failure=MISSING)
    if prediction.error is not None:
        # Up to the first colon, so that reasons group.
        return Parsed(failure=f"error: {' '.join(prediction.error.split(':')[0].split()) or 'unnamed'}")
    found = None if prediction.text is None else benchmark.parse(item, prediction.text)
    values = prediction.parsed or (found.values if found else {})
    lacking = [need for need in needs if not values.get(need)]
    if not lacking:
        return Parsed(values=values)
    kind = (found.failure if found else None) or (f"no {lacking[0].removesuffix('s')}" if values else NO_REPLY)
    return Parsed(values=values, failure=kind)


def check_labels(benchmark: Benchmark, items: Sequence[Item]) -> None:
    """Raises InputError where questions have no labels to score against, or there are none at all."""
    if not items:
        raise InputError(f"{benchmark.name}: there are no questions to score. Check the data and the options.")
    if without := [item.id for item in items if item.reference is None]:
        raise InputError(
            f"{benchmark.name}: cannot be scored: {len(without)} of {len(items)} questions have no labels here "
            f"({names(without)}). Write a submission for the authors' server, or score a split with labels."
        )
