"""CAViAR on a benchmark: questions from its files, an agent's run for each, scores by its rules beside the paper's.

OUT/traces.jsonl, settings.json   see `vrjax.agents.trace_file`; started again, a run goes on where it was cut off
OUT/replies/                      replies of the models: nothing is paid for twice
OUT/scores.json                   official and strict values, intervals, coverage; what agent and critic did
OUT/trace.html                    the first questions, for reading
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vrjax.agents import CriticSettings, Sampling, Task, ToolSettings, VideoAgent, run_questions
from vrjax.agents.critic import load_examples
from vrjax.agents.strategies import QuestionKind
from vrjax.agents.trace import QuestionRun
from vrjax.agents.trace_page import write_trace_page
from vrjax.commands.agent_options import ModeName, make_client
from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, Item, Prediction, Tools
from vrjax.video.transcript import read_transcript

ENDINGS = (".mp4", ".mkv", ".webm", ".avi", ".mov")
SPOKEN = (".srt", ".vtt", ".json", ".jsonl")


@dataclass(frozen=True)
class Options:
    """Options of the three experiments."""

    data: Path
    """The benchmark's questions, in the official form."""
    videos: Path
    """Folder of the videos."""
    out: Path
    """Folder for traces, replies and scores."""
    llm: str
    """Model of agent, tools and critic: openai:MODEL or native:DIR."""
    base_url: str | None = None
    """Address of the endpoint; by default OpenAI's."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the endpoint's key."""
    mode: ModeName = "critic"
    """How to answer; see `vrjax agent --help`."""
    strategies: tuple[str, ...] = ()
    """Of the mode critic; by default CAViAR's three."""
    subset: str | None = None
    """Tools of the modes …_best_subset; by default those that the paper found."""
    critic_examples: Path | None = None
    """Four examples for the critic, made by `vrjax agent build-critic-examples`."""
    transcripts: Path | None = None
    """Folder of transcripts, named as the videos."""
    held_out: Path | None = None
    """Ids of questions that are left out, such as those of the critic's examples."""
    limit: int | None = None
    """Only the first so many questions."""
    fps: float = 1.0
    """Frames a second that the tools look at."""
    window: int = 120
    """Frames that a model is shown at once."""
    questions_at_once: int = 4
    """Questions at the same time."""
    concurrency: int = 8
    """Calls to the endpoint at the same time."""
    seed: int = 0
    """Of the order in which the critic reads the attempts."""


def run(
    options: Options,
    benchmark: Benchmark,
    kind: QuestionKind,
    paper: Mapping[str, float],
    paper_subset: str,
) -> int:
    """Answer, score, write, print; the exit code. paper: published headline in percent by mode.

    Raises InputError for a transcript where the benchmark forbids it, for examples that are among the scored questions,
    and for videos that are missing.
    """
    benchmark.admit(transcript=options.transcripts is not None)
    left_out = _ids(options.held_out)
    items = [item for item in benchmark.read(options.data) if item.id not in left_out][: options.limit]
    if not items:
        raise InputError(f"{options.data}: no question is left. Check --held-out and --limit.")
    examples = load_examples(options.critic_examples) if options.critic_examples else ()
    shared = sorted({example.id for example in examples} & {item.id for item in items})
    if shared:
        raise InputError(
            f"{options.critic_examples}: {len(shared)} examples are among the questions to score ({shared[0]}, …). "
            "Name them in --held-out."
        )
    tasks = [_task(benchmark, item, options, kind) for item in items]
    client = make_client(
        options.llm, options.base_url, options.api_key_env, options.out / "replies", options.concurrency
    )
    agent = VideoAgent(
        client,
        mode=options.mode,
        strategies=options.strategies or None,
        subset=(options.subset or paper_subset) if options.mode.endswith("best_subset") else None,
        examples=examples,
        tool_settings=ToolSettings(window=options.window),
        critic=CriticSettings(seed=options.seed),
        sampling=Sampling(fps=options.fps),
    )
    with agent:
        runs = asyncio.run(_answer(agent, tasks, options, client))
    predictions = [_prediction(benchmark, item, runs[item.id]) for item in items]
    score = asyncio.run(benchmark.score(items, predictions, Tools()))
    summary = {
        "benchmark": benchmark.name,
        "mode": options.mode,
        "questions": len(items),
        "official": dict(score.official),
        "strict": dict(score.strict),
        "intervals": {name: asdict(interval) for name, interval in score.intervals.items()},
        "coverage": score.coverage,
        "failures": dict(score.failures),
        "quirks": list(score.quirks),
        "paper_percent": paper.get(options.mode),
        "agent": run_facts(list(runs.values())),
    }
    benchmark.write_submission(options.out / benchmark.submission, items, predictions)
    partial = options.out / ".scores.json.partial"
    partial.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, options.out / "scores.json")
    write_trace_page(options.out / "trace.html", list(runs.values())[:100], title=f"{benchmark.name}, {options.mode}")
    print(
        json.dumps(
            {key: summary[key] for key in ("official", "strict", "coverage", "paper_percent", "agent")}, indent=1
        )
    )
    return 0


