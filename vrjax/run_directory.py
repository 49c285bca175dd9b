"""A run directory explains itself and survives being killed at any time. Training and evaluation each write one.

config.json        the resolved configuration
environment.json   versions, commit, devices, command, variables of the launcher: one entry a start

of training:
model/             configuration and tokenizer of the model, no weights
survey.json        frame plans, row sizes and damaged records of the data
metrics.jsonl      one line a logged step
ledger.jsonl       every compiled program
damage.jsonl       damaged records met while training
tensorboard/       the metrics again
profile/           a trace of a few steps and their phases, where asked for
report.html        what `vrjax report` made of all this
checkpoints/
ended.json         the run has taken its last step (absent while it goes on, and after SIGTERM or a crash)

of evaluation: see `vrjax.evaluation.runner`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vrjax.errors import InputError, RunError
from vrjax.run_environment import environment

METRICS, LEDGER, DAMAGE, CONFIG, ENVIRONMENT, ENDED = (
    "metrics.jsonl",
    "ledger.jsonl",
    "damage.jsonl",
    "config.json",
    "environment.json",
    "ended.json",
)


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """Files of one run. Only process 0 writes (`writes`); the others read."""

    path: Path
    writes: bool = True

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_json(self, name: str, content: Any) -> None:
        """Write a whole file or nothing. Raises RunError naming it where that fails."""
        self.write_text(name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a whole file or nothing; lone surrogates, which model text can carry, become their JSON escapes.

        Raises RunError naming the file where that fails.
        """
        if not self.writes:
            return
        path = self.path / name
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")  # others may write the same file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise RunError(
                f"{path}: cannot be written ({error.strerror}). Check the folder and the free space."
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes that ask for the same out for a moment."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read_json(self, name: str) -> Any | None:
        """Content of a file, or None where it is not there. Raises InputError where it is not JSON."""
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}). Remove it, or use another run directory.") from error

    def append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to a `.jsonl` file. Raises RunError where that fails."""
        if not self.writes:
            return
        path = self.path / name
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise RunError(f"{path}: cannot be written ({error.strerror}). Check the free space.") from error

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """Rows of a `.jsonl` file; a last line that was cut short by a kill is left out."""
        try:
            lines = (self.path / name).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        rows = []
        for number, line in enumerate(lines):
            try:
                if line.strip():
                    rows.append(json.loads(line))
            except ValueError as error:
                if number < len(lines) - 1:
                    raise InputError(f"{self.path / name}: line {number + 1} is not JSON. Remove the line.") from error
        return rows

    def keep_until(self, name: str, step: int) -> None:
        """Drop the lines of a `.jsonl` file whose `step` lies past `step`: the run goes on from there."""
        if not self.writes or not (self.path / name).exists():
            return
        rows = [row for row in self.read_lines(name) if row.get("step", 0) <= step]
        partial = self.path / f".{name}.partial"
        partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        os.replace(partial, self.path / name)

    def check_config(self, config: Mapping[str, Any], free: Iterable[str] = ()) -> None:
        """Write `config.json`, or compare with the one that is there.

        free: names of top fields that may change between starts. Raises InputError naming the first other field that
        differs: a run cannot go on with other settings.
        """
        found = self.read_json(CONFIG)
        wanted = json.loads(json.dumps(config))
        if found is not None:
            free = set(free)
            for key in sorted({*found, *wanted} - free):
                if found.get(key) != wanted.get(key):
                    raise InputError(
                        f"{self.path}: holds a run whose {key} is {_short(found.get(key))}, not "
                        f"{_short(wanted.get(key))}. Restore the setting, or use another directory."
                    )
        if found != wanted:
            self.write_json(CONFIG, wanted)

    def record_environment(self) -> None:
        """Add this start to `environment.json`."""
        if not self.writes:
            return
        starts = self.read_json(ENVIRONMENT) or []
        self.write_json(ENVIRONMENT, [*starts, environment()])

    def mark_end(self, step: int) -> None:
        """Say in `ended.json` that the last step has been taken, so that whoever watches the run can leave."""
        self.write_json(ENDED, {"ended": "finished", "step": step, "at": time.strftime("%Y-%m-%dT%H:%M:%S%z")})

    def clear_end(self) -> None:
        """The run goes on: it has not ended."""
        if self.writes:
            (self.path / ENDED).unlink(missing_ok=True)

    def last_step(self) -> int | None:
        """The step after which the run ended; None while it goes on, was terminated or has crashed.

        Raises InputError where the mark is damaged.
        """
        mark = self.read_json(ENDED)
        return None if mark is None else int(mark["step"])


def resolved(value: Any) -> Any:
    """A configuration as JSON: dataclasses by field, with their type's name; functions by module and name.

    An object that has `settings` (a mapping) is shown by them, any other by its type and, where it has one, its `name`:
    never by its attributes, which may hold keys.
    """
    settings = getattr(value, "settings", None)
    if isinstance(settings, Mapping) and not isinstance(value, type):
        return {"type": type(value).__name__, **{str(key): resolved(item) for key, item in settings.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        fields = {name: resolved(getattr(value, name)) for name in shown}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(key): resolved(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [resolved(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    place = value if hasattr(value, "__qualname__") else type(value)
    name = getattr(value, "name", None)
    shown = f"{place.__module__}.{place.__qualname__}"
    return f"{shown} {name}" if isinstance(name, str) else shown


def digest(config: Any) -> str:
    """Sixteen digits that name a configuration."""
    return hashlib.sha256(json.dumps(resolved(config), sort_keys=True).encode()).hexdigest()[:16]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "…"
