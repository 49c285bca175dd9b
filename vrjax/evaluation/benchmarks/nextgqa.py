"""NExT-GQA: multiple choice, grounded in spans of the video (Xiao et al., CVPR 2024; github.com/doc-doc/NExT-GQA).

Data: `<split>.csv` (questions), `gsub_<split>.json` (spans), `map_vid_vidorID.json` (where the videos lie).
A prediction is compared with each reference span by itself and the best value counts: IoU is overlap over hull, IoP is
overlap over prediction. A prediction without length that lies in a reference has IoU 0 and IoP 1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import BenchmarkScore, Item, ItemScore, Prediction, Tools
from vrjax.evaluation.multiple_choice import LETTERS, GroundedChoice, lettered, moment_failure, option_number, right
from vrjax.evaluation.official_files import (
    Row,
    Seconds,
    Window,
    check_known,
    check_row,
    check_unique,
    find,
    look_for,
    names,
    read_json,
    read_table,
    write_whole,
)
from vrjax.evaluation.predictions import Answered, check_labels
from vrjax.evaluation.tally import tally

THRESHOLDS = (0.3, 0.5)
QUIRKS = (
    "Official grounding values and Acc@GQA leave out questions without a predicted span; strict ones count them as 0.",
    "The official scorer takes the right option from the predictions file; strict values take it from the labels.",
    "Official values are in percent, strict ones are fractions.",
)


class _Question(Row):
    video_id: str
    qid: str
    question: str
    type: str
    answer: str | None = None
    a0: str
    a1: str
    a2: str
    a3: str
    a4: str


class _Grounding(Row):
    location: dict[str, list[Window]]
    duration: Seconds


class _Answer(Row):
    prediction: int
    answer: int | None = None
    location: list[Seconds] | None = None


class _Span(Row):
    span: Window


def overlaps(reference: Sequence[float], prediction: Sequence[float]) -> tuple[float, float]:
    """(IoU, IoP) of two spans in seconds, as in NExT-GQA's scorer; negative where they are apart."""
    start, end = prediction
    if start == end:
        return 0.0, float(reference[0] <= start <= reference[1])
    overlap = min(reference[1], end) - max(reference[0], start)
    hull = max(reference[1], end) - min(reference[0], start)
    return (overlap / hull if hull > 0 else 0.0), (overlap / (end - start) if end > start else 0.0)


def best_overlaps(references: Sequence[Sequence[float]], prediction: Sequence[float]) -> tuple[float, float]:
    """The best IoU and the best IoP over the references, at least 0; they may be those of different ones."""
    pairs = [overlaps(reference, prediction) for reference in references]
    return max(0.0, *(iou for iou, _ in pairs)), max(0.0, *(iop for _, iop in pairs))


