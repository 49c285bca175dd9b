"""Annotations and submissions in the forms of their authors: finding, reading, checking and writing them.

Whatever is wrong is an InputError that names the file, the record and the field.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vrjax.errors import InputError, RunError
from vrjax.records import first_problem, load_json

SHOWN_IDS = 5

Seconds = float  # in a Row: neither text nor NaN
Window = Annotated[list[Seconds], Field(min_length=2)]
"""(start, end) in seconds; more numbers may follow (scores)."""


class Row(BaseModel):
    """One record of a file; unknown fields are passed over, text is not taken for a number."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


R = TypeVar("R", bound=Row)


def names(ids: Sequence[Any]) -> str:
    """The first few ids, and how many more there are."""
    shown = ", ".join(str(name) for name in ids[:SHOWN_IDS])
    return shown if len(ids) <= SHOWN_IDS else f"{shown} and {len(ids) - SHOWN_IDS} more"


def look_for(data: Path, *wanted: str) -> Path | None:
    """The first of `wanted` in a folder, under its own name or with something before it (`nextgqa_val.csv`).

    data: the folder, or a file in it. Raises InputError where several files fit one name.
    """
    folder = data if data.is_dir() else data.parent
    for name in wanted:
        if (folder / name).is_file():
            return folder / name
        found = sorted(folder.glob(f"*_{name}"))
        if len(found) > 1:
            raise InputError(f"{folder}: several files fit {name}: {names([path.name for path in found])}. Keep one.")
        if found:
            return found[0]
    return None


def find(data: Path, *wanted: str) -> Path:
    """`look_for`; InputError where there is none."""
    found = look_for(data, *wanted)
    if found is None:
        raise InputError(f"{data}: no {' or '.join(wanted)} there. Give the folder that holds it.")
    return found


def read_json(path: Path, kind: type | tuple[type, ...], what: str) -> Any:
    """A JSON file whose top is of the kind (list, dict) and is not empty; a key that is given twice is an error.

    what: what the file holds, for messages.
    """
    if path.is_file() and not path.read_bytes().strip():
        raise InputError(f"{path}: is empty. Check that the run that wrote it has finished.")
    content = load_json(path, unique_keys=True)
    if not isinstance(content, kind):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise InputError(
            f"{path}: expected {what} as a JSON {kinds}, found {type(content).__name__}. Correct the file."
        )
    if not content:
        raise InputError(f"{path}: holds no {what}. Check that the run that wrote it has finished.")
    return content


def read_rows(path: Path, row: type[R], key: str, what: str) -> list[R]:
    """The rows of a JSON list or JSON-lines file, each with its own `key`.

    Raises InputError for a field that is missing or of another type, and for an id that occurs twice.
    """
    return check_rows(path, read_json(path, list, what), row, key)


def read_table(path: Path, row: type[R]) -> list[R]:
    """The rows of a CSV file with a header; all fields are text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV ({error}). Check the file.") from error
    if not rows:
        raise InputError(f"{path}: holds no rows below its header. Check the file.")
    return [check_row(path, f"line {number}", entry, row) for number, entry in enumerate(rows, 2)]


def check_rows(path: Path, entries: Iterable[Any], row: type[R], key: str) -> list[R]:
    """`check_row` for each of a list; every `key` once."""
    rows = [
        check_row(path, entry.get(key, f"number {n}") if isinstance(entry, dict) else f"number {n}", entry, row)
        for n, entry in enumerate(entries)
    ]
    check_unique(path, key, [str(getattr(one, key)) for one in rows])
    return rows


def check_row(path: Path, name: object, entry: Any, row: type[R]) -> R:
    """One record as a Row. name: of the record, for messages."""
    try:
        return row.model_validate(entry)
    except ValidationError as error:
        problem = f"{path}: record {name}: {first_problem(error)}."
        if isinstance(entry, Mapping) and error.errors()[0]["type"] == "missing":
            problem += f" Its fields are {names(list(entry))}: is it of another benchmark?"
        raise InputError(f"{problem} Correct the record.") from error


def check_unique(path: Path, field: str, ids: Iterable[str]) -> None:
    """Raises InputError where an id occurs twice."""
    seen: set[str] = set()
    if twice := [name for name in ids if name in seen or seen.add(name)]:
        raise InputError(f"{path}: {field} occurs twice: {names(twice)}. Keep one record for each.")


def check_known(path: Path, ids: Iterable[str], known: Iterable[str]) -> None:
    """Raises InputError where an id is not one of the benchmark's."""
    known = set(known)
    if unknown := [name for name in ids if name not in known]:
        raise InputError(
            f"{path}: not among the questions: {names(unknown)}. "
            "Check that the file is of this benchmark and split, and holds no other one's records."
        )


def read_ids(path: Path) -> frozenset[str]:
    """A list of ids: one a line, a JSON list of texts, or EG-VQA records (their `video_id`)."""
    if path.suffix not in (".json", ".jsonl"):
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read as a list of ids ({error}). Check the file.") from error
        entries: list[Any] = [line.strip() for line in lines if line.strip()]
    else:
        entries = read_json(path, list, "ids")
    ids = [entry.get("video_id") if isinstance(entry, dict) else entry for entry in entries]
    texts = frozenset(entry for entry in ids if isinstance(entry, str))
    if bad := [entry for entry in ids if not isinstance(entry, str)]:
        raise InputError(f"{path}: {bad[0]!r} is no id. Give texts, or records with a video_id.")
    if not texts:
        raise InputError(f"{path}: holds no ids. Check the file.")
    return texts


_YOUTUBE = re.compile(r"(?:v_)?([\w-]{11})(?:_[0-9.]+_[0-9.]+)?")


def youtube_id(video: str) -> str:
    """The YouTube id in a video's name: ActivityNet writes `v_<id>`, QVHighlights `<id>_<start>_<end>`.

    Other names stay as they are.
    """
    match = _YOUTUBE.fullmatch(video)
    return match[1] if match else video


def write_whole(contents: Mapping[Path, str]) -> None:
    """Write files whole or not at all: none is put in place before all are on disk. RunError where that fails."""
    partials = {path.with_name(f".{path.name}.partial"): path for path in contents}
    try:
        for partial, path in partials.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("w", encoding="utf-8", newline="") as file:
                file.write(contents[path])
                file.flush()
                os.fsync(file.fileno())
        for partial, path in partials.items():
            os.replace(partial, path)
    except OSError as error:
        for partial in partials:
            with suppress(OSError):
                partial.unlink()
        where = names([str(path) for path in contents])
        raise RunError(
            f"{where}: cannot be written ({error.strerror}). Check the folder and the free space."
        ) from error
