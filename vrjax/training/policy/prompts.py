"""The prompts of a policy run: Grain reads scheduled questions ahead, decoding their videos.

The order is the schedule's, as in supervised fine-tuning: a row is one question. The iterator's state is the number of
the next row of the run, whatever the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vrjax.errors import InputError, VideoError
from vrjax.generation.prompts import Prompt, Vision, build_prompt
from vrjax.records import Question, VideoRecord
from vrjax.training.buckets import RowSize
from vrjax.training.data import Corpus, read_ahead
from vrjax.training.schedule import EMPTY, Schedule
from vrjax.training.survey import Damage, RowText, Unusable


@dataclass(frozen=True)
class QuestionText(RowText):
    """Turns a question into a prompt that all its responses share whole; room is kept for the longest response."""

    response_tokens: int = 1024

    def pair(self, record: VideoRecord, number: int, vision: Sequence[Vision]) -> tuple[Prompt, list[int]]:
        """The prompt, and padding of the longest response's length: what a row is measured by."""
        question = record.questions[number]
        if not question.question.strip():
            raise Unusable(Damage.EMPTY_QUESTION, "the question is empty. Fill it in, or leave it out.")
        try:
            prompt = build_prompt(
                self.chat,
                self.config,
                question.question,
                vision,
                instruction=self.template.instruction_text,
                name=f"{record.video_id}/{question.question_id}",
            )
        except InputError as error:
            raise Unusable(Damage.CONTROL_TOKENS, str(error)) from error
        if len(prompt) + self.response_tokens > self.max_length:
            raise Unusable(
                Damage.PROMPT_TOO_LONG,
                f"prompt ({len(prompt)} tokens) and a response of up to {self.response_tokens} exceed "
                f"{self.max_length} together. Use fewer frames, a lower max_pixels or a smaller rollout.max_tokens.",
            )
        return replace(prompt, trunk=len(prompt)), [self.chat.pad_id] * self.response_tokens


@dataclass(frozen=True)
class PromptItem:
    """One question, ready to be asked; `prompt` is None where its video could not be read, and `damage` says why."""

    record: VideoRecord
    question: Question
    prompt: Prompt | None
    damage: str = ""

    @property
    def name(self) -> str:
        return f"{self.record.video_id}/{self.question.question_id}"


class PromptReader:
    """Grain's random-access source: element i is row i of the run, or an empty one, as a 0-d object array."""

    def __init__(self, corpus: Corpus, schedule: Schedule, batches: int) -> None:
        self.corpus, self.schedule, self.batches = corpus, schedule, batches

    def __len__(self) -> int:
        return self.batches * self.schedule.batch_size

    def __repr__(self) -> str:
        return f"PromptReader({len(self)} rows)"

    def __getitem__(self, index: Any) -> np.ndarray:
        number, place = divmod(int(index), self.schedule.batch_size)
        element = np.empty((), object)
        element[()] = self._read(self.schedule.batch(number).rows[place])
        return element

    def _read(self, row: int) -> PromptItem | None:
        return None if row == EMPTY else read_prompt(self.corpus, row)


def read_prompt(corpus: Corpus, row: int) -> PromptItem | None:
    """The question of a row, its video decoded; None where the row holds none that can be asked."""
    survey = corpus.survey
    if not survey.rows[row].questions:
        return None
    entry = survey.rows[row]
    record, plan = corpus.records[entry.record], survey.plans[entry.record]
    assert plan is not None  # the row would have no question
    question = record.questions[entry.questions[0]]
    try:
        vision = Vision.of_plan(plan, corpus.patches(plan))
    except VideoError as error:
        return PromptItem(record, question, None, f"{error} ({error.kind})")
    return PromptItem(record, question, corpus.text.pair(record, entry.questions[0], vision)[0])


@dataclass(frozen=True)
class PromptBatch:
    """This process's questions of one batch. bucket: that holds them all; state: of the iterator after this batch."""

    number: int
    epoch: int
    items: tuple[PromptItem, ...]
    bucket: RowSize
    state: dict[str, Any]


class PromptIterator(Iterator[PromptBatch]):
    """Batches of questions in order, from the first or from a saved state on."""

    def __init__(
        self,
        corpus: Corpus,
        schedule: Schedule,
        batches: int,
        *,
        process: int = 0,
        processes: int = 1,
        threads: int = 2,
        state: dict[str, Any] | None = None,
    ) -> None:
        """Raises InputError where processes do not divide the batch."""
        if schedule.batch_size % processes:
            raise InputError(
                f"rollout.prompts {schedule.batch_size} is not divisible by {processes} processes. Change the number."
            )
        self._schedule = schedule
        reader = PromptReader(corpus, schedule, batches)
        self._iterator = read_ahead(reader, schedule.batch_size, process, processes, threads)
        if state is not None:
            self._iterator.set_state(state)

    def __next__(self) -> PromptBatch:
        number = int(self._iterator.get_state()["global_next_index"]) // self._schedule.batch_size
        items = tuple(item for item in next(self._iterator) if item is not None)
        batch = self._schedule.batch(number)
        bucket = self._schedule.buckets[batch.bucket]
        return PromptBatch(number, self._schedule.epoch_of(number), items, bucket, self._iterator.get_state())

    def restore(self, state: dict[str, Any]) -> None:
        """Go on after the batch that had this state."""
        if self._iterator.get_state() != state:
            self._iterator.set_state(state)

    def close(self) -> None:
        self._iterator.close()
