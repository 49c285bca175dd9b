"""Conversations to learn from: a line each in a JSON-lines file, their images in files beside it.

    {"id": "q1, all", "messages": [{"role": "system", "parts": [{"text": "…"}]},
                                   {"role": "user", "parts": [{"text": "Frame 1:"}, {"image": "images/3f….jpg"}]},
                                   {"role": "assistant", "parts": [{"text": "…"}], "learn": true}]}

Messages with `learn` are what the model is to say; the others are what it is shown.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from vrjax.errors import InputError
from vrjax.generation.chat_forms import Role
from vrjax.llm.chat import Image, Message, Text
from vrjax.records import first_problem, load_json


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SaidPart(_Record):
    """A text, or an image by its path, which starts at the file's folder."""

    text: str | None = None
    image: str | None = None

    @model_validator(mode="after")
    def _one(self) -> SaidPart:
        if (self.text is None) == (self.image is None):
            raise ValueError("a part is either a text or an image")
        return self


class Said(_Record):
    role: Role
    parts: tuple[SaidPart, ...]
    learn: bool = False


class Conversation(_Record):
    id: str
    messages: tuple[Said, ...]

    @model_validator(mode="after")
    def _learnable(self) -> Conversation:
        learned = [one for one in self.messages if one.learn]
        if not learned:
            raise ValueError("no message is to be learned")
        if any(one.role != "assistant" or any(part.text is None for part in one.parts) for one in learned):
            raise ValueError("only texts of the assistant can be learned")
        return self


def load_conversations(path: Path) -> list[Conversation]:
    """Read a file. Raises InputError naming it, the conversation and the field, and for an id that occurs twice."""
    found: dict[str, Conversation] = {}
    for number, row in enumerate(load_json(path), 1):
        try:
            one = Conversation.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}: conversation {number}: {first_problem(error)}. Correct the field.") from error
        if one.id in found:
            raise InputError(f"{path}: the id {one.id!r} occurs twice. Keep one conversation of each id.")
        found[one.id] = one
    return list(found.values())


def said(message: Message, folder: Path, learn: bool = False) -> Said:
    """A message as it is written down; its images are put into `folder`/images, each once."""
    parts = []
    for part in message.parts:
        if isinstance(part, Text):
            parts.append(SaidPart(text=part.text))
        elif isinstance(part, Image):
            ending = part.media_type.rpartition("/")[2].replace("jpeg", "jpg")
            name = f"images/{hashlib.sha256(part.data).hexdigest()[:24]}.{ending}"
            path = folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(part.data)
            parts.append(SaidPart(image=name))
        else:
            raise InputError(f"{part.video}: a conversation to learn from holds images, not videos. Send its frames.")
    return Said(role=message.role, parts=tuple(parts), learn=learn)


def save_conversations(path: Path, conversations: Iterable[Conversation]) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    lines = (
        json.dumps(one.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False) for one in conversations
    )
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(partial, path)
