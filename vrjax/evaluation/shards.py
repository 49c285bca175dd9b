"""Shares of an evaluation that run beside each other: `--shard i/n` in a job array, or the processes of JAX."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Item


@dataclass(frozen=True)
class Shard:
    """Share `index` of `count`, counted from 1. All questions about a video are in one share."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise InputError(f"the shard {self.index}/{self.count} is none: count from 1/{max(self.count, 1)}.")

    @staticmethod
    def parse(text: str) -> Shard:
        """Read `2/8`. Raises InputError for anything else."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if found is None:
            raise InputError(f"the shard {text!r} cannot be read. Write it as 2/8: the second of eight.")
        return Shard(int(found[1]), int(found[2]))

    @staticmethod
    def of_process() -> Shard | None:
        """This process's share where `jax.distributed` runs, else None. Starts no device where JAX is not loaded."""
        jax = sys.modules.get("jax")
        if jax is None or not jax.distributed.is_initialized() or jax.process_count() == 1:
            return None
        return Shard(jax.process_index() + 1, jax.process_count())

    def take(self, items: Sequence[Item]) -> list[Item]:
        """The items of this share: every `count`-th video, in the order of the items."""
        number = {video: place for place, video in enumerate(dict.fromkeys(item.video for item in items))}
        return [item for item in items if number[item.video] % self.count == self.index - 1]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"
