"""The tools of one strategy at work: each call is carried out, and written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from vrjax.agents.crossing import as_json, from_json, to_program
from vrjax.agents.exchanges import FATAL, ReplayError
from vrjax.agents.sandbox import ProgramEnd, as_seen
from vrjax.agents.tools import Noted, Tool, ToolContext
from vrjax.agents.trace import ToolCall
from vrjax.agents.video_handle import Video
from vrjax.llm import ChatError

END = "ProgramEnd"


class Toolbox(Protocol):
    """The tools of one trace. A program that ended for no reason of its own has left a `fault`."""

    @property
    def tools(self) -> Mapping[str, Tool]: ...

    @property
    def whole(self) -> Video:
        """The whole video."""
        ...

    @property
    def fault(self) -> Exception | None:
        """What ends more than this trace: it is to be raised by whoever runs it."""
        ...

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a tool as a program does. Raises what the tool raises, ProgramEnd among it."""
        ...

    async def answer(self, name: str) -> tuple[str, str]:
        """Have one tool answer the question by itself: (answer, reasoning)."""
        ...

    def take_calls(self) -> tuple[ToolCall, ...]:
        """The calls since the last time, in order."""
        ...


class LiveToolbox:
    """Carries calls out. answerers: functions `context -> (answer, reasoning)` by name, beside those of the tools.

    time_limit_s: of one call. `fault` is set where a call met what every further one would meet.
    """

    def __init__(
        self,
        context: ToolContext,
        tools: Sequence[Tool],
        answerers: Mapping[str, Any] | None = None,
        time_limit_s: float = 3600.0,
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.whole, self._context, self._time_limit_s = context.whole, context, time_limit_s
        self._answerers = {**{tool.name: tool.answer for tool in tools if tool.answer}, **(answerers or {})}
        self._calls: list[ToolCall] = []
        self.fault: ChatError | None = None

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        context = replace(self._context, noted=Noted())
        given = {"args": as_json(list(args)), **({"kwargs": as_json(dict(kwargs))} if kwargs else {})}
        inputs: dict[str, Any] = given

        async def carry_out() -> Any:
            nonlocal inputs
            arguments = self.tools[name].bind(self.whole, args, kwargs)
            inputs = {key: as_json(value) for key, value in arguments.items()}
            value = await self.tools[name].call(context, arguments)
            to_program(value)  # what a program cannot hold is the tool's fault, and said here
            return value

        return await self._note(name, context, carry_out, lambda: inputs)

    async def answer(self, name: str) -> tuple[str, str]:
        context = replace(self._context, noted=Noted())
        return await self._note(f"direct:{name}", context, lambda: self._answerers[name](context), dict)

    async def _note(self, name: str, context: ToolContext, act: Any, inputs: Any) -> Any:
        began = time.monotonic()
        output, error, kind = None, None, None
        try:
            async with asyncio.timeout(self._time_limit_s):
                value = await act()
            output = as_json(value)
            return value
        except ProgramEnd as end:
            output, kind = as_json(end.value), END
            raise
        except ChatError as fault:
            kind, error = as_seen(fault)
            if fault.kind in FATAL:
                self.fault = fault
                raise ProgramEnd(None) from fault
            raise
        except TimeoutError:
            kind, error = "RuntimeError", f"{name} gave nothing within {self._time_limit_s:g} s"
            raise RuntimeError(error) from None
        except Exception as fault:
            kind, error = as_seen(fault)
            raise
        finally:
            noted = context.noted
            self._calls.append(
                ToolCall(
                    tool=name,
                    inputs=inputs(),
                    output=output,
                    error=error,
                    error_type=kind,
                    frames=tuple(noted.frames),
                    chosen=tuple(noted.chosen),
                    requests=noted.requests,
                    prompt_tokens=noted.usage.prompt_tokens,
                    completion_tokens=noted.usage.completion_tokens,
                    seconds=time.monotonic() - began,
                    notes=dict(sorted(noted.notes.items())),
                    replies=tuple(noted.replies),
                )
            )

    def take_calls(self) -> tuple[ToolCall, ...]:
        calls, self._calls = tuple(self._calls), []
        return calls


class RecordedToolbox:
    """Gives what was recorded, call by call, and touches neither video nor model."""

    def __init__(self, tools: Mapping[str, Tool], whole: Video, calls: Sequence[ToolCall], where: str) -> None:
        self.tools, self.whole, self._left, self._where = tools, whole, list(calls), where
        self._calls: list[ToolCall] = []
        self.fault: ReplayError | None = None

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            arguments = self.tools[name].bind(self.whole, args, kwargs)
            inputs = {key: as_json(value) for key, value in arguments.items()}
        except Exception:
            inputs = {"args": as_json(list(args)), **({"kwargs": as_json(dict(kwargs))} if kwargs else {})}
        return self._give(name, inputs)

    async def answer(self, name: str) -> tuple[str, str]:
        answer, reasoning = self._give(f"direct:{name}", {})
        return answer, reasoning

    def take_calls(self) -> tuple[ToolCall, ...]:
        calls, self._calls = tuple(self._calls), []
        return calls

    def _give(self, name: str, inputs: Mapping[str, Any]) -> Any:
        if not self._left or (self._left[0].tool, self._left[0].inputs) != (name, inputs):
            found = f"{self._left[0].tool} with {self._left[0].inputs}" if self._left else "none"
            self.fault = ReplayError(
                f"{self._where}: the program calls {name} with {inputs}, but the recorded call is {found}. "
                "The record was changed, or was made by another version."
            )
            raise ProgramEnd(None)
        call = self._left.pop(0)
        self._calls.append(call)
        if call.error_type == END:
            raise ProgramEnd(from_json(call.output))
        if call.error is not None:
            import builtins

            raise getattr(builtins, call.error_type or "RuntimeError", RuntimeError)(call.error)
        return from_json(call.output)
