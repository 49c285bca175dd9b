"""The one schema: a video, the questions about it, and the evidence for their answers.

The JSON form is the one that EG-VQA was released in (github.com/HCPLab-SYSU/EG-VQA): a list of videos, each with
`metadata.segments` and `questions`. Unknown fields are kept, so that reading and writing a file loses nothing.
Times are seconds from the start of the video.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from vrjax.errors import InputError

QuestionType = Literal["descriptive", "temporal", "causal", "counterfactual"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class TimedText(_Record):
    """A stretch of the video and what happens in it: a segment of the annotation, or one piece of evidence.

    `timestamp` is (start, end) in seconds. The order of the two is not checked here: released files hold reversed
    spans, which curation and scoring name and count.
    """

    timestamp: tuple[float, float]
    description: str

    @property
    def start(self) -> float:
        return self.timestamp[0]

    @property
    def end(self) -> float:
        return self.timestamp[1]


class VideoMetadata(_Record):
    title: str = ""
    segments: tuple[TimedText, ...] = ()


class Question(_Record):
    """One question. `reasoning`, where present, is the text that SFT puts between `<think>` and `</think>`."""

    question_id: str
    question: str
    type: str = "descriptive"
    answer: str = ""
    evidence: tuple[TimedText, ...] = ()
    reasoning: str | None = None


class VideoRecord(_Record):
    video_id: str
    video_path: str
    duration: float
    data_source: str = ""
    metadata: VideoMetadata = VideoMetadata()
    questions: tuple[Question, ...] = ()

    @model_validator(mode="after")
    def _unique_question_ids(self) -> VideoRecord:
        seen: set[str] = set()
        for question in self.questions:
            if question.question_id in seen:
                raise ValueError(f"question_id {question.question_id!r} occurs twice")
            seen.add(question.question_id)
        return self


def first_problem(error: ValidationError) -> str:
    """The first fault of a pydantic error as `field.path: what is wrong`."""
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"]) or "record"
    return f"{where}: {fault['msg']}"


def load_json(path: str | Path, unique_keys: bool = False) -> Any:
    """Read a JSON file, or a JSON-lines file (`.jsonl`) as a list.

    Raises InputError naming the file, and the line where there is one, when it is missing or not JSON; with
    `unique_keys` also where an object has a key twice, of which JSON readers silently keep the last.
    """
    path = Path(path)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise InputError(f"{path}: the key {twice!r} occurs twice in one object. Keep one of the two.")
        return found

    hook = once if unique_keys else None
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}). Convert it to UTF-8.") from error
    try:
        if path.suffix == ".jsonl":
            rows = []
            for number, line in enumerate(text.splitlines(), 1):
                if line.strip():
                    try:
                        rows.append(json.loads(line, object_pairs_hook=hook))
                    except json.JSONDecodeError as error:
                        raise InputError(f"{path}: line {number} is not JSON ({error.msg}).") from error
            return rows
        return json.loads(text, object_pairs_hook=hook)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno} is not JSON ({error.msg}).") from error


def parse_records(rows: Any, where: str) -> list[VideoRecord]:
    """Validate a list of raw videos. Raises InputError naming `where`, the record and the field."""
    if not isinstance(rows, list):
        raise InputError(f"{where}: expected a list of videos, found {type(rows).__name__}.")
    records: list[VideoRecord] = []
    seen: set[str] = set()
    for number, row in enumerate(rows):
        name = row.get("video_id", f"number {number}") if isinstance(row, dict) else f"number {number}"
        try:
            record = VideoRecord.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{where}: record {name}: {first_problem(error)}. Correct the field.") from error
        if record.video_id in seen:
            raise InputError(f"{where}: video_id {record.video_id!r} occurs twice. Keep one of the two.")
        seen.add(record.video_id)
        records.append(record)
    return records


def load_records(path: str | Path) -> list[VideoRecord]:
    """Read an EG-VQA file (`.json` list or `.jsonl`)."""
    return parse_records(load_json(path), str(path))


def save_records(path: str | Path, records: Iterable[VideoRecord] | Sequence[VideoRecord]) -> None:
    """Write records as a JSON list, or one a line for `.jsonl`; fields that were never set stay out."""
    rows = [record.model_dump(mode="json", exclude_unset=True) for record in records]
    path = Path(path)
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        text = json.dumps(rows, ensure_ascii=False, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
