"""`vrjax agent SUBCOMMAND`: what is made of an agent's traces."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vrjax.errors import InputError

if TYPE_CHECKING:
    from vrjax.agents import QuestionRun

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


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
