"""What a tool works with: the video's frames, a model to ask, the transcript; and where what it did is noted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pydantic import BaseModel

from vrjax.agents.exchanges import RecordingChat
from vrjax.agents.frame_store import FrameStore, StoredFrame
from vrjax.agents.trace import Exchange
from vrjax.agents.video_handle import Video
from vrjax.llm import Chat, ChatError, ChatReply, ChatRequest, Message, Text, Usage, ask
from vrjax.llm.chat import Part
from vrjax.llm.frame_images import time_label
from vrjax.video import FramePlan

T = TypeVar("T", bound=BaseModel)


class Spoken(Protocol):
    """A line of a transcript: what is said from `start` to `end`, in seconds. `video.transcript.Utterance` is one."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """window: frames that a model is shown at once. windows_at_once: asked side by side. transcript_characters: of a
    transcript shown at once. max_tokens: of a model's reply to a tool. temperature: 0 takes the likeliest tokens.
    """

    window: int = 120
    windows_at_once: int = 4
    transcript_characters: int = 24_000
    max_tokens: int = 1024
    temperature: float = 0.0


@dataclass
class Noted:
    """What one call of a tool did, so far."""

    frames: list[float] = field(default_factory=list)
    chosen: list[float] = field(default_factory=list)
    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    notes: Counter[str] = field(default_factory=Counter)
    replies: list[Exchange] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Of one call. question: the whole question, with its options. whole: the whole video."""

    chat: Chat
    store: FrameStore
    question: str
    whole: Video
    transcript: Sequence[Spoken] | None = None
    settings: ToolSettings = field(default_factory=ToolSettings)
    noted: Noted = field(default_factory=Noted)

    def plan(self, video: Video, most: int | None = None) -> FramePlan:
        """Which frames of a part to look at. Raises ValueError where it holds none."""
        return self.store.plan(video, most)

    async def frames(self, plan: FramePlan, places: Sequence[int] | None = None) -> list[StoredFrame]:
        """Frames of a plan; they are noted as looked at. Raises VideoError."""
        found = await asyncio.to_thread(self.store.read, plan, places)
        self.noted.frames.extend(round(frame.seconds, 3) for frame in found)
        return found

    async def ask(self, *parts: Part | str, system: str = "") -> str:
        """A model's reply in words. Raises ChatError, also for an empty reply."""
        reply: ChatReply = await self._recorded.complete(self._request(parts, system))
        self._count(reply.usage)
        if not reply.text.strip():
            raise ChatError(f"{self.chat.name}: the reply is empty.", "bad_reply", retryable=False)
        return reply.text.strip()

    async def ask_form(self, form: type[T], *parts: Part | str, system: str = "") -> T:
        """A model's reply in a form. Raises ChatError where no attempt fits it."""
        found = await ask(self._recorded, self._request(parts, system), form)
        self._count(found.usage if not found.reply.cached else found.reply.usage)
        if "asked_again" in found.repairs:
            self.noted.notes["asked_again"] += 1
        return found.value

    @property
    def _recorded(self) -> RecordingChat:
        return RecordingChat(self.chat, self.noted.replies)

    def _request(self, parts: Sequence[Part | str], system: str) -> ChatRequest:
        messages = [Message.user(*parts)]
        if system:
            messages.insert(0, Message("system", (Text(system),)))
        return ChatRequest(
            messages=tuple(messages), temperature=self.settings.temperature, max_tokens=self.settings.max_tokens
        )

    def _count(self, usage: Usage) -> None:
        self.noted.requests += 1
        self.noted.usage = self.noted.usage + usage


def shown(frames: Sequence[StoredFrame], first: int = 1) -> list[Part]:
    """Frames as a model is shown them: each after its number and time."""
    parts: list[Part] = []
    for number, frame in enumerate(frames, first):
        parts.append(Text(f"Frame {number} at {time_label(frame.seconds)} ({frame.seconds:.1f} s):"))
        parts.append(frame.image)
    return parts


def windows(plan: FramePlan, size: int) -> list[range]:
    """Places of a plan, cut into windows that follow each other without overlap."""
    # A frame that stands twice in a plan (a one-frame clip) is one frame.
    count = len(dict.fromkeys(plan.indices))
    return [range(first, min(first + size, count)) for first in range(0, count, size)]
