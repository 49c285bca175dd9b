"""The journal of a policy run: every step's groups on disk before the update that uses them.

    rollouts/step_000012.p0.npz     tokens, log-probs and rewards of process 0's groups of step 12
    samples.jsonl                   the same for people: texts, rewards and their parts

Sampling and judging are what costs; an update is cheap. A killed run restarts from its last checkpoint, takes the
updates since then again from the journal, and so loses at most the step in flight. A journal can also be replayed into
another run (other mesh, other machine) to compare updates on the same responses. Whatever number of processes recorded
a step, any number can take it: each file says how many there are, and the groups are dealt out anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vrjax.errors import InputError, RunError
from vrjax.training.policy.groups import Group, group_arrays, group_from, group_row
from vrjax.training.policy.prompts import PromptItem
from vrjax.training.processes import in_batch_order

FOLDER, SAMPLES = "rollouts", "samples.jsonl"
_NAME = re.compile(r"step_(\d+)\.p(\d+)\.npz")


@dataclass(frozen=True)
class Journal:
    """Steps in `folder`, as process `process` of `processes` writes and reads them."""

    folder: Path
    process: int = 0
    processes: int = 1

    def path(self, step: int, process: int | None = None) -> Path:
        return self.folder / f"step_{step:06d}.p{self.process if process is None else process}.npz"

    def write(self, step: int, groups: Sequence[Group], note: Mapping[str, Any]) -> None:
        """Keep a step's groups and a note (JSON) beside them, whole or not at all. Raises RunError where that fails."""
        arrays = {
            f"{number}_{name}": array
            for number, group in enumerate(groups)
            for name, array in group_arrays(group).items()
        }
        content = {"step": step, "groups": [group_row(group) for group in groups], "note": dict(note)}
        path = self.path(step)
        partial = path.with_name(f".{path.name}.partial")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                encoded = np.frombuffer(json.dumps(content).encode(), np.uint8)
                np.savez(file, allow_pickle=False, content=encoded, processes=np.int32(self.processes), **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            raise RunError(
                f"{path}: cannot be written ({error.strerror}). Check the folder and the free space."
            ) from error

    def has(self, step: int) -> bool:
        """Whether the groups of all processes that recorded the step are there. Raises InputError as `read` does."""
        return self._recorded_by(step) > 0

    def _recorded_by(self, step: int) -> int:
        """How many processes recorded a step; 0 where a file is missing, or left over from another number of them."""
        count = self._count(step, 0)
        return count if all(self._count(step, process) == count for process in range(1, count)) else 0

    def _count(self, step: int, process: int) -> int:
        path = self.path(step, process)
        if not path.is_file():
            return 0
        with _opened(path) as file:
            return int(file["processes"])

    def read(self, step: int, item_of: Callable[[str], PromptItem]) -> tuple[list[Group], dict[str, Any]]:
        """This process's groups of a step and the note beside them; `has` must have said that it is there.

        item_of: the question of a name, its video decoded anew. Raises InputError where a file is damaged.
        """
        count = self._recorded_by(step)
        if count == self.processes:
            rows, note = self._rows(step, self.process)
        else:
            parts, notes = zip(*(self._rows(step, process) for process in range(count)), strict=True)
            rows = in_batch_order(parts)[self.process :: self.processes]
            damaged = [pair for each in notes for pair in each["damaged"]]
            dropped = sum(each["dropped"] for each in notes) if self.process == 0 else 0
            note = {**notes[0], "damaged": damaged[self.process :: self.processes], "dropped": dropped}
        return [group_from(item_of(row["name"]), row, arrays) for row, arrays in rows], note

    def _rows(self, step: int, process: int) -> tuple[list[tuple[dict[str, Any], dict[str, np.ndarray]]], Any]:
        """What one process recorded of a step: its groups as `group_row` and `group_arrays` have them, and the note."""
        with _opened(self.path(step, process)) as file:
            content = json.loads(file["content"].tobytes())
            names = ("tokens", "raw", "processed")
            rows = [(row, {name: file[f"{i}_{name}"] for name in names}) for i, row in enumerate(content["groups"])]
        return rows, content["note"]

    def prune(self, through: int) -> None:
        """Remove steps up to and with `through`, a checkpoint holds what they did: this process's, and its share of
        what a larger number of processes has left.
        """
        for file in self.folder.iterdir() if self.folder.is_dir() else ():
            match = _NAME.fullmatch(file.name)
            if match and int(match[1]) <= through and int(match[2]) % self.processes == self.process:
                file.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The arrays of a file. Raises InputError naming it where they, or what they say, cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}). Remove it; the step is then sampled again.") from error
