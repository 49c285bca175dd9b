"""`vrjax agent`: an agent answers a question about a video; and what is made of its traces."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vrjax.commands.agent_options import AgentOptions, ModeName
from vrjax.errors import InputError

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


@dataclass(frozen=True)
class _Scored:
    """Runs and how their traces are scored."""

    scores: Path | None = None
    """A JSON file, {question: {strategy: score}}."""
    benchmark: str | None = None
    """Or score each trace's answer by this benchmark …"""
    data: Path | None = None
    """… and its questions."""

    def score(self, runs: dict[str, QuestionRun]) -> dict[str, dict[str, float | None]]:
        from vrjax.agents.scored_runs import check_scores
        from vrjax.records import load_json

        if (self.scores is None) == (self.benchmark is None):
            raise InputError("give either --scores or --benchmark with --data.")
        if self.scores is not None:
            return check_scores(load_json(self.scores), str(self.scores))
        if self.data is None:
            raise InputError(f"--benchmark {self.benchmark} needs --data, its questions.")
        return score_traces(str(self.benchmark), self.data, runs)


def score_traces(benchmark: str, data: Path, runs: dict[str, QuestionRun]) -> dict[str, dict[str, float | None]]:
    """Each trace's answer by a benchmark's strict headline score: {question: {strategy: score}}.

    Raises InputError where no run is about one of its questions, and for benchmarks that a judge scores.
    """
    import asyncio

    from vrjax.evaluation.benchmark import Prediction, Tools
    from vrjax.evaluation.benchmarks import load_benchmark

    made = load_benchmark(benchmark)()
    if made.judged or made.compared:
        raise InputError(
            f"{benchmark}: is scored by a judge or a sentence model. Score it yourself, and give --scores."
        )
    items = {item.id: item for item in made.read(data) if item.id in runs}
    if not items:
        raise InputError(f"{data}: none of the runs is about one of its questions.")
    found: dict[str, dict[str, float | None]] = {name: {} for name in items}
    for strategy in dict.fromkeys(trace.strategy for run in runs.values() for trace in run.traces):
        chosen, predictions = [], []
        for name, item in items.items():
            trace = next((one for one in runs[name].traces if one.strategy == strategy), None)
            if trace is None:
                continue
            chosen.append(item)
            if trace.answer is None:
                predictions.append(Prediction(id=name, error=trace.error or trace.outcome))
            else:
                parsed = made.parse(item, trace.answer).values
                predictions.append(Prediction(id=name, text=trace.answer, parsed=parsed))
        for one in asyncio.run(made.score(chosen, predictions, Tools())).items:
            found[one.id][strategy] = one.values[made.headline]
    return found


@dataclass(frozen=True)
class BuildCriticExamples(_Scored):
    """Make examples for the critic from runs on training questions whose right answers are known.

    Example::

        vrjax agent build-critic-examples runs/train --benchmark neptune --data neptune --out examples.json --count 4
    """

    runs: tyro.conf.Positional[Path] = Path()
    """Folder with traces.jsonl."""
    out: Path = Path("critic_examples.json")
    """Where the examples go."""
    count: int = 4
    """How many."""
    ids: Path | None = None
    """Question ids that may be used, one a line or as JSON: a held-out list, which is left out of every score."""
    critiques: Path | None = None
    """Short critiques that people wrote, as JSON by question id."""

    def run(self) -> int:
        from vrjax.agents import read_traces
        from vrjax.agents.critic import save_examples
        from vrjax.agents.scored_runs import choose_examples
        from vrjax.evaluation.official_files import read_ids
        from vrjax.records import load_json

        runs = read_traces(self.runs)
        only = read_ids(self.ids) if self.ids else None
        critiques = load_json(self.critiques) if self.critiques else None
        examples = choose_examples(runs, self.score(runs), self.count, only=only, critiques=critiques)
        save_examples(self.out, examples)
        for example in examples:
            print(f"{example.id}: winners {', '.join(example.winners)}")
        print(f"{self.out}: {len(examples)} examples. Leave their questions out of every score.")
        return 0


@dataclass(frozen=True)
class BestSubset(_Scored):
    """Find the set of tools that is best on the whole, over runs of several strategies on the same questions.

    Example::

        vrjax agent best-subset runs/subsets --benchmark lvbench --data lvbench
    """

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders with traces.jsonl."""
    json: Flag = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        from vrjax.agents import read_traces
        from vrjax.agents.scored_runs import rank_subsets

        if not self.runs:
            raise InputError("name at least one folder with traces.jsonl.")
        scores: dict[str, dict[str, float | None]] = {}
        if self.scores is not None:
            scores = self.score({})
        for folder in self.runs if self.scores is None else ():
            for question, row in self.score(read_traces(folder)).items():
                scores.setdefault(question, {}).update(row)
        ranked = rank_subsets(scores)
        if self.json:
            print(
                json.dumps([{"strategy": one.strategy, "mean": one.mean, "questions": one.questions} for one in ranked])
            )
            return 0
        for one in ranked:
            print(f"{one.mean:8.4f}  {one.questions:6d}  {one.strategy}")
        print(f"best: --subset {ranked[0].strategy}")
        return 0


@dataclass(frozen=True)
class ReplayTraces:
    """Run recorded programs again on recorded replies and results, without model and video, and compare.

    Example::

        vrjax agent replay runs/agent --tools my_tools.py
    """

    folder: tyro.conf.Positional[Path]
    """Folder with traces.jsonl."""
    tools: Path | None = None
    """The Python file of further tools that the runs had."""
    critic_examples: Path | None = None
    """The critic's examples that the runs had."""

    def run(self) -> int:
        from vrjax.agents import TOOLS, Workers, load_tools, read_traces, replay
        from vrjax.agents.critic import load_examples

        tools = (*TOOLS, *(load_tools(self.tools) if self.tools else ()))
        examples = load_examples(self.critic_examples) if self.critic_examples else ()
        runs = read_traces(self.folder)
        with Workers(2) as workers:
            for run in runs.values():
                replay(run, tools, examples, workers)
        print(f"{self.folder}: {len(runs)} runs lead where they led.")
        return 0


