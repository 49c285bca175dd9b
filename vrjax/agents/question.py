"""A question from its video to its answer: all strategies side by side, then the critic.

with VideoAgent(chat) as agent:
    run = asyncio.run(agent.answer(Task("q1", "What turns green?", Path("clip.mp4"))))
    print(run.answer, run.verdict.critique)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vrjax.agents.agent import AgentSettings, answer_directly, run_agent
from vrjax.agents.critic import CriticExample, CriticSettings, judge
from vrjax.agents.frame_store import FrameStore, Sampling
from vrjax.agents.modes import Mode, Work, plan_work
from vrjax.agents.sandbox import Workers
from vrjax.agents.strategies import QuestionKind
from vrjax.agents.toolbox import LiveToolbox
from vrjax.agents.tools import TOOLS, Spoken, Tool, ToolContext, ToolSettings
from vrjax.agents.tools.direct import direct_inference
from vrjax.agents.trace import QuestionRun, Trace, Verdict
from vrjax.errors import InputError, VideoError
from vrjax.llm import Chat
from vrjax.video import ReaderPool


@dataclass(frozen=True)
class Task:
    """A question as it is put, with its options and the form of its answer. kind: "localise" asks for a time span."""

    id: str
    question: str
    video: Path
    kind: QuestionKind = "qa"
    transcript: Sequence[Spoken] | None = None


class VideoAgent:
    """Answers questions about videos. A context manager; its settings are all that its traces depend on.

    chat: the model of agent, tools and critic; tool_chat, critic_chat: others for these. tools: the six and a user's
    own. strategies, subset: see `modes.plan_work`. open_videos: whose frames are kept. traces_at_once: programs and
    threads at work at the same time, over all questions. workers, pool: processes that run programs and read videos,
    where they are shared; by default two of each, ended with the agent.
    """

    def __init__(
        self,
        chat: Chat,
        *,
        mode: Mode = "critic",
        tools: Sequence[Tool] = TOOLS,
        strategies: tuple[str, ...] | None = None,
        subset: str | None = None,
        examples: Sequence[CriticExample] = (),
        tool_chat: Chat | None = None,
        critic_chat: Chat | None = None,
        agent: AgentSettings | None = None,
        tool_settings: ToolSettings | None = None,
        critic: CriticSettings | None = None,
        sampling: Sampling | None = None,
        open_videos: int = 2,
        traces_at_once: int = 32,
        workers: Workers | None = None,
        pool: ReaderPool | None = None,
    ) -> None:
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two tools are called {twice!r}. Give one of them another name.")
        self.chat, self.tool_chat, self.critic_chat = chat, tool_chat or chat, critic_chat or chat
        self.mode: Mode = mode
        self.tools = {tool.name: tool for tool in tools}
        self.strategies, self.subset, self.examples = strategies, subset, tuple(examples)
        self.agent, self.tool_settings = agent or AgentSettings(), tool_settings or ToolSettings()
        self.critic, self.sampling = critic or CriticSettings(), sampling or Sampling()
        self._given_workers, self._given_pool, self._traces_at_once = workers, pool, traces_at_once
        self._stores: OrderedDict[Path, FrameStore] = OrderedDict()
        self._opening: dict[Path, asyncio.Lock] = {}
        self._open_videos = open_videos

    def __enter__(self) -> VideoAgent:
        with contextlib.ExitStack() as stack:
            self._workers = self._given_workers or stack.enter_context(Workers(2))
            self._pool = self._given_pool or stack.enter_context(ReaderPool(2, time_limit_s=300.0))
            self._threads = stack.enter_context(ThreadPoolExecutor(self._traces_at_once, thread_name_prefix="program"))
            self._owned = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stores.clear()
        self._owned.close()

    @property
    def settings(self) -> dict[str, Any]:
        """All that a trace depends on, as JSON and without keys."""
        return {
            "agent_model": self.chat.name,
            "tool_model": self.tool_chat.name,
            "critic_model": self.critic_chat.name,
            "tools": list(self.tools),
            "strategies": None if self.strategies is None else list(self.strategies),
            "subset": self.subset,
            "examples": [example.id for example in self.examples],
            "agent": asdict(self.agent),
            "tool_settings": asdict(self.tool_settings),
            "critic": asdict(self.critic),
            "sampling": asdict(self.sampling),
        }

    def plan(self, task: Task) -> tuple[Work, ...]:
        """The traces that a question will have. Raises InputError where the settings do not fit it."""
        return plan_work(self.mode, self.tools, task.kind, task.transcript is not None, self.strategies, self.subset)

    async def answer(self, task: Task) -> QuestionRun:
        """The whole run of one question. A video that cannot be read is its `error`.

        Raises InputError for settings that do not fit the question, and ChatError where no further request would be
        answered.
        """
        began = time.monotonic()
        work = self.plan(task)
        base: dict[str, Any] = {
            "id": task.id,
            "question": task.question,
            "kind": task.kind,
            "video": str(task.video),
            "mode": self.mode,
            "seed": self.critic.seed,
            "settings": self.settings,
        }
        try:
            store = await self._open(task.video)
        except VideoError as error:
            seconds = time.monotonic() - began
            return QuestionRun(**base, start=0.0, end=0.0, error=str(error), seconds=seconds)
        context = ToolContext(
            chat=self.tool_chat,
            store=store,
            question=task.question,
            whole=store.whole,
            transcript=task.transcript,
            settings=self.tool_settings,
        )
        traces = await _together([self._trace(one, task, context) for one in work])
        verdict = None
        if self.mode == "critic":
            verdict = await judge(task.id, task.question, traces, self.examples, self.critic_chat, self.critic)
        answer, error = settle(traces, verdict)
        return QuestionRun(
            **base,
            start=store.whole.start,
            end=store.whole.end,
            traces=tuple(traces),
            verdict=verdict,
            answer=answer,
            error=error,
            seconds=time.monotonic() - began,
        )

    async def _trace(self, work: Work, task: Task, context: ToolContext) -> Trace:
        strategy = work.strategy
        if strategy.direct:
            answerers = {
                "direct": direct_inference,
                "direct_transcript": partial(direct_inference, with_transcript=True),
            }
            toolbox = LiveToolbox(
                context, [self.tools[name] for name in strategy.tools if name in self.tools], answerers
            )
            return await answer_directly(strategy.name, strategy.tools[0], toolbox)
        toolbox = LiveToolbox(context, [self.tools[name] for name in strategy.tools])
        return await run_agent(
            strategy.name,
            task.question,
            self.chat,
            toolbox,
            self._workers,
            self._threads,
            self.agent,
            single=work.single,
            self_evaluation=work.self_evaluation,
        )

    async def _open(self, path: Path) -> FrameStore:
        async with self._opening.setdefault(path, asyncio.Lock()):
            store = self._stores.get(path)
            if store is None:
                make = partial(FrameStore, path, self.sampling, pool=self._pool)
                store = await asyncio.to_thread(make)
                self._stores[path] = store
            self._stores.move_to_end(path)
            while len(self._stores) > self._open_videos:
                self._stores.popitem(last=False)  # whoever still works with it keeps it
            return store


def settle(traces: Sequence[Trace], verdict: Verdict | None) -> tuple[str | None, str | None]:
    """(answer, error) of a question: that of the chosen trace, or of the only one."""
    chosen = traces[0]
    if verdict is not None:
        chosen = next(trace for trace in traces if trace.strategy == verdict.chosen)
    if chosen.answer is not None:
        return chosen.answer, None
    reasons = [f"{trace.strategy}: {trace.error or 'no answer within its steps'}" for trace in traces]
    return None, "; ".join(reasons)


async def _together(coroutines: Sequence[Any]) -> list[Trace]:
    """All traces; where one meets what ends the run, the others are given up."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
