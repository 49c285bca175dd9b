"""Conversations as training rows: one row each, with the loss on the replies that are to be learned.

    tokens     system | user <image> … | assistant reply <|im_end|> | user … | assistant reply <|im_end|> | padding
    predicted                                    x x x   x                             x x x   x

All of a row is one trunk: a token sees everything before it. A reply is predicted as it would be drawn, behind the very
tokens that the engine would have put before it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vrjax.errors import InputError, VideoError
from vrjax.generation.chat_forms import Turn
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.pictures import picture_vision
from vrjax.generation.prompts import Vision, build_conversation
from vrjax.llm.conversation_file import Conversation, load_conversations
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.layout import window_slots
from vrjax.run_directory import RunDirectory
from vrjax.training.buckets import RowSize
from vrjax.training.config import DatasetConfig, InputConfig
from vrjax.training.rows import PackedText, row_size
from vrjax.training.sources import Say, report_damage
from vrjax.training.survey import NOTHING, RESPONSE_END, Damage, DamagedQuestion, RowPlan, Survey, Unusable


@dataclass(frozen=True)
class ConversationText:
    """Turns a conversation into the text side of a row. max_length: most tokens of a row."""

    chat: ChatTokenizer
    config: Qwen2_5VLConfig
    max_length: int

    def row(
        self, conversation: Conversation, vision: Sequence[Vision], places: Sequence[np.ndarray] = ()
    ) -> PackedText:
        """vision: its images in order. places: index of each image's features (left out: all -1). Raises Unusable."""
        learned = [number for number, one in enumerate(conversation.messages) if one.learn]
        images = iter(vision)
        turns = [
            Turn(one.role, tuple(next(images) if part.text is None else part.text for part in one.parts))
            for one in conversation.messages[: learned[-1] + 1]
        ]
        try:
            whole = build_conversation(self.chat, self.config, turns, name=conversation.id)
            targets, target_at, end = [], [], 0
            for number in learned:
                start = len(build_conversation(self.chat, self.config, turns[:number], name=conversation.id))
                text = "".join(part.text or "" for part in conversation.messages[number].parts)
                reply = [*self.chat.encode(text), *self.chat.marks(RESPONSE_END)]
                end = start + len(reply)
                if whole.tokens[start:end].tolist() != reply:
                    raise Unusable(
                        Damage.BAD_RESPONSE,
                        f"message {number}: its tokens are joined with what stands before it. Strip its white space.",
                    )
                targets.append(np.asarray(reply, np.int32))
                target_at.append(np.arange(start - 1, end - 1, dtype=np.int32))
        except Unusable:
            raise
        except InputError as error:
            raise Unusable(Damage.CONTROL_TOKENS, str(error)) from error
        if end > self.max_length:
            raise Unusable(
                Damage.PROMPT_TOO_LONG, f"the conversation has {end} tokens, more than {self.max_length}. Shorten it."
            )
        index = whole.feature_index(places) if places else np.full(len(whole), -1, np.int32)
        return PackedText(
            tokens=whole.tokens[:end].astype(np.int32),
            positions=whole.positions[:, :end].astype(np.int32),
            segment=np.ones(end, np.int32),
            branch=np.zeros(end, np.int32),
            feature_index=index[:end].astype(np.int32),
            target_at=np.concatenate(target_at),
            targets=np.concatenate(targets),
            weights=np.ones(sum(map(len, targets)), np.float32),
        )