def run_facts(runs: list[QuestionRun]) -> dict[str, Any]:
    """What the agents and the critic did, counted: outcomes, choices, fallbacks, notes of the tools, tokens."""
    traces = [trace for run in runs for trace in run.traces]
    verdicts = [run.verdict for run in runs if run.verdict is not None]
    notes: Counter[str] = Counter()
    for trace in traces:
        for call in trace.calls:
            notes.update(call.notes)
    return {
        "outcomes": dict(Counter(trace.outcome for trace in traces)),
        "steps": sum(len(trace.steps) for trace in traces),
        "chosen": dict(Counter(verdict.chosen for verdict in verdicts)),
        "critic_fallbacks": dict(Counter(verdict.fallback for verdict in verdicts if verdict.fallback)),
        "tool_notes": dict(notes),
        "prompt_tokens": sum(run.tokens[0] for run in runs),
        "completion_tokens": sum(run.tokens[1] for run in runs),
    }


async def _answer(agent: VideoAgent, tasks: list[Task], options: Options, client: Any) -> dict[str, QuestionRun]:
    done = 0

    def tell(found: QuestionRun) -> None:
        nonlocal done
        done += 1
        print(f"[{done}] {found.id}: {found.answer if found.answer is not None else found.error}", flush=True)

    try:
        return await run_questions(agent, tasks, options.out, questions_at_once=options.questions_at_once, on_run=tell)
    finally:
        await client.aclose()


def _task(benchmark: Benchmark, item: Item, options: Options, kind: QuestionKind) -> Task:
    name = item.video_file or item.video
    video = _find(options.videos, name, ENDINGS)
    if video is None:
        raise InputError(
            f"{options.videos}: no video {name} for question {item.id}. Fetch it, or hold the question out."
        )
    spoken = None
    if options.transcripts is not None:
        path = _find(options.transcripts, Path(name).stem if Path(name).suffix in ENDINGS else name, SPOKEN)
        spoken = None if path is None else read_transcript(path).utterances
    return Task(item.id, benchmark.question(item), video, kind, spoken)


def _find(folder: Path, name: str, endings: tuple[str, ...]) -> Path | None:
    places = [folder / name, *(folder / f"{name}{ending}" for ending in endings)]
    return next((path for path in places if path.is_file()), None)


def _prediction(benchmark: Benchmark, item: Item, found: QuestionRun) -> Prediction:
    if found.answer is None:
        return Prediction(id=item.id, error=found.error or "no answer")
    return Prediction(id=item.id, text=found.answer, parsed=benchmark.parse(item, found.answer).values)


def _ids(path: Path | None) -> frozenset[str]:
    from vrjax.evaluation.official_files import read_ids

    return frozenset() if path is None else read_ids(path)
