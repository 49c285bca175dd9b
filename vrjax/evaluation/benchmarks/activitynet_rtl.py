"""ActivityNet-RTL: when does it happen, where the answer takes reasoning (Huang et al., ECCV 2024; NVlabs/LITA).

Data: the validation list (`annot_val_1_q229.json`), or the training file (videos with `QA`). Answers are written
`<start> <end> explanation`, in seconds. IoU is overlap over union; P@0.5 the share with IoU of at least .5.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, ItemScore, Parsed, Prediction, PromptForm, Tools
from vrjax.evaluation.multiple_choice import put
from vrjax.evaluation.official_files import (
    Row,
    Seconds,
    Window,
    check_known,
    check_row,
    check_rows,
    read_json,
    read_rows,
    write_whole,
)
from vrjax.evaluation.parsing import read_marked_seconds, read_spans
from vrjax.evaluation.predictions import Answered, answered, check_labels
from vrjax.evaluation.tally import tally

MARKED_SECONDS = PromptForm(
    name="marked seconds",
    version=1,
    template="{question}\nReply with the start and the end of that moment in seconds between angle brackets, such as "
    "<12.5> <20.0>, and one sentence that says why.",
)
QUIRKS = (
    "The official scorer takes the whole video where a reply has fewer than two <seconds>, or there is none; strictly "
    "it is wrong.",
    "Official mIoU and P@0.5 are means per video, then over videos; those with `items` are means over questions. "
    "Strict values are means over questions.",
    "Times in other clear forms (12.5 to 20 s, 00:12-00:20) count strictly, and not officially.",
)


class _Question(Row):
    question_id: str
    vid: str
    duration: Seconds
    question: str
    answer: str | None = None


class _Pair(Row):
    q: str
    a: str


class _Video(Row):
    duration: Seconds
    QA: list[_Pair]


class _Metadata(Row):
    timestamps: Window | None = None


class _Submitted(Row):
    question_id: str
    text_out: str
    metadata: _Metadata = _Metadata()


def union_iou(first: Sequence[float], second: Sequence[float]) -> float:
    """Overlap over union of two spans in seconds; 0 where the union has no length."""
    overlap = max(min(first[1], second[1]) - max(first[0], second[0]), 0.0)
    union = (first[1] - first[0]) + (second[1] - second[0]) - overlap
    return overlap / union if union else 0.0


@dataclass(frozen=True, kw_only=True)
class ActivityNetRtl(Benchmark):
    """localisation_only: leave out training questions whose answer holds no times (they ask why, not when).

    Where it is off they are questions without a label, which cannot be scored.
    """

    name = "activitynet_rtl"
    headline = "mIoU"
    submission = "answers.json"
    answering = "P@0.5"
    table = MappingProxyType({"mIoU": "mIoU", "P@0.5": "P@0.5", "mIoU over items": "mIoU items"})
    localisation_only: bool = True
    prompt: PromptForm = MARKED_SECONDS

    def read(self, data: Path) -> list[Item]:
        path = _question_file(data) if data.is_dir() else data
        content = read_json(path, (list, dict), "questions")
        if isinstance(content, list):
            rows = check_rows(path, content, _Question, "question_id")
            return [_item(path, row, row.vid, f"v_{row.vid}") for row in rows]
        items = []
        for key, entry in content.items():
            video = check_row(path, key, entry, _Video)
            for number, pair in enumerate(video.QA):
                answer = pair.a if read_marked_seconds(pair.a, video.duration)[1] else None
                if answer is None and self.localisation_only:
                    continue
                name = key.removeprefix("v_")
                row = _Question(
                    question_id=f"{name}_{number}", vid=name, duration=video.duration, question=pair.q, answer=answer
                )
                items.append(_item(path, row, name, key))
        return items

    def question(self, item: Item) -> str:
        return put(self.prompt, item)

    def parse(self, item: Item, text: str) -> Parsed:
        """Two `<seconds>`, else a time range in another form."""
        _, span = read_marked_seconds(text, _length(item))
        return Parsed(values={"spans": [span], "marked": True}) if span else read_spans(text)

    def answered(self, items: Sequence[Item], predictions: Sequence[Prediction]) -> list[Answered]:
        """Each question with its prediction."""
        return answered(self, items, predictions, ("spans",))

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """The `answers.json` of the authors' script. It takes the times out of `text_out`, and keeps them nowhere.

        So they must stand in `metadata.timestamps`, where `write_submission` puts them, or be left in `text_out`.
        """
        rows = read_rows(path, _Submitted, "question_id", "answers")
        check_known(path, [row.question_id for row in rows], [item.id for item in items])
        by_id = {item.id: item for item in items}
        found = []
        for row in rows:
            times = row.metadata.timestamps
            parsed = {"spans": [_clamped(times, by_id[row.question_id])], "marked": True} if times else {}
            found.append(Prediction(id=row.question_id, text=row.text_out, parsed=parsed))
        if not any(one.read.values for one in self.answered(items, found)):
            raise InputError(
                f"{path}: no answer has times: the authors' script takes them out of text_out. "
                "Leave them in, or write them to metadata.timestamps."
            )
        return found

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """As the authors' script writes it, with the times in `metadata.timestamps` as well."""
        rows = [_row(one) for one in self.answered(items, predictions)]
        write_whole({path: json.dumps(rows, ensure_ascii=False, indent=1) + "\n"})

    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        check_labels(self, items)
        pairs = self.answered(items, predictions)
        return tally(self, [_item_score(one) for one in pairs], official(pairs), QUIRKS)


