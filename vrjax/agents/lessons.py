"""Stored runs as conversations to learn from: every reply of agent, critic and tools behind exactly what led to it.

A run is replayed, and each tool call carried out again on its video with the recorded replies of its model, so that the
requests are made again by the code that made them. What an agent says in one trace is one conversation, as far as its
history was not shortened; every other reply is a conversation of its own. Replies that could not be used are shown in
the history, where they stood, and are not learned.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vrjax.agents.critic import CriticExample
from vrjax.agents.crossing import as_json, from_json
from vrjax.agents.exchanges import RecordedChat, ReplayError
from vrjax.agents.frame_store import FrameStore, Sampling
from vrjax.agents.replay import replay
from vrjax.agents.sandbox import Workers
from vrjax.agents.tools import TOOLS, Spoken, Tool, ToolContext, ToolSettings
from vrjax.agents.tools.direct import direct_inference
from vrjax.agents.trace import Exchange, QuestionRun, Trace
from vrjax.llm import ChatRequest, Message
from vrjax.llm.conversation_file import Conversation, said
from vrjax.llm.structured import worded
from vrjax.video import ReaderPool


@dataclass
class Lessons:
    """conversations: what can be learned. left_out: what could not, counted by reason."""

    conversations: list[Conversation] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass
class _Heard:
    """Replies of one place in a record, in order, with what was asked."""

    replies: list[tuple[ChatRequest, Exchange]] = field(default_factory=list)


def lessons_of(
    run: QuestionRun,
    folder: Path,
    *,
    tools: Sequence[Tool] = TOOLS,
    examples: Sequence[CriticExample] = (),
    transcript: Sequence[Spoken] | None = None,
    strategies: Mapping[str, bool] | None = None,
    workers: Workers | None = None,
    pool: ReaderPool | None = None,
) -> Lessons:
    """What one run teaches; images are written into `folder`.

    strategies: which traces may be learned from, by name (default: all that have an answer); the critic's reply is
    learned where its winner is one of them. transcript, examples, tools: those that the run had. Raises ReplayError
    where the record does not lead where it led, VideoError where the video is gone.
    """
    heard: dict[str, _Heard] = {}

    def listen(where: str, request: ChatRequest, exchange: Exchange) -> None:
        heard.setdefault(where, _Heard()).replies.append((request, exchange))

    replay(run, tools, examples, workers, listen)
    lessons = Lessons()
    usable = [
        trace
        for trace in run.traces
        if trace.answer is not None and (strategies or {}).get(trace.strategy, strategies is None)
    ]
    lessons.left_out["traces"] += len(run.traces) - len(usable)
    for trace in usable:
        where = f"{run.id}, {trace.strategy}"
        lessons.conversations += _agent_lessons(where, trace, heard.get(where, _Heard()), folder, lessons)
        for number, call_heard in enumerate(_tool_replies(run, trace, tools, transcript, pool, lessons), 1):
            lessons.conversations += _single_lessons(f"{where}, call {number}", call_heard, folder, lessons)
    if (
        run.verdict is not None
        and run.verdict.fallback is None
        and run.verdict.chosen in {one.strategy for one in usable}
    ):
        where = f"{run.id}, critic"
        lessons.conversations += _single_lessons(where, heard.get(where, _Heard()), folder, lessons)
    return lessons


def _agent_lessons(where: str, trace: Trace, heard: _Heard, folder: Path, lessons: Lessons) -> list[Conversation]:
    """The trace's own conversation, in as many pieces as its history was cut into; and its words on how sure it is."""
    free = [(request, reply) for request, reply in heard.replies if request.schema is None]
    forms = _Heard([(request, reply) for request, reply in heard.replies if request.schema is not None])
    pieces: list[tuple[list[Message], set[int]]] = []
    for (request, exchange), step in zip(free, trace.steps, strict=False):
        messages = list(request.messages)
        if not exchange.text or exchange.error is not None:
            lessons.left_out["blank replies"] += 1
            continue
        if step.shortened and trace.history_tokens is not None:  # a replay does not know what was sent
            lessons.left_out["steps with a history shortened by tokens"] += 1
            continue
        if not pieces or messages[: len(pieces[-1][0])] != pieces[-1][0]:
            pieces.append((messages, set()))
        else:
            pieces[-1][0].extend(messages[len(pieces[-1][0]) :])
        if step.kind in ("ok", "ended"):
            pieces[-1][1].add(len(pieces[-1][0]))
        else:
            lessons.left_out[f"steps: {step.kind}"] += 1
        pieces[-1][0].append(Message.assistant(exchange.text))
    found = [
        Conversation(
            id=f"{where}, part {number}",
            messages=tuple(
                said(one, folder, place in learned) for place, one in enumerate(messages[: max(learned) + 1])
            ),
        )
        for number, (messages, learned) in enumerate(pieces, 1)
        if learned
    ]
    return found + _single_lessons(f"{where}, confidence", forms, folder, lessons)


