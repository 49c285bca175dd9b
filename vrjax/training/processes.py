"""What the processes of a run tell each other between programs: small numbers and texts, gathered from all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Float

T = TypeVar("T")


def gather(values: Sequence[float]) -> Float[np.ndarray, "processes n"]:
    """The same numbers of every process, one row each; every process must call this with as many."""
    row = np.asarray(values, np.float64)
    if jax.process_count() == 1:
        return row[None]
    from jax.experimental import multihost_utils

    # JAX gathers in its own default width: send the halves of each double.
    halves = np.frombuffer(row.tobytes(), np.uint32)
    found = np.asarray(multihost_utils.process_allgather(halves))
    return np.frombuffer(found.tobytes(), np.float64).reshape(jax.process_count(), -1)


def largest(values: Sequence[int]) -> tuple[int, ...]:
    """The largest of each number over all processes."""
    return tuple(int(value) for value in gather(values).max(0))


def total(values: Sequence[float]) -> tuple[float, ...]:
    """The sum of each number over all processes."""
    return tuple(float(value) for value in gather(values).sum(0))


def all_agree(value: bool) -> bool:
    """Whether it holds on every process."""
    return bool(gather([float(value)]).min())


def gather_texts(text: str) -> list[str]:
    """The text of every process; every process must call this."""
    if jax.process_count() == 1:
        return [text]
    from jax.experimental import multihost_utils

    mine = np.frombuffer(text.encode(), np.uint8)
    lengths = gather([len(mine)])[:, 0].astype(int)
    if not lengths.max():
        return [""] * len(lengths)
    found = np.asarray(multihost_utils.process_allgather(np.pad(mine, (0, lengths.max() - len(mine)))))
    return [row[:length].tobytes().decode() for row, length in zip(found.astype(np.uint8), lengths, strict=True)]


def union(names: Sequence[str]) -> list[str]:
    """All names that any process gave, sorted; the same list everywhere."""
    return sorted({name for text in gather_texts("\n".join(names)) for name in text.split("\n") if name})


def in_batch_order(parts: Sequence[Sequence[T]]) -> list[T]:
    """What each process has of its rows, in one list as the batch has them: process p of n reads every n-th from p on.

    Where a process has less than others (videos that cannot be read), the next takes its turn.
    """
    return [part[turn] for turn in range(max(map(len, parts), default=0)) for part in parts if turn < len(part)]


def own_rows(rows: Sequence[T], each: int) -> list[T]:
    """This process's of all rows of a batch, `each` of which belong to one prompt."""
    blocks = [rows[start : start + each] for start in range(0, len(rows), each)]
    return [row for block in blocks[jax.process_index() :: jax.process_count()] for row in block]
