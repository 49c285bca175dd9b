"""The journal of a policy run: every step's groups on disk before the update that uses them.

    rollouts/step_000012.p0.npz     tokens, log-probs and rewards of process 0's groups of step 12
    samples.jsonl                   the same for people: texts, rewards and their parts

Sampling and judging are what costs; an update is cheap. A killed run restarts from its last checkpoint, takes the
updates since then again from the journal, and so loses at most the step in flight. A journal can also be replayed into
another run (other mesh, other machine) to compare updates on the same responses.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vrjax.errors import InputError, RunError
from vrjax.training.policy.groups import Group, group_arrays, group_from, group_row
from vrjax.training.policy.prompts import PromptItem

FOLDER, SAMPLES = "rollouts", "samples.jsonl"
_NAME = re.compile(r"step_(\d+)\.p(\d+)\.npz")


@dataclass(frozen=True)
class Journal:
    """Steps of one process in `folder`."""

    folder: Path
    process: int

    def path(self, step: int) -> Path:
        return self.folder / f"step_{step:06d}.p{self.process}.npz"

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
                np.savez(
                    file, allow_pickle=False, content=np.frombuffer(json.dumps(content).encode(), np.uint8), **arrays
                )
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            raise RunError(
                f"{path}: cannot be written ({error.strerror}). Check the folder and the free space."
            ) from error

    def has(self, step: int) -> bool:
        return self.path(step).is_file()

    def read(self, step: int, item_of: Callable[[str], PromptItem]) -> tuple[list[Group], dict[str, Any]]:
        """A step's groups and the note beside them. item_of: the question of a name, its video decoded anew.

        Raises InputError where the file is damaged.
        """
        path = self.path(step)
        try:
            with np.load(path, allow_pickle=False) as file:
                content = json.loads(file["content"].tobytes())
                groups = []
                for number, row in enumerate(content["groups"]):
                    arrays = {name: file[f"{number}_{name}"] for name in ("tokens", "raw", "processed")}
                    groups.append(group_from(item_of(row["name"]), row, arrays))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path}: cannot be read ({error}). Remove it; the step is then sampled again.") from error
        return groups, content["note"]

    def prune(self, through: int) -> None:
        """Remove this process's steps up to and with `through`: a checkpoint holds what they did."""
        for step in self.steps():
            if step <= through:
                self.path(step).unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Steps that are kept, ascending."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(file.name) for file in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match and int(match[2]) == self.process)
