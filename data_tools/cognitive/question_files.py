"""Questions with their answers, read from the files of the supported datasets.

EG-VQA records          [{video_id, questions: [{question, answer}]}]
MovieCORE               {"clip.mp4": [{question, answer}]}, or the same as a list or a dict by id
MovieChat-1K            {"clip_1": {question, answer, video}}, or one file a clip: {global: […], breakpoint: […]}
ActivityNet-QA          test_q.json and test_a.json, either of which finds the other
EgoSchema               a list with `q_uid` and `option 0` …; answers from subset_answers.json beside it
NExT-GQA                a CSV file with `video_id, question, answer`
ReXTime                 rows with `query`, `options` and `ans`, the letter of one of the options
anything else           rows with `question` and `answer`, as JSON, JSON lines or CSV
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.records import load_json

VIDEO_FIELDS = ("video_id", "video", "video_name", "vid", "q_uid", "video_path")
LETTERS = "ABCDEFGH"
ANSWERS_OF_EGOSCHEMA = ("subset_answers.json", "egoschema_subset_answers.json")


@dataclass(frozen=True)
class QuestionAnswer:
    """video: what questions are clustered by. answer: None where the file holds none."""

    video: str
    question: str
    answer: str | None


def dataset_files(paths: Iterable[Path]) -> list[Path]:
    """The files in their order; of two that are one dataset (questions and answers of ActivityNet-QA) the questions'.

    Raises InputError where a file is given twice, or an answer file has no question file beside it.
    """
    found: list[Path] = []
    for path in paths:
        path = _partner(path, "_a", "_q") if path.stem.endswith("_a") and _is_answer_list(path) else path
        if path in found and not (path.stem.endswith("_q")):
            raise InputError(f"{path}: is given twice. Name each file once.")
        if path not in found:
            found.append(path)
    return found


def read_questions(path: Path) -> Iterator[QuestionAnswer]:
    """The questions of one dataset; JSON lines and CSV are read line by line.

    Raises InputError naming the file and the record where a question is missing or is no text, and where the file holds
    no questions.
    """
    empty = True
    for pair in _pairs(path):
        empty = False
        yield pair
    if empty:
        raise InputError(f"{path}: holds no questions. Check the file.")


def _pairs(path: Path) -> Iterator[QuestionAnswer]:
    if path.suffix == ".jsonl":
        yield from _rows(path, _lines(path))
    elif path.suffix == ".csv":
        yield from _rows(path, _table(path))
    else:
        yield from _from_json(path, load_json(path))


def _from_json(path: Path, content: Any) -> Iterator[QuestionAnswer]:
    if isinstance(content, list):
        first = content[0] if content and isinstance(content[0], dict) else {}
        if path.stem.endswith("_q") and "answer" not in first and "question_id" in first:
            yield from _activitynet_qa(path, content)
        elif "option 0" in first:
            yield from _egoschema(path, content)
        else:
            yield from _rows(path, _named(content))
    elif isinstance(content, dict) and "global" in content:  # one clip of MovieChat-1K
        asked = [*content["global"], *content.get("breakpoint", [])]
        yield from _rows(path, _keyed({path.stem: asked}))
    elif isinstance(content, dict):
        yield from _rows(path, _keyed(content))
    else:
        raise InputError(f"{path}: expected a list or an object with questions. Check the file.")


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"line {number}", json.loads(line.decode("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: line {number} is not UTF-8 text. Convert the file to UTF-8.") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {number} is not JSON ({error.msg}).") from error


def _table(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                yield f"line {number}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV ({error}). Check the file.") from error


def _named(rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(rows):
        given = (
            next((row[key] for key in ("question_id", "qid", *VIDEO_FIELDS) if row.get(key)), None)
            if (isinstance(row, dict))
            else None
        )
        yield (f"{given}" if given is not None else f"number {number}"), row


def _keyed(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, list):
            for number, row in enumerate(value):
                yield f"{key} number {number}", {"video": key, **row} if isinstance(row, dict) else row
        else:
            yield key, value


def _rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[QuestionAnswer]:
    for name, row in rows:
        if not isinstance(row, Mapping):
            raise InputError(f"{path}: record {name}: expected an object with a question. Correct the record.")
        video = next((str(row[field]) for field in VIDEO_FIELDS if row.get(field) not in (None, "")), name)
        asked = row.get("questions")
        if isinstance(asked, list):
            for number, one in enumerate(asked):
                if not isinstance(one, Mapping):
                    raise InputError(f"{path}: record {name}: question {number} is no object. Correct it.")
                yield _pair(path, one.get("question_id", f"{name} question {number}"), video, one)
        else:
            yield _pair(path, name, video, row)


def _pair(path: Path, name: object, video: str, row: Mapping[str, Any]) -> QuestionAnswer:
    question, answer = row.get("question", row.get("query")), row.get("answer")
    options, letter = row.get("options"), row.get("ans", answer)  # ReXTime: the letter of one of the options
    if isinstance(options, list) and isinstance(letter, str) and letter and letter in LETTERS[: len(options)]:
        answer = options[LETTERS.index(letter)]
    if not isinstance(question, str):
        raise InputError(
            f"{path}: record {name}: question: expected text, found {type(question).__name__}. "
            "Give a file with questions, or correct the record."
        )
    if isinstance(answer, bool | int | float):
        answer = str(answer)
    if answer is not None and not isinstance(answer, str):
        raise InputError(f"{path}: record {name}: answer: expected text, found {type(answer).__name__}. Correct it.")
    return QuestionAnswer(video, question, answer)


def _activitynet_qa(path: Path, questions: list[dict[str, Any]]) -> Iterator[QuestionAnswer]:
    answers_path = _partner(path, "_q", "_a")
    answers = {str(row.get("question_id")): row.get("answer") for row in _objects(answers_path)}
    for row in questions:
        name = str(row.get("question_id"))
        if name not in answers:
            raise InputError(f"{answers_path}: no answer to question {name} of {path.name}. Give files of one split.")
        video = str(row.get("video_name", name))
        yield _pair(path, name, video, {"question": row.get("question"), "answer": answers[name]})


def _egoschema(path: Path, questions: list[dict[str, Any]]) -> Iterator[QuestionAnswer]:
    answers: Mapping[str, Any] = {}
    for name in ANSWERS_OF_EGOSCHEMA:
        if (path.parent / name).is_file():
            answers = load_json(path.parent / name)
            break
    for row in questions:
        right = answers.get(str(row.get("q_uid")))
        answer = row.get("answer") if right is None else row.get(f"option {right}")
        yield _pair(path, row.get("q_uid"), str(row.get("q_uid")), {"question": row.get("question"), "answer": answer})


def _objects(path: Path) -> list[dict[str, Any]]:
    content = load_json(path)
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise InputError(f"{path}: expected a list of objects. Check the file.")
    return content


def _is_answer_list(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    rows = load_json(path)
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and "question" not in rows[0]


def _partner(path: Path, have: str, want: str) -> Path:
    partner = path.with_name(path.stem.removesuffix(have) + want + path.suffix)
    if not partner.is_file():
        raise InputError(f"{path}: its other half {partner.name} is not beside it. Put both into one folder.")
    return partner