def _question_file(folder: Path) -> Path:
    found = sorted(folder.glob("*annot_val*.json"))
    if len(found) != 1:
        raise InputError(f"{folder}: holds {len(found)} files named annot_val…json. Give the file itself.")
    return found[0]


def _item(path: Path, row: _Question, video: str, video_file: str) -> Item:
    reference = None
    if row.answer:
        explanation, span = read_marked_seconds(row.answer, row.duration)
        if span is None:
            raise InputError(
                f"{path}: record {row.question_id}: answer: fewer than two <seconds> in {row.answer!r}. "
                "Correct the record."
            )
        reference = {"spans": [span], "explanation": explanation}
    return Item(
        id=row.question_id,
        video=video,
        question=row.question,
        duration=row.duration,
        video_file=video_file,
        reference=reference,
    )


def _length(item: Item) -> float:
    """Seconds of the video."""
    if item.duration is None:
        raise InputError(f"question {item.id}: its video's duration is not known. Add `duration` to the data.")
    return item.duration


def _clamped(times: Sequence[float], item: Item) -> tuple[float, float]:
    """The first two times, within the video and in order."""
    start, end = sorted(min(max(time, 0.0), _length(item)) for time in times[:2])
    return start, end


def _is_marked(one: Answered) -> bool:
    """Whether the times are `<seconds>`, or were given without a reply, as by an agent."""
    return bool(one.spans) and one.read.values.get("marked", one.prediction is None or one.prediction.text is None)


def _row(one: Answered) -> dict[str, Any]:
    item, text = one.item, (one.prediction.text if one.prediction else None) or ""
    return {
        "question_id": item.id,
        "prompt": item.question,
        "text_out": read_marked_seconds(text, _length(item))[0],
        "text_gnd": "" if item.reference is None else item.reference["explanation"],
        "answer_id": item.id,
        "model_id": "vrjax",
        "metadata": {"timestamps": list(_clamped(one.spans[0], item))} if _is_marked(one) else {},
    }


def _item_score(one: Answered) -> ItemScore:
    iou = union_iou(_clamped(one.spans[0], one.item), one.labels["spans"][0]) if one.spans else 0.0
    return ItemScore(
        id=one.item.id,
        video=one.item.video,
        types=one.item.types,
        values={"mIoU": iou, "P@0.5": float(iou >= 0.5)},
        failure=one.read.failure,
    )


def official(pairs: Sequence[Answered]) -> dict[str, float]:
    """The values of the authors' `eval_model_rtl.py`, as fractions; those over items are CAViAR's."""
    by_video: dict[str, list[float]] = {}
    for one in pairs:
        span = _clamped(one.spans[0], one.item) if _is_marked(one) else (0.0, _length(one.item))
        by_video.setdefault(one.item.video, []).append(union_iou(span, one.labels["spans"][0]))
    videos = [np.array(values) for values in by_video.values()]
    every = np.concatenate(videos)
    return {
        "mIoU": float(np.mean([values.mean() for values in videos])),
        "P@0.5": float(np.mean([(values >= 0.5).mean() for values in videos])),
        "mIoU items": float(every.mean()),
        "P@0.5 items": float((every >= 0.5).mean()),
    }
