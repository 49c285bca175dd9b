"""One start of a dataset run, to be killed: python -m tests.agents.resumed_process URL SHAPES_FOLDER OUT"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from vrjax.agents import Sampling, Task, ToolSettings, VideoAgent, run_questions
from vrjax.llm import ChatClient, parse_llm
from vrjax.records import load_records


def main(url: str, folder: Path, out: Path) -> None:
    tasks = [
        Task(question.question_id, question.question, folder / record.video_path)
        for record in load_records(folder / "test.json")
        for question in record.questions
    ]

    class Named(ChatClient):
        """The address of the server differs between starts, and is no setting."""

        @property
        def name(self) -> str:
            return "openai:scripted"

    async def run() -> None:
        client = Named(parse_llm("openai:scripted", url), attempts=2)
        settings = {"sampling": Sampling(fps=2.0), "tool_settings": ToolSettings(window=10)}
        try:
            with VideoAgent(client, **settings) as agent:
                await run_questions(agent, tasks, out, questions_at_once=3)
        finally:
            await client.aclose()

    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
