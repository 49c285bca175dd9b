"""`vrjax agent`: an agent answers a question about a video (`agent_traces`: what is made of its traces)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vrjax.commands.agent_options import AgentOptions, ModeName

if TYPE_CHECKING:
    from vrjax.agents import QuestionRun

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class Agent(AgentOptions):
    """Answer a question about a video by an agent that writes programs, and a critic that chooses among its attempts.

    Strategies are `all`, tools joined by + (get_segment+retrieval_qa) or `direct:TOOL`, a tool that answers by itself.

    Examples::

        vrjax agent film.mp4 "Who opens the door?" --llm openai:gpt-4o-mini --out runs/agent
        vrjax agent film.mp4 "When does it rain?" --task localise --llm openai:qwen --base-url http://localhost:8000/v1
        vrjax agent talk.mp4 "What is promised?" --llm openai:qwen --transcript talk.srt --tools my_tools.py
        vrjax agent film.mp4 "Who sings?" --llm native:DIR --strategies all get_segment+retrieval_qa

        vrjax agent build-critic-examples runs/train --benchmark neptune --data neptune --out examples.json
        vrjax agent best-subset runs/a runs/b --scores scores.json
        vrjax agent replay runs/agent
        vrjax agent page runs/agent
        vrjax agent sft-data runs/agent --out data/traces
    """

    video: tyro.conf.Positional[Path]
    """A video file."""
    question: tyro.conf.Positional[str]
    """What to ask, with the options and the form of the answer where these matter."""
    llm: str
    """Model of agent, tools and critic: openai:MODEL or native:DIR."""
    base_url: str | None = None
    """Address of the endpoint; by default OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the endpoint's key."""
    mode: ModeName = "critic"
    """How to answer; the others are what the critic is compared with."""
    transcript: Path | None = None
    """What is said in the video: .srt, .vtt, .json or .jsonl."""
    out: Path | None = None
    """Folder for traces.jsonl, trace.html and the replies; started again, nothing is asked twice."""
    concurrency: int = 8
    """Calls to the endpoint at the same time."""
    seed: int = 0
    """Of the order in which the critic reads the attempts."""
    json: Flag = False
    """Print the whole run as JSON."""

    def run(self) -> int:
        """Answer, print, and return the exit code: 1 where no answer was found."""
        import asyncio

        from vrjax.agents import Task
        from vrjax.video import probe
        from vrjax.video.transcript import read_transcript

        probe(self.video)  # a bad file is named before a model is loaded
        spoken = read_transcript(self.transcript).utterances if self.transcript else None
        cache = None if self.out is None else self.out / "replies"
        clients = self.clients(self.llm, self.base_url, self.api_key_env, cache, self.concurrency)
        task = Task("question", self.question, self.video.resolve(), self.task, spoken)
        agent = self.make(self.mode, self.llm, clients, self.seed)
        agent.plan(task)

        async def answer() -> QuestionRun:
            try:
                return await agent.answer(task)
            finally:
                for client in clients.values():
                    await client.aclose()

        with agent:
            found = asyncio.run(answer())
        if self.out is not None:
            self._write(found, agent.settings)
        if self.json:
            print(json.dumps(found.model_dump(mode="json"), indent=1, ensure_ascii=False))
        else:
            _show(found)
        return 0 if found.answer is not None else 1

    def _write(self, found: QuestionRun, settings: dict) -> None:
        from vrjax.agents.trace_file import TRACES
        from vrjax.agents.trace_page import write_trace_page

        assert self.out is not None
        self.out.mkdir(parents=True, exist_ok=True)
        partial = self.out / f".{TRACES}.partial"
        partial.write_text(json.dumps(found.model_dump(mode="json")) + "\n", encoding="utf-8")
        os.replace(partial, self.out / TRACES)
        write_trace_page(self.out / "trace.html", [found], videos={found.id: self.video})


def _show(run: QuestionRun) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    console.print(f"[bold]Answer[/bold]  {escape(run.answer if run.answer is not None else f'(none) {run.error}')}")
    table = Table("strategy", "answer", "steps", "calls", "outcome", "")
    for trace in run.traces:
        chosen = run.verdict is not None and run.verdict.chosen == trace.strategy
        table.add_row(
            escape(trace.strategy), escape((trace.answer or trace.error or "")[:200]), str(len(trace.steps)),
            str(len(trace.calls)), trace.outcome, "chosen" if chosen else "",
        )  # fmt: skip
    console.print(table)
    if run.verdict is not None:
        console.print(f"[bold]Critic[/bold]  {escape(run.verdict.critique or run.verdict.error or '')}")
        if run.verdict.fallback:
            console.print(f"[yellow]note:[/yellow] the critic named no usable winner ({run.verdict.fallback})")
    prompt, completion = run.tokens
    console.print(f"{prompt} + {completion} tokens, {run.seconds:.1f} s", style="dim")
