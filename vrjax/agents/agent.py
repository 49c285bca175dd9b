"""The agent: a program, its result, the next program, until it finishes.

question, tools ─▶ reply ─▶ one program ─▶ sandbox ─▶ result ─┐
                     ▲                                        │
                     └── history, shortened to the context ◀──┘      … finish(answer)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from vrjax.agents.exchanges import FATAL, RecordingChat
from vrjax.agents.history import Room, Turn, room_of
from vrjax.agents.program_text import read_reply
from vrjax.agents.sandbox import Limits, ProgramEnd, Sandbox, StepResult, Workers, as_seen
from vrjax.agents.toolbox import Toolbox
from vrjax.agents.tools import Tool, api_text
from vrjax.agents.tools.steps import answer_text
from vrjax.agents.trace import Outcome, Step, Trace
from vrjax.errors import InputError
from vrjax.llm import Chat, ChatError, ChatRequest, Message, ask

INSTRUCTIONS = """You answer a question about a video by writing Python programs. You cannot see the video: you learn \
about it by the functions below, each program's output is shown to you, and then you write the next one.

Reply with a short thought and exactly one block of code, ```python … ```. Rules:
- Variables and functions live on from program to program. Print what you want to see; the value of a last expression \
is shown too. You may use plain Python and its common modules; there are no files and there is no network.
- `video` is the whole video, of type Video, with `.start` and `.end` in seconds. All times are seconds from its start.
- What the functions return may be wrong. Look at it before you build on it, and check what matters in another way.
- Call finish(answer) as soon as you know the answer, in the form that the question asks for.

Functions:

"""
SINGLE = """You answer a question about a video by writing one Python program. You cannot see the video: the program \
learns about it by the functions below. It runs once, and you do not see what it prints.

Reply with a short thought and exactly one block of code, ```python … ```. Rules:
- You may use plain Python and its common modules; there are no files and there is no network.
- `video` is the whole video, of type Video, with `.start` and `.end` in seconds. All times are seconds from its start.
- The program must end with finish(answer), in the form that the question asks for.

Functions:

