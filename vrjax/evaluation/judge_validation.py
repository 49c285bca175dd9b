"""Do two who label the same things agree? A judge against people, or one annotator against another."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.records import load_json

ANSWER_LABELS = ("fully", "partially", "incorrect")
_SCORES = {1.0: "fully", 0.5: "partially", 0.0: "incorrect"}


@dataclass(frozen=True)
class Agreement:
    """matrix: counts, a row a label of the first, a column a label of the second, both in the order of `labels`."""

    labels: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    @property
    def n(self) -> int:
        return sum(map(sum, self.matrix))

    @property
    def exact(self) -> float:
        """Share of things with the same label from both."""
        return sum(row[place] for place, row in enumerate(self.matrix)) / self.n

    @property
    def kappa(self) -> float | None:
        """Cohen's κ (1960): agreement beyond chance; None where chance alone makes both always agree."""
        rows = [sum(row) for row in self.matrix]
        columns = [sum(row[place] for row in self.matrix) for place in range(len(self.labels))]
        chance = sum(a * b for a, b in zip(rows, columns, strict=True)) / self.n**2
        return None if math.isclose(chance, 1) else (self.exact - chance) / (1 - chance)

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "exact": self.exact,
            "kappa": self.kappa,
            "labels": list(self.labels),
            "matrix": [list(row) for row in self.matrix],
        }


def agreement(first: Sequence[str], second: Sequence[str], labels: Sequence[str] | None = None) -> Agreement:
    """Compare two lists of labels of the same things, in the same order.

    labels: all that there are, in the order of the matrix; default: those that occur, sorted.
    Raises ValueError where the lists are empty, of unequal length, or hold other labels.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} labels: give one of each for every thing")
    order = tuple(labels) if labels is not None else tuple(sorted({*first, *second}))
    place = {label: number for number, label in enumerate(order)}
    unknown = sorted({*first, *second} - place.keys())
    if unknown:
        raise ValueError(f"labels {unknown} are not among {list(order)}")
    counts = [[0] * len(order) for _ in order]
    for a, b in zip(first, second, strict=True):
        counts[place[a]][place[b]] += 1
    return Agreement(order, tuple(map(tuple, counts)))


def fleiss_kappa(counts: Sequence[Sequence[int]]) -> float | None:
    """Fleiss' κ (1971) of things that were each labelled by the same number of people, not always the same ones.

    counts [things, labels]: how many gave each label. None where chance alone makes all always agree.
    Raises ValueError where there are no things, fewer than two people, or not the same number for each.
    """
    people = {sum(row) for row in counts}
    if len(people) != 1 or min(people) < 2:
        raise ValueError(f"{sorted(people)} labels a thing: give each thing the same number of labels, at least 2")
    n = people.pop()
    agreeing = sum(sum(one * (one - 1) for one in row) / (n * (n - 1)) for row in counts) / len(counts)
    shares = [sum(column) / (n * len(counts)) for column in zip(*counts, strict=True)]
    chance = sum(share * share for share in shares)
    return None if math.isclose(chance, 1) else (agreeing - chance) / (1 - chance)


def validate_judge(human: Mapping[str, str], judged: Mapping[str, str | None], where: str | Path) -> dict[str, Any]:
    """A judge's labels against people's, by item id: agreement, κ, confusion matrix, and what the judge left out.

    judged: None where the judge gave no verdict. Raises InputError naming `where` for ids that the run does not have,
    or where the judge labelled none.
    """
    unknown = [name for name in human if name not in judged]
    if unknown:
        raise InputError(f"{where}: {unknown[0]!r} is not among the items that were evaluated. Check the ids.")
    pairs = [(label, judged[name]) for name, label in human.items()]
    scored = [(label, verdict) for label, verdict in pairs if verdict is not None]
    if not scored:
        raise InputError(f"{where}: the judge labelled none of these {len(human)} items. Evaluate with --judge.")
    found = agreement([label for label, _ in scored], [verdict for _, verdict in scored], ANSWER_LABELS)
    return {**found.as_json(), "unjudged": len(pairs) - len(scored)}


def load_answer_labels(path: str | Path) -> dict[str, str]:
    """People's labels of answers by item id: `fully`, `partially`, `incorrect`, or 1, .5, 0.

    `.json` is an object {id: label} or a list of {"id" or "question_id", "label"}; `.jsonl` one of these a line; `.csv`
    has these columns. Raises InputError naming file, item and label.
    """
    path = Path(path)
    rows: Any
    if path.suffix == ".csv":
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path}: cannot be read ({error}). Give UTF-8 text with a header.") from error
    else:
        rows = load_json(path)
    if isinstance(rows, dict):
        pairs = list(rows.items())
    elif isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        pairs = [(row.get("id", row.get("question_id")), row.get("label")) for row in rows]
    else:
        raise InputError(f"{path}: expected {{id: label}} or a list of objects with id and label.")
    labels: dict[str, str] = {}
    for number, (name, label) in enumerate(pairs):
        if not isinstance(name, str) or not name:
            raise InputError(f"{path}: entry {number} has no id. Give each a question id.")
        if name in labels:
            raise InputError(f"{path}: {name!r} is labelled twice. Keep one label.")
        labels[name] = _label(label, f"{path}: {name}")
    if not labels:
        raise InputError(f"{path}: holds no labels.")
    return labels


def _label(value: Any, where: str) -> str:
    text = str(value).strip().lower().replace("_", " ").removesuffix(" correct")
    if text in ANSWER_LABELS:
        return text
    try:
        return _SCORES[float(text)]
    except (ValueError, KeyError):
        shown = json.dumps(value, ensure_ascii=False, default=str)
        raise InputError(f"{where}: the label {shown} is none of {', '.join(ANSWER_LABELS)}, 1, .5, 0.") from None
