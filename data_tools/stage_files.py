"""Files between the stages of a dataset: JSON lines, whole or not there, and journals that go on after a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vrjax.errors import InputError, RunError
from vrjax.evaluation.official_files import write_whole
from vrjax.records import VideoRecord, first_problem, load_json, load_records

Row = dict[str, Any]
F = TypeVar("F", bound=BaseModel)


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as JSON lines. A lone surrogate, which no file can hold, is written as its escape."""
    return (
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "backslashreplace").decode()
    )


def write_rows(contents: Mapping[Path, Iterable[Mapping[str, Any]]]) -> None:
    """Write files of JSON lines, all of them or none."""
    write_whole({path: lines(rows) for path, rows in contents.items()})


def read_rows(path: Path, made_by: str = "") -> list[Row]:
    """The rows of a stage's file. made_by: the stage that writes it, for the message where it is missing."""
    if made_by and not path.is_file():
        raise InputError(f"{path}: is not there. Run the stage `{made_by}` first.")
    rows = load_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: expected one JSON object a line. Check the file.")
    return rows


def read_forms(path: Path, form: type[F], made_by: str = "") -> list[F]:
    """The rows of a stage's file, checked. Raises InputError naming the line and the field."""
    found = []
    for number, row in enumerate(read_rows(path, made_by), 1):
        try:
            found.append(form.model_validate(row))
        except ValidationError as error:
            raise InputError(f"{path}: line {number}: {first_problem(error)}. Correct the field.") from error
    return found


def records_of_stage(path: Path, made_by: str = "") -> list[VideoRecord]:
    """The records in a stage's file. made_by: the stage that writes it, for the message where it is missing."""
    if made_by and not path.is_file():
        raise InputError(f"{path}: is not there. Run the stage `{made_by}` first.")
    return load_records(path)


def record_rows(records: Iterable[VideoRecord]) -> list[Row]:
    """Records as rows, without fields that were never set."""
    return [record.model_dump(mode="json", exclude_unset=True) for record in records]


class Journal:
    """Results that were paid for, one line each, by `key`; on disk before the next is waited for.

    A last line that a kill cut short is taken off when the journal is opened. Of two lines with a key the later counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content):
                os.truncate(path, len(whole))
        except OSError as error:
            raise RunError(f"{path}: cannot be opened ({error.strerror}). Check the folder.") from error
        for number, line in enumerate(whole.split(b"\n"), 1):
            if line.strip():
                try:
                    row = json.loads(line)
                    self.rows[row["key"]] = row
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(
                        f"{path}: line {number} is damaged. Remove the line; it is asked again."
                    ) from error

    def add(self, row: Row) -> None:
        """Keep a row with its `key`. Raises RunError where the disk does not take it."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines([row]))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written ({error.strerror}). Check the free space.") from error
        self.rows[row["key"]] = row