"""
BRIEF = (
    "Answer a question about a video. Reply with one block of Python, ```python … ```. Its output is shown to you. "
    "Call finish(answer) when you know the answer.\n\n"
)
LAST = (
    "There are no steps left. Reply with one program that only calls finish(answer) with the best answer you can give."
)
CONFIDENCE = (
    "Before you go on: what is your best answer so far, in the form that the question asks for, and how sure are you "
    "of it? confidence: 1 not enough is known to answer, 2 it may be right, 3 it is surely right."
)


BLANKS = 3  # blank replies in a row after which a model is taken to be out


class Confidence(BaseModel):
    answer: str
    confidence: int = Field(ge=1, le=3)


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """steps: replies before the forced finish. history_characters: of a conversation with a model whose context is not
    known, see `history`. max_tokens: of a reply. temperature: 0 takes the likeliest tokens. limits: of one program.
    brief: few instructions, and of the tools their signatures alone, for small models trained on such prompts.
    """

    steps: int = 20
    history_characters: int = 80_000
    max_tokens: int = 2048
    temperature: float = 0.0
    limits: Limits = field(default_factory=Limits)
    brief: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1 or self.history_characters < 1000 or self.max_tokens < 1:
            raise InputError(
                f"an agent with {self.steps} steps, {self.history_characters} characters of history and "
                f"{self.max_tokens} tokens a reply cannot work. Give at least 1, 1000 and 1."
            )


async def run_agent(
    name: str,
    question: str,
    chat: Chat,
    toolbox: Toolbox,
    workers: Workers,
    threads: Executor,
    settings: AgentSettings | None = None,
    *,
    single: bool = False,
    self_evaluation: bool = False,
    room: Room | None = None,
) -> Trace:
    """One trace of a strategy called `name`, with the toolbox's tools.

    single: one program, whose output is not shown. self_evaluation: the model says after each step how sure it is, and
    the work ends where it is sure (VideoAgent's rule). room: of the conversation, by default what the model's context
    or the settings give. A blank reply is answered with what is wrong; BLANKS of them in a row, or no reply, make a
    failed trace. Raises ChatError where no further request would be answered.
    """
    settings = settings or AgentSettings()
    recording = RecordingChat(chat)
    room = room or room_of(chat, settings.history_characters, settings.max_tokens)
    work = _Work(name, question, recording, toolbox, settings, single, self_evaluation, room)
    with Sandbox(limits=settings.limits, workers=workers) as sandbox:
        outcome, answer, error = await work.run(sandbox, threads)
    return Trace(
        strategy=name,
        tools=tuple(toolbox.tools),
        outcome=outcome,
        answer=answer,
        error=error,
        steps=tuple(work.steps),
        replies=tuple(recording.exchanges),
        history_tokens=room.most if room.unit == "tokens" else None,
    )


class _Work:
    def __init__(
        self,
        name: str,
        question: str,
        chat: RecordingChat,
        toolbox: Toolbox,
        settings: AgentSettings,
        single: bool,
        self_evaluation: bool,
        room: Room,
    ) -> None:
        self.room, self._blanks = room, 0
        self.name, self.chat, self.toolbox, self.settings = name, chat, toolbox, settings
        self.single, self.self_evaluation = single, self_evaluation
        self.steps: list[Step] = []
        self._turns: list[Turn] = []
        tools = list(toolbox.tools.values())
        text = (SINGLE if single else INSTRUCTIONS) + api_text(tools)
        if settings.brief and not single:
            text = BRIEF + "\n".join(tool.head for tool in tools)
        length = f"The video is {toolbox.whole.end - toolbox.whole.start:.1f} s long."
        self._head = (Message.system(text), Message.user(f"{length}\n\nQuestion: {question}"))

    async def run(self, sandbox: Sandbox, threads: Executor) -> tuple[Outcome, str | None, str | None]:
        cap = 1 if self.single else self.settings.steps
        try:
            for _ in range(cap):
                answer = await self._step(sandbox, threads, self.toolbox.tools, "")
                if self.self_evaluation:
                    answer = await self._sure(answer)
                if answer is not None:
                    return "finished", answer, None
            if self.single:
                return "no_answer", None, None
            if self.self_evaluation:
                answer = next((step.candidate for step in reversed(self.steps) if step.candidate), None)
            else:
                only = {name: tool for name, tool in self.toolbox.tools.items() if name == "finish"}
                answer = await self._step(sandbox, threads, only, LAST)
            return ("no_answer", None, None) if answer is None else ("forced", answer, None)
        except ChatError as error:
            if error.kind in FATAL:
                raise
            return "failed", None, str(error)

    async def _step(self, sandbox: Sandbox, threads: Executor, tools: Any, tail: str) -> str | None:
        """One reply and what comes of it; the answer where it finishes."""
        began = time.monotonic()
        messages, shortened = self.room.fit(self._head, self._turns, tail)
        said, cut = await self._reply(messages)
        read = read_reply(said, cut)
        if read.program is None:
            result = StepResult(read.problem or "", "error")
            kind = "no_program"
        else:
            result = await self._execute(sandbox, threads, read.program, tools)
            kind = result.kind
        calls = self.toolbox.take_calls()
        text = result.text or ("" if result.kind == "ended" else "(The program printed nothing.)")
        self._turns.append(Turn(said, read.program, text))
        self.steps.append(
            Step(
                thought=read.thought,
                program=read.program,
                result=text,
                kind=kind,
                calls=calls,
                shortened=shortened,
                seconds=time.monotonic() - began,
            )
        )
        return result.ended if result.kind == "ended" else None

    async def _reply(self, messages: tuple[Message, ...]) -> tuple[str, bool]:
        """The agent's next reply, which may be blank, and whether it was cut."""
        try:
            reply = await self.chat.complete(self._request(messages))
        except ChatError as error:
            self._blanks += 1
            if not error.blank or self._blanks >= BLANKS:
                raise
            return "", False
        self._blanks = 0
        return reply.text, reply.cut

    async def _execute(self, sandbox: Sandbox, threads: Executor, program: str, tools: dict[str, Tool]) -> StepResult:
        loop = asyncio.get_running_loop()
        given: dict[str, Any] = {name: self._caller(name, loop) for name in tools}
        result = await loop.run_in_executor(threads, sandbox.step, program, {**given, "video": self.toolbox.whole})
        if self.toolbox.fault is not None:
            raise self.toolbox.fault
        return result

    def _caller(self, name: str, loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
        """A tool as the thread of a program calls it: carried out in the event loop."""

        def call(*args: Any, **kwargs: Any) -> Any:
            waiting = asyncio.run_coroutine_threadsafe(self.toolbox.call(name, args, kwargs), loop)
            try:
                return waiting.result()
            except (asyncio.CancelledError, RuntimeError) as error:
                if loop.is_closed() or isinstance(error, asyncio.CancelledError):
                    raise ProgramEnd(None) from error  # the run is being given up
                raise

        return call

    async def _sure(self, answer: str | None) -> str | None:
        """Self-evaluation: the answer where the model is sure of it."""
        said = CONFIDENCE if answer is None else f"{CONFIDENCE}\nThe program gave this answer: {answer}"
        messages, _ = self.room.fit(self._head, self._turns, said)
        found = (await ask(self.chat, self._request(messages), Confidence)).value
        last = self.steps[-1]
        self.steps[-1] = last.model_copy(update={"confidence": found.confidence, "candidate": found.answer})
        if found.confidence == 3:
            return found.answer
        turn = self._turns[-1]
        note = f"You gave {found.answer!r} a confidence of {found.confidence} of 3. Gather what is missing."
        self._turns[-1] = Turn(turn.reply, turn.program, f"{turn.result}\n\n{note}".strip())
        return None

    def _request(self, messages: tuple[Message, ...]) -> ChatRequest:
        return ChatRequest(
            messages=messages, temperature=self.settings.temperature, max_tokens=self.settings.max_tokens
        )


async def answer_directly(name: str, tool: str, toolbox: Toolbox) -> Trace:
    """One trace without programs: the tool (or direct inference) answers the whole question."""
    began = time.monotonic()
    answer, error, reasoning = None, None, ""
    outcome: Outcome = "finished"
    try:
        found, reasoning = await toolbox.answer(tool)
        answer = answer_text(found)
    except ProgramEnd:
        if toolbox.fault is None:
            raise
        raise toolbox.fault from None
    except Exception as fault:
        kind, said = as_seen(fault)
        outcome, error = "failed", f"{kind}: {said}"
    step = Step(
        thought=reasoning,
        result=answer or error or "",
        kind="ok" if error is None else "error",
        calls=toolbox.take_calls(),
        seconds=time.monotonic() - began,
    )
    return Trace(strategy=name, tools=(tool,), outcome=outcome, answer=answer, error=error, steps=(step,))
