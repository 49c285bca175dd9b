"""Which rows form which batch: a pure function of (seed, position), so that a run can go on exactly where it stopped.

Rows are shuffled anew every epoch and, with several datasets, mixed by weight (both by Grain, on row numbers). The
stream is cut into blocks of one epoch; within a block rows are gathered by bucket into batches, and the batches are
shuffled. What does not fill a batch moves to a larger bucket, at last to a batch filled up with empty rows. With one
dataset every row occurs exactly once a block.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import grain
import numpy as np

from vrjax.errors import InputError
from vrjax.training.buckets import RowSize, choose_bucket

EMPTY = -1
_BATCH_ORDER = 1  # stream of random numbers beside Grain's own
_KEPT_BLOCKS = 4


@dataclass(frozen=True)
class ScheduledBatch:
    """rows: row numbers, EMPTY where the batch is filled up; bucket: index of the size that they are padded to."""

    rows: tuple[int, ...]
    bucket: int


class Schedule:
    """The endless series of batches of a run."""

    def __init__(
        self,
        sizes: Sequence[RowSize],
        counts: Sequence[int],
        weights: Sequence[float],
        buckets: Sequence[RowSize],
        batch_size: int,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        """sizes: of all rows, dataset after dataset; counts: rows of each dataset; weights: their shares in the mix.

        Raises InputError for a batch size, counts or weights that cannot be met.
        """
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        if len(counts) != len(weights) or min(counts, default=0) < 1 or sum(counts) != len(sizes):
            raise InputError(f"every dataset needs rows and a weight; rows {tuple(counts)}, weights {tuple(weights)}.")
        if min(weights) <= 0:
            raise InputError(f"weights of datasets must be above 0, not {tuple(weights)}. Take a dataset out instead.")
        self.buckets, self.batch_size, self.seed, self.shuffle = tuple(buckets), batch_size, seed, shuffle
        self.block_rows = len(sizes)
        self._bucket_of_row = [choose_bucket(size, buckets) for size in sizes]
        self._stream = _row_stream(counts, weights, seed, shuffle)
        self._lock = threading.RLock()  # rows are read ahead in threads
        self._starts = [0]  # number of the first batch of each block so far
        self._blocks: dict[int, tuple[ScheduledBatch, ...]] = {}

    def block(self, number: int) -> tuple[ScheduledBatch, ...]:
        """All batches of one block (epoch); their number may differ from block to block."""
        with self._lock:
            if number not in self._blocks:
                if len(self._blocks) >= _KEPT_BLOCKS:
                    self._blocks.pop(min(self._blocks))
                self._blocks[number] = self._make_block(number)
            return self._blocks[number]

    def epoch_of(self, number: int) -> int:
        """The block that batch `number` of the run belongs to."""
        with self._lock:
            while self._starts[-1] <= number:
                self._starts.append(self._starts[-1] + len(self.block(len(self._starts) - 1)))
            return bisect_right(self._starts, number) - 1

    def batch(self, number: int) -> ScheduledBatch:
        """Batch `number` of the run, counted over blocks."""
        block = self.epoch_of(number)
        return self.block(block)[number - self._starts[block]]

    def batches_in(self, blocks: int) -> int:
        """How many batches the first `blocks` blocks hold."""
        return sum(len(self.block(number)) for number in range(blocks))

    def _make_block(self, number: int) -> tuple[ScheduledBatch, ...]:
        size, start = self.batch_size, number * self.block_rows
        waiting: list[list[int]] = [[] for _ in self.buckets]
        for position in range(start, start + self.block_rows):
            row = self._stream[position]
            assert row is not None  # rows are never filtered
            waiting[self._bucket_of_row[row]].append(row)
        batches: list[ScheduledBatch] = []
        for index, bucket in enumerate(self.buckets):
            rows = waiting[index]
            whole = len(rows) // size * size
            batches.extend(ScheduledBatch(tuple(rows[at : at + size]), index) for at in range(0, whole, size))
            rest = rows[whole:]
            larger = [later for later in range(index + 1, len(self.buckets)) if self.buckets[later].holds(bucket)]
            if rest and larger:
                waiting[larger[0]].extend(rest)
            elif rest:
                batches.append(ScheduledBatch((*rest, *[EMPTY] * (size - len(rest))), index))
        if not self.shuffle:
            return tuple(batches)
        order = np.random.default_rng([self.seed, _BATCH_ORDER, number]).permutation(len(batches))
        return tuple(batches[index] for index in order)


def _row_stream(counts: Sequence[int], weights: Sequence[float], seed: int, shuffle: bool) -> grain.MapDataset[int]:
    """Row numbers without end: each dataset reshuffled every epoch of its own, the datasets in turn by weight."""
    streams, first = [], 0
    for number, count in enumerate(counts):
        stream = grain.MapDataset.source(range(first, first + count))
        if shuffle:
            stream = stream.seed((seed * 1009 + number) % 2**32).shuffle()
        streams.append(stream.repeat())
        first += count
    return streams[0] if len(streams) == 1 else grain.MapDataset.mix(streams, [float(weight) for weight in weights])
