"""ReXTime: multiple choice and the moment of the reason (Chen et al., NeurIPS 2024; github.com/ReXTime/ReXTime).

Data: `rextime_<split>.jsonl` as in the authors' repository (windows, no options), `rextime_<split>.json` as on Hugging
Face (options, category, one span), or both; where both have a label, the repository's counts, as in its scorer.
Only the first predicted window counts: IoU is overlap over hull, 0 where they are apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import BenchmarkScore, Item, ItemScore, Prediction, Tools
from vrjax.evaluation.multiple_choice import GroundedChoice, lettered, moment_failure, right
from vrjax.evaluation.official_files import (
    Row,
    Seconds,
    Window,
    check_known,
    check_row,
    check_unique,
    look_for,
    names,
    read_ids,
    read_json,
    read_rows,
    write_whole,
    youtube_id,
)
from vrjax.evaluation.predictions import Answered, check_labels
from vrjax.evaluation.tally import tally

OPTIONS = 4
QUIRKS = (
    "Official mIoU and R1 are in percent and rounded to two decimals; strict values are fractions.",
    "The official scorer wants every question in the file: one that could not be read is written as the window [0, 0] "
    "and an empty answer, and the official value counts it so.",
    "A file without answers, or without windows, has no official value for what it leaves out; strictly it is wrong.",
)


class _RepositoryRow(Row):
    qid: str
    query: str
    vid: str
    duration: Seconds
    relevant_windows: list[Window] | None = None
    ans: str | None = None


class _HubRow(Row):
    qid: str
    question: str
    vid: str
    options: list[str]
    category: str | None = None
    duration: Seconds | None = None
    span: list[Seconds] | None = None
    ans: str | None = None


class _Submitted(Row):
    qid: str
    pred_relevant_windows: list[Window] | None = None
    ans: str | None = None


def window_iou(reference: Sequence[float], prediction: Sequence[float]) -> float:
    """Overlap over hull of two windows in seconds; 0 where they do not overlap or have no length."""
    overlap = max(0.0, min(prediction[1], reference[1]) - max(prediction[0], reference[0]))
    hull = max(prediction[1], reference[1]) - min(prediction[0], reference[0])
    return overlap / hull if hull else 0.0


@dataclass(frozen=True, kw_only=True)
class RexTime(GroundedChoice):
    """split: which files of a folder are read.

    leave_out: a list of videos whose questions are left out (for EG-VQA's transfer table: those of its training
    split): ids one a line, a JSON list, or EG-VQA records. Compared by YouTube id. A submission may still hold them.
    """

    name = "rextime"
    headline = "Acc@IoU0.5"
    submission = "submission.jsonl"
    answering = "Acc"
    grounding = ("mIoU", 0.5)
    table = MappingProxyType({name: name for name in ("mIoU", "R1@0.3", "R1@0.5", "Acc", "Acc@IoU0.5")})
    split: Literal["val", "test"] = "val"
    leave_out: Path | None = None

    def read(self, data: Path) -> list[Item]:
        files = [data] if data.is_file() else self._files(data)
        items: dict[str, Item] = {}
        for file in files:
            for item in self._items(file):
                known = items.get(item.id)
                items[item.id] = item if known is None else _joined(known, item)
        left_out = {youtube_id(video) for video in read_ids(self.leave_out)} if self.leave_out else set()
        return [item for item in items.values() if youtube_id(item.video) not in left_out]

    def _files(self, folder: Path) -> list[Path]:
        repository = look_for(folder, f"rextime_{self.split}.jsonl")
        hub = look_for(folder, f"rextime_{self.split}.json", f"rextime_hf_{self.split}.json")
        if not repository and not hub:
            raise InputError(
                f"{folder}: no rextime_{self.split}.jsonl (the authors' repository) or rextime_{self.split}.json "
                "(Hugging Face). Give the folder that holds one of them."
            )
        return [file for file in (repository, hub) if file]

    def _items(self, path: Path) -> list[Item]:
        rows = read_json(path, list, "questions")
        items = []
        for number, entry in enumerate(rows):
            name = entry.get("qid", f"number {number}") if isinstance(entry, dict) else f"number {number}"
            hub = isinstance(entry, dict) and "options" in entry
            items.append(self._hub_item(path, name, entry) if hub else self._repository_item(path, name, entry))
        check_unique(path, "qid", [item.id for item in items])
        return items

    def _repository_item(self, path: Path, name: object, entry: Any) -> Item:
        row = check_row(path, name, entry, _RepositoryRow)
        options = lettered([""] * OPTIONS)
        windows = [(window[0], window[1]) for window in row.relevant_windows or ()]
        return Item(
            id=row.qid,
            video=row.vid,
            question=row.query,
            options=options,
            duration=row.duration,
            reference=_reference(path, row.qid, row.ans, windows, options),
        )

    def _hub_item(self, path: Path, name: object, entry: Any) -> Item:
        row = check_row(path, name, entry, _HubRow)
        options = lettered(row.options)
        if row.span and len(row.span) != 2:
            raise InputError(f"{path}: record {row.qid}: span: expected [start, end]. Correct the record.")
        windows = [(row.span[0], row.span[1])] if row.span else []
        return Item(
            id=row.qid,
            video=row.vid,
            question=row.question,
            options=options,
            types=(row.category,) if row.category else (),
            duration=row.duration,
            reference=_reference(path, row.qid, row.ans, windows, options),
        )

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """JSON lines with `qid`, `pred_relevant_windows` and `ans`; their questions must be exactly the benchmark's."""
        rows = read_rows(path, _Submitted, "qid", "predictions")
        known = {item.id for item in items}
        if self.leave_out is None:
            check_known(path, [row.qid for row in rows], known)
        if missing := sorted(known - {row.qid for row in rows}):
            raise InputError(
                f"{path}: no row for {names(missing)}. The authors' scorer wants every question: complete the file."
            )
        return [Prediction(id=row.qid, parsed=_given(row)) for row in rows if row.qid in known]

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """Every question has a row; one that could not be read has the window [0, 0] and an empty answer."""
        lines = [
            json.dumps({"qid": one.item.id, "pred_relevant_windows": _windows(one), "ans": one.choice or ""}) + "\n"
            for one in self.answered(items, predictions)
        ]
        write_whole({path: "".join(lines)})

    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        check_labels(self, items)
        pairs = self.answered(items, predictions)
        scores = [_item_score(one) for one in pairs]
        return tally(self, scores, official(pairs, scores), QUIRKS)


