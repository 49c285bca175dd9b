"""The conversation of an agent, kept within its model's context by a stated rule.

Results are left out first, the oldest first, whole; then the words beside the oldest programs. Question, tools and
programs stay. What was left out is said in its place, with its length. The bound is the model's context in tokens where
the backend knows it (less the reply, and PER_MESSAGE tokens for the form of each message), else a number of characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from vrjax.llm import Chat, Message
from vrjax.llm.chat import measuring

PER_MESSAGE = 8
Unit = Literal["characters", "tokens"]


@dataclass(frozen=True)
class Turn:
    """reply: of the agent, verbatim. program: in it, or None. result: what it was shown."""

    reply: str
    program: str | None
    result: str


class Room(Protocol):
    """unit, most: how much of a conversation fits."""

    @property
    def unit(self) -> Unit: ...

    @property
    def most(self) -> int: ...

    def fit(self, head: tuple[Message, ...], turns: Sequence[Turn], tail: str) -> tuple[tuple[Message, ...], int]:
        """The messages to send, and how many results and words were left out of them."""
        ...


@dataclass(frozen=True)
class MeasuredRoom:
    """size: of a text, in `unit`; per_message: of a message beside its text."""

    unit: Unit
    most: int
    size: Callable[[str], int] = len
    per_message: int = 0

    def fit(self, head: tuple[Message, ...], turns: Sequence[Turn], tail: str) -> tuple[tuple[Message, ...], int]:
        return fit(head, turns, tail, self.most - self.per_message * (len(head) + 2 * len(turns) + 1), self.size)


@dataclass(frozen=True)
class RecordedRoom:
    """Of a recorded trace whose room was measured in tokens: a replay has no tokenizer, and nobody reads its messages.

    shortened: by step. Messages are whole, so they are those that were sent only where nothing had been left out.
    """

    most: int
    shortened: tuple[int, ...]
    unit: Unit = "tokens"

    def fit(self, head: tuple[Message, ...], turns: Sequence[Turn], tail: str) -> tuple[tuple[Message, ...], int]:
        messages, _ = fit(head, turns, tail, sys.maxsize)
        return messages, self.shortened[len(turns)] if len(turns) < len(self.shortened) else 0


def room_of(chat: Chat, characters: int, max_tokens: int) -> Room:
    """The room that a model's context leaves beside a reply of max_tokens; `characters` where it is not known."""
    known = measuring(chat)
    if known is None:
        return MeasuredRoom("characters", characters)
    return MeasuredRoom("tokens", known.context - max_tokens, lru_cache(4096)(known.count), PER_MESSAGE)


def fit(
    head: tuple[Message, ...], turns: Sequence[Turn], tail: str, most: int, size: Callable[[str], int] = len
) -> tuple[tuple[Message, ...], int]:
    """(messages of at most `most`, where leaving out can do that; how many results and words were left out).

    head: system and question; tail: joined to the last result. size: of a text, in the unit of `most`.
    """
    replies = [turn.reply or "(no reply)" for turn in turns]
    results = [turn.result for turn in turns]
    total = sum(size(message.text) for message in head) + sum(map(size, [*replies, *results, tail]))
    left_out = 0
    # The last result is what the agent is to go on from.
    for number in range(len(turns) - 1):
        note = f"[This result was left out to save room: {len(results[number])} characters.]"
        saved = size(results[number]) - size(note) if total > most else 0
        if saved > 0:
            total -= saved
            results[number] = note
            left_out += 1
    for number, turn in enumerate(turns[:-1]):
        program = f"```python\n{turn.program}\n```" if turn.program is not None else "(a reply without a program)"
        saved = size(replies[number]) - size(program) if total > most else 0
        if saved > 0:
            total -= saved
            replies[number] = program
            left_out += 1
    messages = list(head)
    for number, (reply, result) in enumerate(zip(replies, results, strict=True)):
        last = number == len(turns) - 1
        messages += [Message.assistant(reply), Message.user(f"{result}\n\n{tail}" if last and tail else result)]
    if not turns and tail:
        messages[-1] = Message.user(*messages[-1].parts, f"\n\n{tail}")
    return tuple(messages), left_out
