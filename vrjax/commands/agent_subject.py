"""An agent as the subject of an evaluation: each question's whole run is kept beside its answer.

OUT/traces.jsonl, settings.json   runs as `vrjax.agents.trace_file` writes them; of shards in OUT/traces.2-of-8/
OUT/replies/                      replies of endpoints: nothing is paid for twice
OUT/trace.html                    the first runs, for reading
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vrjax.agents import QuestionRun, Task, VideoAgent, read_traces, run_questions
from vrjax.agents.strategies import QuestionKind
from vrjax.agents.trace_file import TRACES, may_pass
from vrjax.agents.trace_page import write_trace_page
from vrjax.commands.agent_options import find_transcript
from vrjax.errors import InputError
from vrjax.evaluation.answer_log import Answer
from vrjax.evaluation.benchmark import Benchmark, Item
from vrjax.evaluation.shards import Shard
from vrjax.evaluation.subject import Asked
from vrjax.llm import ChatClient

ON_PAGE = 100


class AgentSubject:
    """Asks an agent that is closed with it. models: what agent, tools and critic are called, without addresses.

    out: folder of the evaluation. transcripts: folder of what is said in the videos, named as they are; a video without
    one has none. A run that is on disk is not made again, unless a model gave no reply in it.
    """

    def __init__(
        self,
        agent: VideoAgent,
        clients: Sequence[ChatClient],
        models: Mapping[str, str],
        out: Path,
        *,
        name: str | None = None,
        kind: QuestionKind = "qa",
        transcripts: Path | None = None,
        shard: Shard | None = None,
        questions_at_once: int = 4,
    ) -> None:
        self._agent, self._clients = agent, clients
        self._kind: QuestionKind = kind
        self._transcripts, self._at_once = transcripts, questions_at_once
        self._folder = out if shard is None else out / f"traces.{shard.index}-of-{shard.count}"
        self._name = name or f"{models['agent_model']}, {agent.mode}"
        self._settings = {**agent.settings, **models, "mode": agent.mode, "task": kind,
                          "transcripts": None if transcripts is None else str(transcripts)}  # fmt: skip

    @property
    def name(self) -> str:
        return self._name

    @property
    def settings(self) -> Mapping[str, Any]:
        return {f"agent.{key}": value for key, value in self._settings.items()}

    def wording(self, benchmark: Benchmark, item: Item) -> str:
        return benchmark.question(item)

    def answer(self, asked: Sequence[Asked], on_answer: Callable[[Answer], None]) -> None:
        """Raises InputError where a question is among the critic's examples, or the settings do not fit it."""
        known = {example.id for example in self._agent.examples} & {one.id for one in asked}
        if known:
            raise InputError(
                f"{len(known)} of the critic's examples are among the questions ({min(known)}). Take other examples."
            )
        tasks = []
        for one in asked:
            if one.video is None:
                on_answer(Answer(id=one.id, error="an agent needs a video, and the question has none", kind="prompt"))
            else:
                spoken = None if self._transcripts is None else find_transcript(self._transcripts, one.video)
                tasks.append(Task(one.id, one.text, one.video.resolve(), self._kind, spoken))
        done = read_traces(self._folder) if (self._folder / TRACES).exists() else {}
        for task in tasks:  # its run was written, and a kill came before its answer
            if task.id in done and not may_pass(done[task.id]):
                on_answer(answer_of(done[task.id]))
        left = [task for task in tasks if task.id not in done or may_pass(done[task.id])]
        if left:
            asyncio.run(self._run(left, lambda run: on_answer(answer_of(run))))
        runs = list(read_traces(self._folder).values()) if (self._folder / TRACES).exists() else []
        write_trace_page(self._folder / "trace.html", runs[:ON_PAGE], title=self._name)

    async def _run(self, tasks: Sequence[Task], tell: Callable[[QuestionRun], None]) -> None:
        try:
            with self._agent as agent:
                await run_questions(
                    agent, tasks, self._folder, questions_at_once=self._at_once, on_run=tell, settings=self._settings
                )
        finally:
            for client in self._clients:
                await client.aclose()


def answer_of(run: QuestionRun) -> Answer:
    """A run as an answer. What another try may mend is asked again at the next start."""
    if run.answer is not None:
        return Answer(id=run.id, text=run.answer)
    if not run.traces:
        return Answer(id=run.id, error=run.error, kind="video")
    return Answer(id=run.id, error=run.error, kind="server" if may_pass(run) else "no_answer")
