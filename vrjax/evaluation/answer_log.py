"""`answers.jsonl`: every answer on disk before the next is waited for. Safe to kill at any time.

One line an answer, appended and synced. A shard writes `answers.2-of-8.jsonl` beside it; whoever scores reads them all.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from vrjax.errors import InputError, RunError
from vrjax.evaluation.shards import Shard

# Kinds of failure that another try would not mend. All others are asked again when the evaluation is started again.
FINAL = frozenset({"video", "prompt", "refused", "no_answer"})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back for one item.

    text: verbatim, or None, and `error` says why in a sentence and `kind` in a word: "video" cannot be read, "prompt"
    cannot be put, "no_answer" was found by an agent that ended its work, or a kind of `llm.chat`. finished: the text
    ended by itself, not at max_tokens. notes: what was substituted (frames that a clip does not have, …).
    """

    id: str
    text: str | None = None
    error: str | None = None
    kind: str | None = None
    finished: bool = True
    notes: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Whether it stands: a text, or a failure that stays one."""
        return self.text is not None or self.kind in FINAL

    def as_row(self) -> dict[str, Any]:
        row = {name: value for name, value in asdict(self).items() if value is not None and value != ()}
        return {**row, "notes": list(self.notes)} if self.notes else row


class AnswerLog:
    """The log of one process, open for writing; a context manager.

    A last line that was cut short by a kill is taken away. Raises InputError where another process writes the file, or
    a line before the last is damaged; RunError where it cannot be written.
    """

    def __init__(self, folder: Path, shard: Shard | None = None) -> None:
        name = "answers.jsonl" if shard is None else f"answers.{shard.index}-of-{shard.count}.jsonl"
        self.path = folder / name
        self._file: IO[bytes] | None = None

    def __enter__(self) -> AnswerLog:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise InputError(
                    f"{self.path}: another process writes these answers. Wait for it, or use another directory."
                ) from None
            self._mend()
        except OSError as error:
            raise self._fault(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()  # and with it the lock
            self._file = None

    def append(self, answer: Answer) -> None:
        """Write one answer; it is on disk when this returns."""
        assert self._file is not None, "open the log first"
        line = json.dumps(answer.as_row()).encode() + b"\n"  # ASCII: lone surrogates stay what they are
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._fault(error) from error

    def _mend(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        content = self._file.read()
        tail = content[content.rfind(b"\n") + 1 :]
        if tail:
            if _parse(tail) is None:
                self._file.truncate(len(content) - len(tail))
            else:  # only its end was lost
                self._file.write(b"\n")
            self._file.flush()

    def _fault(self, error: OSError) -> RunError:
        return RunError(f"{self.path}: cannot be written ({error.strerror}). Check the folder and the free space.")


def read_answers(folder: Path) -> dict[str, Answer]:
    """All answers in a folder by item id, those of shards included.

    Of several about one item the first final one stands, else the last. A last line that is being written is left out.
    Raises InputError naming file and line where another is damaged.
    """
    found: dict[str, Answer] = {}
    for path in sorted(folder.glob("answers*.jsonl")):
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            answer = _parse(line)
            if answer is None:
                if number == len(lines):
                    continue
                raise InputError(f"{path}: line {number} is no answer. Remove the line; its question is asked again.")
            if answer.id not in found or not found[answer.id].final:
                found[answer.id] = answer
    return found


def _parse(line: bytes) -> Answer | None:
    try:
        row = json.loads(line)
        return Answer(**{**row, "notes": tuple(row.get("notes", ()))}) if _is_row(row) else None
    except (ValueError, TypeError, AttributeError):
        return None


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, Mapping)
        and isinstance(row.get("id"), str)
        and (isinstance(row.get("text"), str) or isinstance(row.get("error"), str))
    )