def _single_lessons(where: str, heard: _Heard, folder: Path, lessons: Lessons) -> list[Conversation]:
    """One conversation a reply; one that was asked for again was not in the form, and is left out."""
    found = []
    for number, (request, exchange) in enumerate(heard.replies):
        following = heard.replies[number + 1][0].messages if number + 1 < len(heard.replies) else ()
        again = request.schema is not None and len(following) > len(request.messages)
        if (
            not exchange.text
            or exchange.error is not None
            or (again and following[: len(request.messages)] == request.messages)
        ):
            lessons.left_out["replies of no use"] += 1
            continue
        messages = (*worded(request), Message.assistant(exchange.text))
        parts = tuple(said(one, folder, place == len(messages) - 1) for place, one in enumerate(messages))
        found.append(Conversation(id=f"{where}, reply {number + 1}", messages=parts))
    return found


def _tool_replies(
    run: QuestionRun,
    trace: Trace,
    tools: Sequence[Tool],
    transcript: Sequence[Spoken] | None,
    pool: ReaderPool | None,
    lessons: Lessons,
) -> list[_Heard]:
    """What each call asked its model, by carrying it out again on the video."""
    asking = [call for call in trace.calls if call.replies and call.error is None]
    lessons.left_out["calls that failed"] += sum(bool(call.replies) and call.error is not None for call in trace.calls)
    if not asking:
        return []
    known = {tool.name: tool for tool in tools}
    store = FrameStore(Path(run.video), Sampling(**run.settings["sampling"]), pool=pool)
    settings = replace(ToolSettings(**run.settings["tool_settings"]), windows_at_once=1)
    found = []
    for call in asking:
        heard = _Heard()

        def listen(_: str, request: ChatRequest, exchange: Exchange, heard: _Heard = heard) -> None:
            heard.replies.append((request, exchange))

        where = f"{run.id}, {trace.strategy}, {call.tool}"
        context = ToolContext(
            chat=RecordedChat(call.replies, where, listen),
            store=store,
            question=run.question,
            whole=store.whole,
            transcript=transcript,
            settings=settings,
        )
        output = as_json(
            asyncio.run(
                _carry_out(call.tool, {key: from_json(value) for key, value in call.inputs.items()}, known, context)
            )
        )
        if output != call.output:
            raise ReplayError(f"{where}: gives another result than was recorded. Was the video or the code changed?")
        found.append(heard)
    return found


async def _carry_out(name: str, inputs: dict[str, Any], known: Mapping[str, Tool], context: ToolContext) -> Any:
    direct = name.removeprefix("direct:")
    if direct == name:
        return await known[name].call(context, inputs)
    if direct in ("direct", "direct_transcript"):
        return await direct_inference(context, direct == "direct_transcript")
    answer = known[direct].answer
    assert answer is not None, f"{direct} answers no question by itself"
    return await answer(context)
