"""EgoSchema: five options about three minutes seen from the head (Mangalam et al., NeurIPS 2023; egoschema/EgoSchema).

Data: `questions.json` (5,031), `subset_answers.json` (the 500 public answers), `uid_to_ego4d.json` (which Ego4D video
a clip was cut from: questions of one video are one cluster). The rest is scored by the authors' server alone.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Item, Prediction
from vrjax.evaluation.benchmarks.neptune import numbered
from vrjax.evaluation.multiple_choice import LETTERS, MultipleChoice, lettered, option_number, right
from vrjax.evaluation.official_files import (
    Row,
    Seconds,
    check_known,
    check_row,
    check_unique,
    find,
    look_for,
    names,
    read_json,
    read_rows,
    read_table,
    write_whole,
)
from vrjax.evaluation.predictions import Answered

OPTIONS = 5


class _Question(Row):
    q_uid: str
    question: str
    option_0: str = Field(alias="option 0")
    option_1: str = Field(alias="option 1")
    option_2: str = Field(alias="option 2")
    option_3: str = Field(alias="option 3")
    option_4: str = Field(alias="option 4")


class _Clip(Row):
    video_uid: str
    starting_sec: Seconds
    ending_sec: Seconds


class _Number(Row):
    answer: int


class _Line(Row):
    q_uid: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class EgoSchema(MultipleChoice):
    """split: `subset`, the questions with public answers; `full`, all of them, for a submission."""

    name = "egoschema"
    split: Literal["subset", "full"] = "subset"

    def read(self, data: Path) -> list[Item]:
        """Questions; where `questions.json` is missing, those of the public answers, without texts, to be scored."""
        folder = data if data.is_dir() else data.parent
        answers_file = (find if self.split == "subset" else look_for)(folder, "subset_answers.json")
        questions_file = (find if self.split == "full" else look_for)(folder, "questions.json")
        clips_file = look_for(folder, "uid_to_ego4d.json")
        answers = {name: _answer(path, name, value) for path, name, value in _entries(answers_file)}
        clips = {name: check_row(path, name, value, _Clip) for path, name, value in _entries(clips_file)}
        rows = read_rows(questions_file, _Question, "q_uid", "questions") if questions_file else []
        by_id = {row.q_uid: row for row in rows}
        if questions_file and (unknown := [name for name in answers if name not in by_id]):
            raise InputError(
                f"{answers_file}: not in {questions_file.name}: {names(unknown)}. Take files that belong together."
            )
        chosen = answers if self.split == "subset" else by_id
        return [_item(name, by_id.get(name), answers.get(name), clips.get(name)) for name in chosen]

    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """The server's JSON (uid to number of the option), or Kaggle's CSV (`q_uid,answer`)."""
        known = {item.id for item in items}
        if path.suffix == ".csv":
            lines = read_table(path, _Line)
            check_unique(path, "q_uid", [line.q_uid for line in lines])
            content = {line.q_uid: _whole_number(line.answer) for line in lines}
        else:
            content = read_json(path, dict, "answers")
        check_known(path, content, known)
        rows = {name: check_row(path, name, {"answer": value}, _Number) for name, value in content.items()}
        return [numbered(name, row.answer) for name, row in rows.items()]

    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """JSON for the server, or for a path that ends in .csv Kaggle's form; a reply that could not be read is -1."""
        chosen = {one.item.id: option_number(one) for one in self.answered(items, predictions)}
        numbers = {name: -1 if number is None else number for name, number in chosen.items()}
        text = json.dumps(numbers, indent=1) + "\n"
        if path.suffix == ".csv":
            table = io.StringIO()
            csv.writer(table, lineterminator="\n").writerows([("q_uid", "answer"), *numbers.items()])
            text = table.getvalue()
        write_whole({path: text})

    def official(self, pairs: Sequence[Answered]) -> tuple[Mapping[str, float], Sequence[str]]:
        """Accuracy over the questions with public answers, as the server returns it for them."""
        return {"accuracy": sum(map(right, pairs)) / len(pairs)}, ()


def _entries(path: Path | None) -> list[tuple[Path, str, Any]]:
    return [(path, name, value) for name, value in read_json(path, dict, "questions").items()] if path else []


def _answer(path: Path, name: str, value: Any) -> str:
    number = check_row(path, name, {"answer": value}, _Number).answer
    if not 0 <= number < OPTIONS:
        raise InputError(f"{path}: record {name}: answer: {number} is none of 0 to {OPTIONS - 1}. Correct the record.")
    return LETTERS[number]


def _whole_number(text: str) -> int | str:
    return int(text) if text.strip().lstrip("-").isdecimal() else text


def _item(name: str, row: _Question | None, answer: str | None, clip: _Clip | None) -> Item:
    texts = [getattr(row, f"option_{n}") if row else "" for n in range(OPTIONS)]
    return Item(
        id=name,
        video=clip.video_uid if clip else name,
        question=row.question if row else "",
        options=lettered(texts),
        duration=clip.ending_sec - clip.starting_sec if clip else None,
        video_file=name,
        reference=None if answer is None else {"choice": answer},
    )