def _reference(
    path: Path, name: str, answer: str | None, windows: Sequence[tuple[float, float]], options: Mapping[str, str]
) -> dict[str, Any] | None:
    if not answer or not windows:
        return None
    if answer not in options:
        raise InputError(f"{path}: record {name}: ans: {answer!r} is none of {', '.join(options)}. Correct the record.")
    return {"choice": answer, "spans": list(windows)}


def _joined(repository: Item, hub: Item) -> Item:
    """Options and category from one file, the label from the other where it has one."""
    return Item(
        id=hub.id,
        video=repository.video,
        question=hub.question,
        options=hub.options,
        types=hub.types,
        duration=repository.duration,
        reference=repository.reference or hub.reference,
    )


def _given(row: _Submitted) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if row.ans is not None:
        values["choice"] = row.ans
    if row.pred_relevant_windows:
        values["spans"] = [(window[0], window[1]) for window in row.pred_relevant_windows]
    return values


def _windows(one: Answered) -> list[list[float]]:
    return [list(span) for span in one.spans] or [[0.0, 0.0]]


def _item_score(one: Answered) -> ItemScore:
    iou = max(window_iou(window, one.spans[0]) for window in one.labels["spans"]) if one.spans else 0.0
    return ItemScore(
        id=one.item.id,
        video=one.item.video,
        types=one.item.types,
        values={
            "Acc@IoU0.5": right(one) * (iou >= 0.5),
            "Acc": right(one),
            "mIoU": iou,
            "R1@0.3": float(iou >= 0.3),
            "R1@0.5": float(iou >= 0.5),
        },
        failure=moment_failure(one),
    )


def official(pairs: Sequence[Answered], scores: Sequence[ItemScore]) -> dict[str, float]:
    """The values of the authors' `rextime_eval.py`: mIoU and R1 in percent, rounded; accuracies as fractions."""
    values: dict[str, float] = {}
    given = [one.read.values for one in pairs if one.read.values]
    answers, windows = (any(key in one for one in given) or not given for key in ("choice", "spans"))

    def mean(name: str) -> float:
        return float(np.mean([score.values[name] or 0.0 for score in scores]))

    if windows:
        values |= {name: float(f"{mean(name) * 100:.2f}") for name in ("mIoU", "R1@0.3", "R1@0.5")}
    if answers:
        values["Acc"] = mean("Acc")
    if answers and windows:
        values["Acc@IoU0.5"] = mean("Acc@IoU0.5")
    return values
