"""The interface to any language model: messages in, texts out. Backends and wrappers are all a `Chat`.

    reply = await chat.complete(ChatRequest(messages=(Message.user("What is shown?", Image(png)),)))

A backend of one's own is a class with a `name` and one `complete`; see `Chat` for what it may raise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from vrjax.errors import InputError, RunError
from vrjax.generation.chat_forms import Role
from vrjax.video import FrameOptions

ErrorKind = Literal[
    "timeout",  # no whole reply within the time limit
    "rate_limited",  # asked to slow down
    "server",  # the server failed (5xx)
    "connection",  # refused, cut, or not found
    "refused",  # content filter, or the model declined
    "bad_reply",  # a web page, no choices, not JSON, not the form that was asked for
    "budget",  # the budget is used up
    "replay_miss",  # replay, and the reply is not in the cache
    "unauthorised",  # the key is missing, wrong or not allowed this
    "bad_request",  # what was sent cannot be answered as it is: unreadable video, too long, unknown model
    "backend",  # the backend raised something else: a fault in its code
]
# Trying the same request again may help.
RETRYABLE: frozenset[str] = frozenset({"timeout", "rate_limited", "server", "connection", "bad_reply"})


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Image:
    """An encoded image (PNG, JPEG, …)."""

    data: bytes
    media_type: str = "image/png"

    def __repr__(self) -> str:
        return f"Image({len(self.data)} bytes, {self.media_type!r})"


@dataclass(frozen=True)
class Frames:
    """A part of a video, planned and read by `vrjax.video` where the request is answered."""

    video: Path
    options: FrameOptions = field(default_factory=FrameOptions)


Part = Text | Image | Frames


@dataclass(frozen=True)
class Message:
    """One turn. Parts follow each other as they are: nothing is put between two texts."""

    role: Role
    parts: tuple[Part, ...]

    @staticmethod
    def system(text: str) -> Message:
        return Message("system", (Text(text),))

    @staticmethod
    def user(*parts: Part | str) -> Message:
        return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))

    @staticmethod
    def assistant(text: str) -> Message:
        return Message("assistant", (Text(text),))

    @property
    def text(self) -> str:
        """The texts of the message, without images and frames."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """What is asked. Two requests with the same content are the same request: they share a call and a cache entry.

    schema: JSON schema that the reply should fit, `schema_name` names it (endpoints want a name); `structured.ask`
    checks that it does. temperature 0 takes the likeliest tokens; max_tokens: of one reply. samples: replies to draw;
    ask for several here, not by sending the request again. Raises InputError where a value is out of range.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    schema_name: str = "reply"
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int | None = None
    samples: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))
        if not self.messages:
            raise InputError("a chat request has no message. Add a user message.")
        for message in self.messages:
            if message.role != "user" and not all(isinstance(part, Text) for part in message.parts):
                raise InputError(f"a {message.role} message holds an image or frames. Put them into a user message.")
        if self.samples < 1 or self.max_tokens < 1:
            raise InputError(f"samples {self.samples} and max_tokens {self.max_tokens} must be at least 1.")
        if not (math.isfinite(self.temperature) and self.temperature >= 0 and 0 < self.top_p <= 1):
            raise InputError(f"temperature {self.temperature} must not be negative, top_p {self.top_p} in (0, 1].")


@dataclass(frozen=True)
class Usage:
    """Tokens. `estimated`: the server did not count them; a token was taken as four characters."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.estimated or other.estimated,
        )

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class ChatReply:
    """What came back: one text and finish reason ("stop", "length", …) a sample. cached: it cost no call."""

    texts: tuple[str, ...]
    usage: Usage
    model: str
    cached: bool = False
    finish_reasons: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.texts[0]

    @property
    def cut(self) -> bool:
        """Whether the first text ended at max_tokens."""
        return self.finish_reasons[:1] == ("length",)


class ChatError(RunError):
    """A request that got no usable reply. Never a score, never a text: what it means is its `kind`.

    retryable: asking again may help. retry_after_s: seconds that the server asked to wait. text: the unusable reply,
    verbatim ("" where it was blank). usage: what it cost all the same.
    """

    def __init__(
        self,
        message: str,
        kind: ErrorKind,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        text: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.retryable = kind in RETRYABLE if retryable is None else retryable
        self.retry_after_s, self.text, self.usage = retry_after_s, text, usage

    def __reduce__(self):  # keeps everything when the error crosses a process boundary
        return (_rebuild, (type(self), self.args[0], self.kind, self._details()))

    @property
    def blank(self) -> bool:
        """Whether the model replied, and said nothing."""
        return self.kind == "bad_reply" and self.text is not None and not self.text.strip()

    def _details(self) -> dict[str, Any]:
        names = ("retryable", "retry_after_s", "text", "usage")
        return {name: getattr(self, name) for name in names}

    def saying(self, message: str) -> ChatError:
        """The same error in other words."""
        return _rebuild(type(self), message, self.kind, self._details())


def _rebuild(error: type[ChatError], message: str, kind: ErrorKind, details: dict[str, Any]) -> ChatError:
    return error(message, kind, **details)


class Chat(Protocol):
    """Anything that answers chat requests. `name` tells models and servers apart in caches and reports: no secrets.

    `complete` raises ChatError, or InputError where the request cannot be used as it is.
    """

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest) -> ChatReply: ...


@runtime_checkable
class Measuring(Protocol):
    """A chat that knows its model's context: `context` tokens for prompt and reply, and how many a text has."""

    @property
    def context(self) -> int: ...

    def count(self, text: str) -> int: ...


def measuring(chat: Any) -> Measuring | None:
    """The chat, or the backend within its wrappers, that knows the model's context; None where none does."""
    while chat is not None and not isinstance(chat, Measuring):
        chat = getattr(chat, "backend", None)
    return chat


@runtime_checkable
class Remembering(Protocol):
    """A chat that keeps replies, and can be told to forget one that proved unusable."""

    async def forget(self, request: ChatRequest) -> None: ...
