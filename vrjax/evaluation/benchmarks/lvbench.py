"""LVBench: multiple choice about videos of an hour and more (Wang et al., 2024; github.com/THUDM/LVBench).

Data: `video_info.meta.jsonl`, one video a line with its questions. The options stand inside the question; an item
counts in each of its types. Audio and transcripts are not allowed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Item, Prediction
from vrjax.evaluation.multiple_choice import LETTERS, MultipleChoice, lettered, put
from vrjax.evaluation.official_files import (
    Row,
    Seconds,
    check_known,
    check_row,
    check_rows,
    check_unique,
    find,
    read_ids,
    read_json,
    write_whole,
)
from vrjax.evaluation.parsing import parse_spans
from vrjax.evaluation.predictions import Answered

OPTION = re.compile(r"^[ \t]*\(([A-Z])\)[ \t]*", re.MULTILINE)
ASSUMED_OPTIONS = 4
QUIRKS = (
    "The official accuracies are over the questions that the file answers, overall and by type; strictly one without "
    "an answer is wrong.",
)


class _Qa(Row):
    uid: str | int
    question: str
    question_type: list[str]
    answer: str | None = None
    time_reference: str | None = None


class _Info(Row):
    duration_minutes: Seconds | None = None


class _Video(Row):
    key: str
    qa: list[_Qa]
    video_info: _Info = _Info()


class _Letter(Row):
    answer: str


def split_options(question: str) -> tuple[str, dict[str, str]]:
    """The question without its options, and the options by letter.

    Where they are not (A), (B), … each on a line, the question stays whole, and the options have no texts.
    """
    marks = list(OPTION.finditer(question))
    letters = [mark[1] for mark in marks]
    if len(marks) < 2 or letters != list(LETTERS[: len(marks)]):
        return question, lettered([""] * ASSUMED_OPTIONS)
    stops = [*(mark.start() for mark in marks[1:]), len(question)]
    texts = [question[mark.end() : stop].strip() for mark, stop in zip(marks, stops, strict=True)]
    return question[: marks[0].start()].strip(), lettered(texts)


@dataclass(frozen=True, kw_only=True)
class LvBench(MultipleChoice):
    """held_out: a list of question ids (one a line, or JSON) that are left out of reading and scoring.

    LVBench has no training split, so a critic's examples come from such a list. A submission may still answer them.
    """

    name = "lvbench"
    speech = False
    held_out: Path | None = None

    def read(self, data: Path) -> list[Item]:
        path = data if data.is_file() else find(data, "video_info.meta.jsonl")
        videos = check_rows(path, read_json(path, list, "videos"), _Video, "key")
        items = [self._item(path, video, entry) for video in videos for entry in video.qa]
        check_unique(path, "uid", [item.id for item in items])
        left_out = self._left_out()
        return [item for item in items if item.id not in left_out]

    def _left_out(self) -> frozenset[str]:
        return read_ids(self.held_out) if self.held_out else frozenset()

    @staticmethod
    def _item(path: Path, video: _Video, entry: _Qa) -> Item:
        text, options = split_options(entry.question)
        if entry.answer and entry.answer not in options:
            raise InputError(
                f"{path}: record {entry.uid}: answer: {entry.answer!r} is none of {', '.join(options)}. "
                "Correct the record."
            )
        minutes = video.video_info.duration_minutes
        reference: Mapping[str, Any] | None = None
        if entry.answer:
            reference = {"choice": entry.answer, "spans": parse_spans(entry.time_reference or "")}
        return Item(
            id=str(entry.uid),
            video=video.key,
            question=text,
            options=options,
            types=tuple(entry.question_type),
            duration=None if minutes is None else 60 * minutes,
            reference=reference,
        )

    def question(self, item: Item) -> str:
        if any(item.options.values()):
            return super().question(item)
        return put(self.prompt, item)

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """A mapping from uid to letter. What is no letter is kept as it is, and is wrong."""
        content = read_json(path, dict, "answers")
        known = {item.id for item in items}
        check_known(path, content, known | self._left_out())
        rows = {name: check_row(path, name, {"answer": value}, _Letter) for name, value in content.items()}
        return [Prediction(id=name, parsed={"choice": row.answer}) for name, row in rows.items() if name in known]

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """Letters by uid; questions whose reply could not be read are left out."""
        answers = {one.item.id: one.choice for one in self.answered(items, predictions) if one.choice is not None}
        write_whole({path: json.dumps(answers, indent=1) + "\n"})

    def official(self, pairs: Sequence[Answered]) -> tuple[Mapping[str, float], Sequence[str]]:
        """As the authors' `compute_accuracy.py`, which compares texts: over the answered questions and by type."""
        given = [one for one in pairs if one.choice is not None]
        if not given:
            return {}, QUIRKS
        hits = [one for one in given if one.item.reference and one.choice == one.item.reference["choice"]]
        total, rights = (Counter(kind for one in chosen for kind in one.item.types) for chosen in (given, hits))
        by_type = {kind: rights[kind] / total[kind] for kind in sorted(total)}
        return {"accuracy": len(hits) / len(given), **by_type}, QUIRKS
