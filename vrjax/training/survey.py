"""What the training data holds, found once before the first step: frame plans, sizes of rows, and what is damaged.

A damaged question or video is named and counted, never silently left out: its row keeps its place in the order of the
run with weight 0. The survey is kept in the run directory, so that a resumed run has the same order whatever happened
to the files meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vrjax.errors import InputError, VideoError
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.prompts import Prompt, Vision, build_prompt
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.records import VideoRecord
from vrjax.training.buckets import RowSize
from vrjax.training.rows import PackedText, pack_text, row_size
from vrjax.training.templates import ResponseTemplate
from vrjax.video import FrameOptions, FramePlan

RESPONSE_END = "<|im_end|>"
NOTHING = RowSize(1, 1, 1, 1, 1)  # size of a row without a usable question: fits every bucket


class Damage(StrEnum):
    """What can be wrong with a training record."""

    UNREADABLE_VIDEO = "unreadable_video"  # of all questions of the video
    EMPTY_QUESTION = "empty_question"
    CONTROL_TOKENS = "control_tokens"  # typed in the question or the response
    BAD_RESPONSE = "bad_response"  # no answer, or evidence that the template cannot hold
    PROMPT_TOO_LONG = "prompt_too_long"  # prompt and response together


@dataclass(frozen=True)
class DamagedQuestion:
    """One question that is not trained on. name: `video_id/question_id`; message: a sentence for people."""

    name: str
    damage: Damage
    message: str


@dataclass(frozen=True)
class RowPlan:
    """One training row: a video (record number) and its usable questions (numbers within the record)."""

    record: int
    questions: tuple[int, ...]
    size: RowSize
    name: str


@dataclass(frozen=True)
class Survey:
    """rows: in the order of the records; plans: of each record, None where its video is unreadable."""

    rows: tuple[RowPlan, ...]
    plans: tuple[FramePlan | None, ...]
    damaged: tuple[DamagedQuestion, ...]
    questions: int

    @property
    def damaged_share(self) -> float:
        return len(self.damaged) / self.questions if self.questions else 0.0

    def damage_counts(self) -> dict[str, int]:
        return dict(Counter(str(item.damage) for item in self.damaged))

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": [dataclasses.astuple(row) for row in self.rows],
            "plans": [None if plan is None else dataclasses.asdict(plan) for plan in self.plans],
            "damaged": [dataclasses.astuple(item) for item in self.damaged],
            "questions": self.questions,
        }

    @staticmethod
    def from_json(content: dict[str, Any]) -> Survey:
        return Survey(
            tuple(RowPlan(row[0], tuple(row[1]), RowSize(*row[2]), row[3]) for row in content["rows"]),
            tuple(None if plan is None else _plan_from_json(plan) for plan in content["plans"]),
            tuple(DamagedQuestion(name, Damage(damage), message) for name, damage, message in content["damaged"]),
            content["questions"],
        )


def _plan_from_json(content: dict[str, Any]) -> FramePlan:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return FramePlan(**{**values, "options": FrameOptions(**content["options"])})


@dataclass(frozen=True)
class RowText:
    """Turns a record's questions into the text side of a row. max_length: most tokens of prompt and response."""

    chat: ChatTokenizer
    config: Qwen2_5VLConfig
    template: ResponseTemplate
    max_length: int

    def pair(self, record: VideoRecord, number: int, vision: Sequence[Vision]) -> tuple[Prompt, list[int]]:
        """Prompt and response ids of one question. Raises Unusable with the damage's name."""
        question = record.questions[number]
        if not question.question.strip():
            raise Unusable(Damage.EMPTY_QUESTION, "the question is empty. Fill it in, or leave it out.")
        name = f"{record.video_id}/{question.question_id}"
        try:
            text = self.template.response(question)
        except InputError as error:
            raise Unusable(Damage.BAD_RESPONSE, str(error)) from error
        try:
            response = [*self.chat.encode(text), *self.chat.marks(RESPONSE_END)]
            prompt = build_prompt(
                self.chat,
                self.config,
                question.question,
                vision,
                instruction=self.template.instruction_text,
                name=name,
            )
        except InputError as error:
            raise Unusable(Damage.CONTROL_TOKENS, str(error)) from error
        if len(prompt) + len(response) > self.max_length:
            raise Unusable(
                Damage.PROMPT_TOO_LONG,
                f"prompt ({len(prompt)} tokens) and response ({len(response)}) exceed {self.max_length} together. "
                "Use fewer frames or a lower max_pixels.",
            )
        return prompt, response

    def row(
        self, record: VideoRecord, numbers: Sequence[int], vision: Sequence[Vision], places: Sequence[np.ndarray] = ()
    ) -> PackedText:
        pairs = [self.pair(record, number, vision) for number in numbers]
        return pack_text([pair[0] for pair in pairs], [pair[1] for pair in pairs], places)


class Unusable(InputError):
    """A question that cannot be trained on."""

    def __init__(self, damage: Damage, message: str) -> None:
        super().__init__(message)
        self.damage = damage


def blind_vision(plan: FramePlan) -> list[Vision]:
    """The plan's vision without pixels: enough for prompts, positions and sizes."""
    return Vision.of_plan(plan, _no_pixels(plan.patch_count))


@lru_cache(maxsize=64)
def _no_pixels(count: int) -> np.ndarray:
    return np.zeros((count, 0), np.uint8)


def survey_records(
    records: Sequence[VideoRecord],
    plan: Callable[[VideoRecord], FramePlan],
    text: RowText,
    questions_per_row: int,
    *,
    threads: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Survey:
    """Plan every video (`plan` may raise VideoError or InputError, from several threads) and measure every row."""
    if questions_per_row < 1:
        raise InputError(f"questions_per_row must be at least 1, not {questions_per_row}.")

    def try_plan(record: VideoRecord) -> FramePlan | InputError:
        try:
            return plan(record)
        except InputError as error:
            return error

    rows: list[RowPlan] = []
    plans: list[FramePlan | None] = []
    damaged: list[DamagedQuestion] = []
    with ThreadPoolExecutor(threads) as pool:
        for number, (record, planned) in enumerate(zip(records, pool.map(try_plan, records), strict=True)):
            usable: list[int] = []
            if isinstance(planned, InputError):
                kind = f" ({planned.kind})" if isinstance(planned, VideoError) else ""
                for question in record.questions:
                    name = f"{record.video_id}/{question.question_id}"
                    damaged.append(DamagedQuestion(name, Damage.UNREADABLE_VIDEO, f"{planned}{kind}"))
                plans.append(None)
            else:
                plans.append(planned)
                vision = blind_vision(planned)
                for index, question in enumerate(record.questions):
                    try:
                        text.pair(record, index, vision)
                    except Unusable as error:
                        name = f"{record.video_id}/{question.question_id}"
                        damaged.append(DamagedQuestion(name, error.damage, str(error)))
                    else:
                        usable.append(index)
            for start in range(0, max(len(record.questions), 1), questions_per_row):
                chosen = tuple(index for index in usable if start <= index < start + questions_per_row)
                size = NOTHING
                if chosen and not isinstance(planned, InputError):
                    size = row_size(text.row(record, chosen, blind_vision(planned)), planned.grids, text.config.vision)
                rows.append(RowPlan(number, chosen, size, record.video_id))
            if progress is not None:
                progress(number + 1, len(records))
    return Survey(tuple(rows), tuple(plans), tuple(damaged), sum(len(record.questions) for record in records))


def resolve_video(record: VideoRecord, root: Path) -> Path:
    """The record's file; a relative path starts at `root`."""
    return root / record.video_path
