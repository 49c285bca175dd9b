"""A model's replies, written down as they come, and given again from what was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vrjax.agents.trace import Exchange
from vrjax.errors import RunError
from vrjax.llm import Chat, ChatError, ChatReply, ChatRequest, Usage
from vrjax.llm.chat import Remembering

# What any further request would meet as well; it ends the run, not the question.
FATAL = frozenset({"unauthorised", "budget", "replay_miss"})
# Told of each reply that was given: where it was recorded, what was asked, and the reply.
Listener = Callable[[str, ChatRequest, Exchange], None]


class ReplayError(RunError):
    """A recorded run does not lead where it led: the record was changed, or the agent's code was."""


class RecordingChat:
    """Passes requests on and keeps what came back, failures included, in `into` or a list of its own."""

    def __init__(self, chat: Chat, into: list[Exchange] | None = None) -> None:
        self._chat = chat
        self.exchanges: list[Exchange] = [] if into is None else into

    @property
    def name(self) -> str:
        return self._chat.name

    async def complete(self, request: ChatRequest) -> ChatReply:
        try:
            reply = await self._chat.complete(request)
        except ChatError as error:
            if error.kind not in FATAL:
                usage = error.usage or Usage()
                self.exchanges.append(
                    Exchange(
                        text="" if error.blank else None,
                        error=str(error),
                        kind=error.kind,
                        prompt_tokens=usage.prompt_tokens,
                        completion_tokens=usage.completion_tokens,
                    )
                )
            raise
        self.exchanges.append(
            Exchange(
                text=reply.text,
                finish=reply.finish_reasons[0] if reply.finish_reasons else None,
                prompt_tokens=reply.usage.prompt_tokens,
                completion_tokens=reply.usage.completion_tokens,
            )
        )
        return reply

    async def forget(self, request: ChatRequest) -> None:
        if isinstance(self._chat, Remembering):
            await self._chat.forget(request)


class RecordedChat:
    """Gives recorded replies in order. Raises ReplayError where more is asked than was recorded."""

    name = "recorded"

    def __init__(self, exchanges: Sequence[Exchange], where: str, listener: Listener | None = None) -> None:
        self._left, self._where, self._listener = list(exchanges), where, listener

    async def complete(self, request: ChatRequest) -> ChatReply:
        if not self._left:
            raise ReplayError(f"{self._where}: one reply more is asked for than was recorded.")
        one = self._left.pop(0)
        if self._listener is not None:
            self._listener(self._where, request, one)
        usage = Usage(one.prompt_tokens, one.completion_tokens)
        if one.text is None or one.error is not None:
            kind: Any = one.kind or "backend"
            raise ChatError(one.error or "", kind, text=one.text, usage=usage)
        return ChatReply((one.text,), usage, self.name, finish_reasons=(one.finish,) if one.finish else ())