@dataclass(frozen=True)
class TracePage:
    """Write one page for reading traces.

    Example::

        vrjax agent page runs/agent --out traces.html
    """

    folder: tyro.conf.Positional[Path]
    """Folder with traces.jsonl."""
    out: Path | None = None
    """Where the page goes; by default FOLDER/trace.html."""
    limit: int = 200
    """Questions on the page, the first."""
    no_pictures: Flag = False
    """Leave out the frames, whose videos are then not read."""

    def run(self) -> int:
        from vrjax.agents import read_traces
        from vrjax.agents.trace_page import write_trace_page

        runs = list(read_traces(self.folder).values())
        if len(runs) > self.limit:
            print(f"{len(runs) - self.limit} of {len(runs)} questions are left out (--limit {self.limit}).")
        shown = runs[: self.limit]
        videos = {} if self.no_pictures else {run.id: Path(run.video) for run in shown if Path(run.video).is_file()}
        out = self.out or (self.folder if self.folder.is_dir() else self.folder.parent) / "trace.html"
        write_trace_page(out, shown, videos=videos)
        print(f"{out}: written.")
        return 0


@dataclass(frozen=True)
class SftData(_Scored):
    """Make training conversations of runs: every reply of agent, critic and tools behind exactly what led to it.

    Videos are read again for the frames that were looked at; no model is asked. With scores, only traces that scored
    above 0 are learned from. `vrjax train` reads the file as a dataset of the form "conversations".

    Example::

        vrjax agent sft-data runs/teacher --out data/traces --benchmark neptune --data neptune
    """

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders with traces.jsonl."""
    out: Path = Path("agent_sft")
    """Folder for conversations.jsonl and the images."""
    transcripts: Path | None = None
    """Folder of the transcripts that the runs had, named as the videos."""
    tools: Path | None = None
    """The Python file of further tools that the runs had."""
    critic_examples: Path | None = None
    """The critic's examples that the runs had."""

    def run(self) -> int:
        from collections import Counter

        from vrjax.agents import TOOLS, Workers, load_tools, read_traces
        from vrjax.agents.critic import load_examples
        from vrjax.agents.lessons import lessons_of
        from vrjax.commands.agent_options import find_transcript
        from vrjax.llm.conversation_file import save_conversations
        from vrjax.video import ReaderPool

        if not self.runs:
            raise InputError("name at least one folder with traces.jsonl.")
        tools = (*TOOLS, *(load_tools(self.tools) if self.tools else ()))
        examples = load_examples(self.critic_examples) if self.critic_examples else ()
        scored = self.scores is not None or self.benchmark is not None
        found, left_out = {}, Counter[str]()
        with Workers(2) as workers, ReaderPool(2, time_limit_s=300.0) as pool:
            for folder in self.runs:
                runs = read_traces(folder)
                scores = self.score(runs) if scored else {}
                for run in runs.values():
                    right = {name: bool(value) for name, value in scores.get(run.id, {}).items()} if scored else None
                    spoken = None if self.transcripts is None else find_transcript(self.transcripts, Path(run.video))
                    lessons = lessons_of(
                        run, self.out, tools=tools, examples=examples, transcript=spoken, strategies=right,
                        workers=workers, pool=pool,
                    )  # fmt: skip
                    left_out.update(lessons.left_out)
                    found.update(
                        {f"{folder.name}/{one.id}": one.model_copy(update={"id": f"{folder.name}/{one.id}"})
                         for one in lessons.conversations}
                    )  # fmt: skip
        if not found:
            raise InputError(f"{', '.join(map(str, self.runs))}: no reply can be learned from. Check runs and scores.")
        path = self.out / "conversations.jsonl"
        save_conversations(path, found.values())
        replies = sum(one.learn for conversation in found.values() for one in conversation.messages)
        print(f"{path}: {len(found)} conversations, {replies} replies to learn.")
        for reason, count in sorted((+left_out).items()):
            print(f"left out: {count} {reason}")
        return 0


SUBCOMMANDS = {
    "sft-data": SftData,
    "build-critic-examples": BuildCriticExamples,
    "best-subset": BestSubset,
    "replay": ReplayTraces,
    "page": TracePage,
}