@dataclass(frozen=True, kw_only=True)
class NextGqa(GroundedChoice):
    """split: which files of a folder are read. fractions: spans of a submission are shares of the video's duration.

    The authors' Gaussian masks (`<split>_ground_gs.json`) are such fractions; they become seconds, rounded to .1.
    """

    name = "nextgqa"
    headline = "Acc@GQA"
    submission = "submission"
    answering = "Acc@QA"
    grounding = ("mIoP", 0.5)
    table = MappingProxyType({name: name for name in ("Acc@QA", "Acc@GQA", "mIoP", "IoP@0.5", "mIoU", "IoU@0.5")})
    split: Literal["val", "test"] = "test"
    fractions: bool = False

    def read(self, data: Path) -> list[Item]:
        """The questions of the grounded subset; without `gsub_<split>.json` they have no labels."""
        questions = data if data.is_file() else find(data, f"{self.split}.csv")
        split = "val" if questions.stem.endswith("val") else "test" if questions.stem.endswith("test") else self.split
        spans_file = look_for(data, f"gsub_{split}.json")
        map_file = look_for(data, "map_vid_vidorID.json")
        places = read_json(map_file, dict, "video paths") if map_file else {}
        spans: dict[str, _Grounding] = {}
        if spans_file:
            content = read_json(spans_file, dict, "videos")
            spans = {video: check_row(spans_file, video, entry, _Grounding) for video, entry in content.items()}
        rows = read_table(questions, _Question)
        check_unique(questions, "video_id and qid", [f"{row.video_id}_{row.qid}" for row in rows])
        return [self._item(row, spans.get(row.video_id), places.get(row.video_id), questions) for row in rows]

    def _item(self, row: _Question, grounding: _Grounding | None, place: Any, path: Path) -> Item:
        name = f"{row.video_id}_{row.qid}"
        options = lettered([row.a0, row.a1, row.a2, row.a3, row.a4])
        reference = None
        if row.answer and grounding is not None and grounding.location.get(row.qid):
            right_one = next((letter for letter, text in options.items() if text == row.answer), None)
            if right_one is None:
                raise InputError(f"{path}: record {name}: answer: {row.answer!r} is none of a0 to a4. Correct the row.")
            windows = [(window[0], window[-1]) for window in grounding.location[row.qid]]
            reference = {"choice": right_one, "spans": windows}
        kind = "TN" if row.type == "TP" else row.type  # as the authors report them: before and after in one
        return Item(
            id=name,
            video=row.video_id,
            question=row.question,
            options=options,
            types=(kind, kind[:1]),
            duration=None if grounding is None else grounding.duration,
            video_file=str(place) if place else None,
            reference=reference,
        )

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """A folder with `<split>-res.json` (options) and `<split>_ground.json` (spans), or one of the two.

        Rows with `prediction` and `location` together (SeViLA's form) are read as well: first and last time count.
        """
        by_id = {item.id: item for item in items}
        found: dict[str, dict[str, Any]] = {}
        for file in self._files(path):
            content = read_json(file, dict, "predictions")
            check_known(file, content, by_id)
            for name, entry in content.items():
                values = self._values(file, name, entry, by_id[name].duration)
                if twice := values.keys() & found.setdefault(name, {}).keys():
                    raise InputError(f"{path}: record {name}: {min(twice)} stands in two files. Keep one file of each.")
                found[name].update(values)
        return [Prediction(id=item.id, parsed=found[item.id]) for item in items if item.id in found]

    @staticmethod
    def _files(path: Path) -> list[Path]:
        if not path.is_dir():
            return [path]
        files = sorted(
            file for file in path.glob("[!.]*.json") if "ground" in file.stem or file.stem.endswith(("res", "qa"))
        )
        if not files:
            raise InputError(f"{path}: holds neither <split>-res.json nor <split>_ground.json. Give their folder.")
        return files

    def _values(self, path: Path, name: str, entry: Any, duration: float | None) -> dict[str, Any]:
        if isinstance(entry, dict):
            row = check_row(path, name, entry, _Answer)
            values: dict[str, Any] = {"prediction": row.prediction}
            if 0 <= row.prediction < 5:
                values["choice"] = LETTERS[row.prediction]
            if row.answer is not None:
                values["claimed"] = row.answer
            if not row.location:
                return values
            span = (row.location[0], row.location[-1])
        else:
            values = {}
            window = check_row(path, name, {"span": entry}, _Span).span
            span = (window[0], window[-1])
        if self.fractions:
            if duration is None:
                raise InputError(f"{path}: record {name}: its duration is not known. Add gsub_{self.split}.json.")
            start, end = np.round(np.array(span) * duration, 1).tolist()
            span = (start, end)
        return {**values, "spans": [span]}

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """Two files in the folder `path`. A choice that could not be read is -1, a span that could not is left out."""
        pairs = self.answered(items, predictions)
        answers: dict[str, dict[str, int]] = {}
        for one in pairs:
            number = option_number(one)
            label = {} if one.item.reference is None else {"answer": LETTERS.index(one.labels["choice"])}
            answers[one.item.id] = {**label, "prediction": -1 if number is None else number}
        spans = {one.item.id: list(one.spans[0]) for one in pairs if one.spans}
        write_whole(
            {
                path / f"{self.split}-res.json": json.dumps(answers) + "\n",
                path / f"{self.split}_ground.json": json.dumps(spans) + "\n",
            }
        )

    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        check_labels(self, items)
        pairs = self.answered(items, predictions)
        scores = [self._item_score(one) for one in pairs]
        return tally(self, scores, *official(pairs, scores))

    @staticmethod
    def _item_score(one: Answered) -> ItemScore:
        iou, iop = best_overlaps(one.labels["spans"], one.spans[0]) if one.spans else (0.0, 0.0)
        return ItemScore(
            id=one.item.id,
            video=one.item.video,
            types=one.item.types,
            values={
                "Acc@GQA": right(one) * (iop >= 0.5),
                "Acc@QA": right(one),
                "mIoP": iop,
                **{f"IoP@{threshold}": float(iop >= threshold) for threshold in THRESHOLDS},
                "mIoU": iou,
                **{f"IoU@{threshold}": float(iou >= threshold) for threshold in THRESHOLDS},
            },
            failure=moment_failure(one),
        )


def official(pairs: Sequence[Answered], scores: Sequence[ItemScore]) -> tuple[Mapping[str, float], Sequence[str]]:
    """The values of the authors' `eval_ground.py` and `eval_next.py`, in percent, and what they differ in."""
    agreed = {one.item.id: _agrees_with_itself(one) for one in pairs}
    values: dict[str, float] = {}
    grounded = [(one, score) for one, score in zip(pairs, scores, strict=True) if one.spans]
    if grounded:
        joint = [agreed[one.item.id] and score.values["IoP@0.5"] == 1 for one, score in grounded]
        values["Acc@GQA"] = 100 * sum(joint) / len(grounded)
        for name in ("mIoP", "IoP@0.3", "IoP@0.5", "mIoU", "IoU@0.3", "IoU@0.5"):
            values[name] = 100 * sum(score.values[name] or 0.0 for _, score in grounded) / len(grounded)
    if any(one.read.values.keys() & {"choice", "prediction"} for one in pairs):
        members = Counter(kind for one in pairs for kind in one.item.types)
        hits = Counter(kind for one in pairs if agreed[one.item.id] for kind in one.item.types)
        values["Acc@QA"] = 100 * sum(agreed.values()) / len(pairs)
        values |= {f"Acc@QA {kind}": 100 * hits[kind] / members[kind] for kind in sorted(members)}
    return values, [*QUIRKS, *_other_labels(pairs)]


def _agrees_with_itself(one: Answered) -> bool:
    """Whether the prediction equals the answer that stands beside it; the label, where none does."""
    values = one.read.values
    if "claimed" in values:
        return values["claimed"] == values["prediction"]
    return right(one) == 1.0


def _other_labels(pairs: Sequence[Answered]) -> list[str]:
    other = [
        one.item.id
        for one in pairs
        if one.item.reference is not None
        and "claimed" in one.read.values
        and one.read.values["claimed"] != LETTERS.index(one.labels["choice"])
    ]
    return [f"The predictions file gives other right options than the labels: {names(other)}."] if other else []