@dataclass(frozen=True)
class ConversationCorpus:
    """Surveyed conversations as rows by number; images are read when a row is. folders: of each conversation's file."""

    conversations: tuple[Conversation, ...]
    folders: tuple[Path, ...]
    survey: Survey
    counts: tuple[int, ...]
    text: ConversationText

    @property
    def sizes(self) -> tuple[RowSize, ...]:
        return tuple(row.size for row in self.survey.rows)

    def vision(self, row: int) -> list[Vision]:
        """The images of a row. Raises VideoError where one cannot be read."""
        return images_of(self.conversations[row], self.folders[row], self.text.config)

    def packed(self, row: int) -> PackedText:
        """The text side of a row, with features numbered as its images list them."""
        vision = self.vision(row)
        merge = self.text.config.vision.merge_size**2
        ends = np.cumsum([0, *(item.grid[0] * item.grid[1] * item.grid[2] // merge for item in vision)])
        places = [np.arange(a, b, dtype=np.int32) for a, b in pairwise(ends)]
        return self.text.row(self.conversations[row], vision, places)


def images_of(conversation: Conversation, folder: Path, config: Qwen2_5VLConfig) -> list[Vision]:
    """Images up to the last reply that is learned, in order. Raises VideoError naming the file that cannot be read."""
    last = max(number for number, one in enumerate(conversation.messages) if one.learn)
    found = []
    for one in conversation.messages[: last + 1]:
        for part in one.parts:
            if part.image is not None:
                found.append(_image(str(folder / part.image), config))
    return found


@lru_cache(maxsize=4096)
def _image(path: str, config: Qwen2_5VLConfig) -> Vision:
    try:
        return picture_vision(Path(path).read_bytes(), config.vision)
    except (OSError, InputError) as error:
        raise VideoError(f"{path}: cannot be read ({error}). Make the conversations again.", "unreadable") from error


def open_conversations(
    datasets: Sequence[DatasetConfig],
    text: ConversationText,
    options: InputConfig,
    run: RunDirectory,
    name: str,
    say: Say,
) -> ConversationCorpus:
    """Read and survey conversations; the survey is kept in the run directory as `NAME.json` and used when resuming.

    Raises InputError for files that cannot be used, RunError where more than `max_damaged_share` are damaged.
    """
    conversations: list[Conversation] = []
    folders: list[Path] = []
    counts = []
    for dataset in datasets:
        found = load_conversations(dataset.path)[: dataset.limit]
        if not found:
            raise InputError(f"{dataset.path}: holds no conversations. Check the file and the limit.")
        conversations += found
        folders += [dataset.videos or dataset.path.parent] * len(found)
        counts.append(len(found))
    fingerprint = _fingerprint(conversations, text)
    kept = run.read_json(f"{name}.json")
    if kept is None:
        survey = _survey(conversations, folders, text)
        run.write_json(f"{name}.json", {"fingerprint": fingerprint, "survey": survey.to_json()})
    elif kept["fingerprint"] == fingerprint:
        survey = Survey.from_json(kept["survey"])
    else:
        raise InputError(
            f"{run.path}: the conversations in {', '.join(str(dataset.path) for dataset in datasets)} have changed "
            "since the run started. Restore them, or use another run_dir."
        )
    report_damage(survey, options.max_damaged_share, name, say)
    return ConversationCorpus(tuple(conversations), tuple(folders), survey, tuple(counts), text)


def _survey(conversations: Sequence[Conversation], folders: Sequence[Path], text: ConversationText) -> Survey:
    rows, damaged = [], []
    for number, (one, folder) in enumerate(zip(conversations, folders, strict=True)):
        size, usable = NOTHING, ()
        try:
            vision = images_of(one, folder, text.config)
            packed = text.row(one, vision)
            if vision:
                size = row_size(packed, [item.grid for item in vision], text.config.vision)
            else:
                size = RowSize(len(packed.tokens), len(packed.targets), 1, window_slots(text.config.vision), 1)
            usable = (0,)
        except VideoError as error:
            damaged.append(DamagedQuestion(one.id, Damage.UNREADABLE_VIDEO, str(error)))
        except Unusable as error:
            damaged.append(DamagedQuestion(one.id, error.damage, str(error)))
        rows.append(RowPlan(number, usable, size, one.id))
    return Survey(tuple(rows), (), tuple(damaged), len(conversations))


def _fingerprint(conversations: Sequence[Conversation], text: ConversationText) -> str:
    digest = hashlib.sha256()
    for one in conversations:
        digest.update(one.model_dump_json().encode())
    settings: list[Any] = [text.max_length, dataclasses.asdict(text.config), len(text.chat.tokenizer)]
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()
