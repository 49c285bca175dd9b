"""The demo's agent stage: one question about a real clip, answered by strategies and a critic.

No large model runs here: a scripted chat endpoint, served on this machine, stands in for one. It sees the requests
alone, as a real endpoint would, and answers by rules and by the colours of the pictures that it is sent. Programs,
sandbox, tools, frames, traces and the critic's choice are the real ones; the answer says nothing of any model.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import ShapesScript
from vrjax.agents import QuestionRun, Sampling, Task, ToolSettings, VideoAgent, replay, run_questions
from vrjax.agents.trace_page import write_trace_page
from vrjax.evaluation import report
from vrjax.llm import ChatClient, parse_llm

STAND_IN = "A scripted endpoint on this machine stands in for a large model: it answers by rules, not by understanding."


@dataclass(frozen=True)
class AgentStage:
    """run: everything that was done; reference: the right answer."""

    run: QuestionRun
    reference: str
    seconds: float

    @property
    def summary(self) -> dict[str, Any]:
        calls = [call for trace in self.run.traces for call in trace.calls]
        return {
            "model": "scripted stand-in, not a model",
            "question": self.run.question,
            "reference": self.reference,
            "answer": self.run.answer,
            "chosen": None if self.run.verdict is None else self.run.verdict.chosen,
            "outcomes": {trace.strategy: trace.outcome for trace in self.run.traces},
            "steps": sum(len(trace.steps) for trace in self.run.traces),
            "tool_calls": len(calls),
            "frames_looked_at": sum(len(call.frames) for call in calls),
            "seconds": self.seconds,
        }

    def table(self) -> report.Table:
        """Each program of each strategy with what came of it."""
        chosen = None if self.run.verdict is None else self.run.verdict.chosen
        rows = [
            [
                f"{trace.strategy}{' (chosen)' if trace.strategy == chosen else ''}" if number == 0 else "",
                step.program or step.thought,
                step.result.strip() or (f"answer: {trace.answer}" if step is trace.steps[-1] else ""),
                ", ".join(f"{call.tool} ({len(call.frames)} frames)" for call in step.calls),
            ]
            for trace in self.run.traces
            for number, step in enumerate(trace.steps)
        ]
        critique = "" if self.run.verdict is None else f" The critic: {self.run.verdict.critique}"
        return report.Table(
            "CAViAR: an agent writes programs over the clip",
            ("strategy", "program", "result", "tools"),
            rows,
            (f"{STAND_IN} Tools, programs and frames are real.{critique}", f"Asked: {self.run.question}"),
        )


def run_agent_stage(question_id: str, question: str, reference: str, video: Path, out: Path) -> AgentStage:
    """Answer one question in the mode `critic`; traces and their page lie in `out`, and the run is replayed once."""
    start = time.perf_counter()
    task = Task(question_id, question, video.resolve())
    with scripted_endpoint(ShapesScript()) as endpoint:

        class Named(ChatClient):
            """The port differs between starts, and is no setting."""

            @property
            def name(self) -> str:
                return "scripted stand-in"

        client = Named(parse_llm("openai:scripted", endpoint.url))
        agent = VideoAgent(client, sampling=Sampling(fps=2.0), tool_settings=ToolSettings(window=16))

        async def answer() -> dict[str, QuestionRun]:
            try:
                return await run_questions(agent, [task], out)
            finally:
                await client.aclose()

        with agent:
            run = asyncio.run(answer())[question_id]
            replay(run)
    write_trace_page(out / "trace.html", [run], references={run.id: reference}, videos={run.id: task.video})
    return AgentStage(run, reference, time.perf_counter() - start)
