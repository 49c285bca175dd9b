"""From records to batches: Grain reads scheduled rows ahead, decoding videos, and hands out batches of one bucket.

The order is the schedule's; the iterator's state is the number of the next row of the run. Each process reads every
n-th row, so the state fits any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

import grain
import grain.experimental
import numpy as np
from jaxtyping import UInt8

from vrjax.errors import InputError, VideoError
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.prompts import Vision
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.records import VideoRecord
from vrjax.training.buckets import RowSize, padding_share
from vrjax.training.patch_cache import PatchCache
from vrjax.training.rows import PackedText, Rows, empty_text, empty_vision, pad_text, row_vision
from vrjax.training.schedule import EMPTY, Schedule
from vrjax.training.shared_rows import same_rows
from vrjax.training.survey import RowText, Survey, blind_vision
from vrjax.video import FramePlan

LoadPatches = Callable[[FramePlan], UInt8[np.ndarray, "S V"]]
_MESSAGE_BYTES = 400
_KEPT_TEXTS = 4096


@dataclass(frozen=True)
class Corpus:
    """Surveyed records, dataset after dataset, as rows by number.

    load: decodes a plan to patches (from several threads). Rows hold no pixels until they are read.
    """

    records: tuple[VideoRecord, ...]
    survey: Survey
    counts: tuple[int, ...]
    text: RowText
    load: LoadPatches
    cache: PatchCache | None = None

    @property
    def sizes(self) -> tuple[RowSize, ...]:
        return tuple(row.size for row in self.survey.rows)

    def vision(self, row: int) -> list[Vision]:
        """The video of a row. Raises VideoError where it cannot be read."""
        plan = self._plan(row)
        return Vision.of_plan(plan, self.patches(plan))

    def packed(self, row: int) -> PackedText:
        """The text side of a row, with features numbered as the prompt lists them."""
        entry = self.survey.rows[row]
        vision = blind_vision(self._plan(row))
        merge = self.text.config.vision.merge_size**2
        counts = [item.grid[0] * item.grid[1] * item.grid[2] // merge for item in vision]
        starts = np.cumsum([0, *counts])
        numbered = [np.arange(a, b, dtype=np.int32) for a, b in pairwise(starts)]
        return self.text.row(self.records[entry.record], entry.questions, vision, numbered)

    def _plan(self, row: int) -> FramePlan:
        plan = self.survey.plans[self.survey.rows[row].record]
        assert plan is not None
        return plan

    def patches(self, plan: FramePlan) -> UInt8[np.ndarray, "S V"]:
        """Decoded patches, from the cache where they are there. Raises VideoError where the video cannot be read."""
        if self.cache is None:
            return self.load(plan)
        found = self.cache.read(plan.hash, plan.patch_count)
        if found is None:
            found = self.load(plan)
            self.cache.write(plan.hash, found)
        return found


class TextSettings(Protocol):
    """What the text side of rows is made with."""

    @property
    def chat(self) -> ChatTokenizer: ...
    @property
    def config(self) -> Qwen2_5VLConfig: ...


class TrainingRows(Protocol):
    """Surveyed rows by number, with pixels only when they are read: a `Corpus`, or conversations."""

    @property
    def survey(self) -> Survey: ...
    @property
    def counts(self) -> tuple[int, ...]: ...
    @property
    def sizes(self) -> tuple[RowSize, ...]: ...
    @property
    def text(self) -> TextSettings: ...
    def vision(self, row: int) -> list[Vision]: ...
    def packed(self, row: int) -> PackedText: ...


class RowReader:
    """Grain's random-access source: element i is row i of the run, padded to its batch's bucket.

    An element is a dict: `rows` (Rows without a batch axis) and `damage` (bytes; empty where all is well). A row that
    cannot be read comes out empty, with weight 0.
    """

    def __init__(self, corpus: TrainingRows, schedule: Schedule, batches: int) -> None:
        self.corpus, self.schedule, self.batches = corpus, schedule, batches
        self._text = lru_cache(maxsize=_KEPT_TEXTS)(corpus.packed)

    def __len__(self) -> int:
        return self.batches * self.schedule.batch_size

    def __repr__(self) -> str:
        return f"RowReader({len(self)} rows)"

    def __getitem__(self, index: Any) -> dict[str, Any]:
        number, place = divmod(int(index), self.schedule.batch_size)
        batch = self.schedule.batch(number)
        bucket, row = self.schedule.buckets[batch.bucket], batch.rows[place]
        text, vision, damage = self._read(row, bucket)
        return {"rows": Rows(text, vision), "damage": np.array(damage.encode()[:_MESSAGE_BYTES], f"S{_MESSAGE_BYTES}")}

    def _read(self, row: int, bucket: RowSize) -> tuple[PackedText, Any, str]:
        text, damage = self.corpus.text, ""
        if row != EMPTY and self.corpus.survey.rows[row].questions:
            try:
                vision = self.corpus.vision(row)
                if not vision:
                    nothing = empty_vision(text.config.vision, bucket)
                    return pad_text(self._text(row), bucket, text.chat.pad_id), nothing, ""
                inputs, places = row_vision(vision, text.config.vision, bucket)
                return pad_text(self._with_places(row, places), bucket, text.chat.pad_id), inputs, ""
            except VideoError as error:
                damage = f"{error} ({error.kind})"
        nothing = self.empty(bucket)
        return nothing.text, nothing.vision, damage

    def empty(self, bucket: RowSize) -> Rows:
        """A row that trains nothing."""
        text = self.corpus.text
        return Rows(empty_text(bucket, text.chat.pad_id), empty_vision(text.config.vision, bucket))

    def _with_places(self, row: int, places: Sequence[np.ndarray]) -> PackedText:
        text = self._text(row)
        order = np.concatenate(places)
        index = np.where(text.feature_index >= 0, order[np.maximum(text.feature_index, 0)], -1)
        return replace(text, feature_index=index.astype(np.int32))


@dataclass(frozen=True)
class HostBatch:
    """This process's rows of one batch.

    number: of the batch in the run; epoch; rows: arrays [B / processes, …]; bucket: its size; names: record ids of the
    whole batch; damaged: (record id, message) of rows that could not be read here; padding: share of the tokens
    computed that are padding; state: of the iterator after this batch.
    """

    number: int
    epoch: int
    rows: Rows
    bucket: RowSize
    names: tuple[str, ...]
    damaged: tuple[tuple[str, str], ...]
    padding: float
    state: dict[str, Any]


def read_ahead(source: Any, batch_size: int, process: int, processes: int, threads: int) -> Any:
    """Grain's iterator over a random-access source, this process's share of each batch at a time.

    threads: each makes one batch, row by row; threads + 1 batches are read ahead.
    """
    return iter(
        grain.experimental.ElasticIterator(
            grain.MapDataset.source(source),
            batch_size,
            grain.sharding.ShardOptions(process, processes),
            read_options=grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + 1),
        )
    )


class BatchIterator(Iterator[HostBatch]):
    """Batches of a run in order, from batch 0 or from a saved state on; ends after `batches`."""

    def __init__(
        self,
        corpus: TrainingRows,
        schedule: Schedule,
        batches: int,
        *,
        process: int = 0,
        processes: int = 1,
        threads: int = 2,
        state: dict[str, Any] | None = None,
        holders: Sequence[Sequence[int]] = (),
    ) -> None:
        """process, processes: the share of each batch to read (`row_share`). threads: each makes one batch, row by row;
        threads + 1 batches are read ahead. holders: where several processes have the same share, the processes of each
        (`row_holders`); they then compare what they have read (`same_rows`).

        Raises InputError where processes do not divide the batch.
        """
        if schedule.batch_size % processes:
            raise InputError(
                f"batch_size {schedule.batch_size} is not divisible by {processes} processes. Change the batch size."
            )
        self._corpus, self._schedule, self._process, self._processes = corpus, schedule, process, processes
        self._reader, self._holders = RowReader(corpus, schedule, batches), holders
        self._iterator = read_ahead(self._reader, schedule.batch_size, process, processes, threads)
        if state is not None:
            self._iterator.set_state(state)

    def __next__(self) -> HostBatch:
        number = int(self._iterator.get_state()["global_next_index"]) // self._schedule.batch_size
        element = next(self._iterator)
        batch = self._schedule.batch(number)
        rows = self._corpus.survey.rows
        names = tuple("" if row == EMPTY else rows[row].name for row in batch.rows)
        mine = names[self._process :: self._processes]
        damaged = tuple(
            (name, message.decode(errors="replace"))
            for name, message in zip(mine, element["damage"], strict=True)
            if message
        )
        bucket = self._schedule.buckets[batch.bucket]
        sizes = [None if row == EMPTY or not rows[row].questions else rows[row].size for row in batch.rows]
        found = HostBatch(
            number,
            self._schedule.epoch_of(number),
            element["rows"],
            bucket,
            tuple(name for name in names if name),
            damaged,
            padding_share(sizes, [bucket] * len(sizes)),
            self._iterator.get_state(),
        )
        if not self._holders:
            return found
        read = [not message for message in element["damage"]]
        return same_rows(found, read, names, self._reader.empty(bucket), self._holders)

    def close(self) -> None:
        self._iterator.close()
