"""Rows that several processes hold: all of them train on the same pixels, or on none.

Where only the seq or tensor axis is cut among processes, each of them reads the same rows. A video that one reads and
another does not (a time limit, a copy that is cut off) would leave them with different rows of one batch, which no
program notices: each device would add its own part of something else.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np

from vrjax.errors import RunError
from vrjax.training.processes import gather
from vrjax.training.rows import Rows

if TYPE_CHECKING:
    from vrjax.training.data import HostBatch

UNREAD = 0.0


def same_rows(
    batch: HostBatch, read: Sequence[bool], names: Sequence[str], empty: Rows, holders: Sequence[Sequence[int]]
) -> HostBatch:
    """`batch` as all holders of its rows can have it; every process must call this.

    read: which of the rows that are here could be read; names: of all rows of the batch, "" where one holds nothing;
    empty: a row that trains nothing; holders: the processes of each part of the batch (`row_holders`). A row that one
    of them could not read is emptied here too, and counted as damaged. Raises RunError, on all processes, where two
    have read different things.
    """
    digests = [row_digest(batch.rows, row) if there else UNREAD for row, there in enumerate(read)]
    of_all = gather(digests)
    for part, group in enumerate(holders):
        found = of_all[list(group)]
        different = (found != UNREAD).all(0) & (found != found[0]).any(0)
        if different.any():
            name = names[part :: len(holders)][int(different.argmax())]
            raise RunError(
                f"record {name}: processes {', '.join(map(str, group))} train on it together, but have read different "
                "things. Compare its file, and the versions of the video reader, on their hosts."
            )
    part, mine = next((part, list(group)) for part, group in enumerate(holders) if jax.process_index() in group)
    lost = [row for row, there in enumerate(read) if there and (of_all[mine, row] == UNREAD).any()]
    if not lost:
        return batch
    damaged = []
    for row in lost:
        process = next(process for process in mine if of_all[process, row] == UNREAD)
        damaged.append((names[part :: len(holders)][row], f"process {process} could not read it"))
    return replace(batch, rows=emptied(batch.rows, lost, empty), damaged=(*batch.damaged, *damaged))


def row_digest(rows: Rows, row: int) -> float:
    """A number above UNREAD that names what a row holds, exact as a float64."""
    digest = 0
    for array in jax.tree.leaves(rows):
        digest = zlib.crc32(np.ascontiguousarray(array[row]).data, digest)
    return 1.0 + digest


def emptied(rows: Rows, which: Sequence[int], empty: Rows) -> Rows:
    """`rows` with those of the numbers `which` replaced by `empty`."""

    def put(array: np.ndarray, nothing: np.ndarray) -> np.ndarray:
        changed = np.array(array)
        changed[list(which)] = nothing
        return changed

    return jax.tree.map(put, rows, empty)
