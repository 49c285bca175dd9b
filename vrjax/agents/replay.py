"""A recorded run again, without a model and without the video: programs run anew, on recorded replies and results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from vrjax.agents.agent import AgentSettings, answer_directly, run_agent
from vrjax.agents.critic import CriticExample, CriticSettings, judge
from vrjax.agents.exchanges import Listener, RecordedChat, ReplayError
from vrjax.agents.history import RecordedRoom
from vrjax.agents.question import settle
from vrjax.agents.sandbox import Limits, Workers
from vrjax.agents.toolbox import RecordedToolbox
from vrjax.agents.tools import TOOLS, Tool
from vrjax.agents.trace import QuestionRun, Trace
from vrjax.agents.video_handle import Video


def replay(
    run: QuestionRun,
    tools: Sequence[Tool] = TOOLS,
    examples: Sequence[CriticExample] = (),
    workers: Workers | None = None,
    listener: Listener | None = None,
) -> QuestionRun:
    """The run again. listener: told of every reply of the agent and the critic that is given, with what was asked.
    tools: those of the recorded run, a user's own among them. workers: where many runs are replayed.

    Raises ReplayError where the programs, run on recorded results, do not lead where they led.
    """
    if run.error is not None and not run.traces:
        return run
    missing = {name for trace in run.traces if trace.replies for name in trace.tools} - {tool.name for tool in tools}
    if missing:
        raise ReplayError(f"{run.id}: the tools {', '.join(sorted(missing))} are not known. Give their file.")
    with ThreadPoolExecutor(8) as threads, contextlib.ExitStack() as stack:
        workers = workers or stack.enter_context(Workers(2))
        again = asyncio.run(_replay(run, tools, examples, workers, threads, listener))
    if again.without_times() != run.without_times():
        raise ReplayError(f"{run.id}: {difference(run, again)} differs between the record and its replay.")
    return again


async def _replay(
    run: QuestionRun,
    tools: Sequence[Tool],
    examples: Sequence[CriticExample],
    workers: Workers,
    threads: ThreadPoolExecutor,
    listener: Listener | None,
) -> QuestionRun:
    known = {tool.name: tool for tool in tools}
    raw = run.settings["agent"]
    settings = AgentSettings(**{**raw, "limits": Limits(**raw["limits"])})
    whole = Video(run.start, run.end)
    traces: list[Trace] = []
    for recorded in run.traces:
        where = f"{run.id}, {recorded.strategy}"
        if not recorded.replies:
            toolbox = RecordedToolbox({}, whole, recorded.calls, where)
            traces.append(await answer_directly(recorded.strategy, recorded.tools[0], toolbox))
            continue
        toolbox = RecordedToolbox({name: known[name] for name in recorded.tools}, whole, recorded.calls, where)
        trace = await run_agent(
            recorded.strategy,
            run.question,
            RecordedChat(recorded.replies, where, listener),
            toolbox,
            workers,
            threads,
            settings,
            single=run.mode.startswith("single_program"),
            self_evaluation=run.mode == "self_evaluation",
            room=_recorded_room(recorded),
        )
        traces.append(trace)
    verdict = None
    if run.verdict is not None:
        chat = RecordedChat(run.verdict.replies, f"{run.id}, critic", listener)
        critic = CriticSettings(**run.settings["critic"])
        verdict = await judge(run.id, run.question, traces, examples, chat, critic)
    answer, error = settle(traces, verdict)
    return run.model_copy(update={"traces": tuple(traces), "verdict": verdict, "answer": answer, "error": error})


def _recorded_room(trace: Trace) -> RecordedRoom | None:
    if trace.history_tokens is None:
        return None
    return RecordedRoom(trace.history_tokens, tuple(step.shortened for step in trace.steps))


def difference(one: QuestionRun, other: QuestionRun) -> str:
    """Where two runs first differ, as a path of fields; empty where they do not."""
    return _difference(one.without_times(), other.without_times(), "")


def _difference(one: object, other: object, path: str) -> str:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((found for key in one if (found := _difference(one[key], other[key], f"{path}.{key}"))), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for number, pair in pairs if (found := _difference(*pair, f"{path}[{number}]"))), "")
    return "" if one == other else path.lstrip(".") or "the record"
