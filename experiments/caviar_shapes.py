"""A small model learns to be agent, critic and tools from the traces of a scripted one, and runs by itself.

    python -m experiments.caviar_shapes --out runs/caviar_shapes

Clips of shapes are made; a scripted endpoint (`experiments.shapes_script`, rules and pixel tests, no model) answers the
training questions as agent, critic and tools; its traces become conversations (`vrjax agent sft-data`); a Qwen2.5-VL of
about a million parameters is trained on them (`vrjax train`) and then answers held-out questions in all three roles,
natively, many traces in a batch. What is shown: that the line holds from end to end. The teacher answers with the
colour that it sees most of, so the answers' accuracy says little, and that of the teacher is printed beside it.

Each stage goes on where an earlier call ended.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from data_tools.shapes.tokenizer import build_tokenizer
from experiments.command import go_on_if_finished, run_command
from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import ShapesScript
from experiments.shapes_sft import model_config
from vrjax.agents import AgentSettings, CriticSettings, QuestionRun, Sampling, Task, ToolSettings, VideoAgent
from vrjax.agents.modes import Mode
from vrjax.agents.trace_file import read_traces, run_questions
from vrjax.agents.trace_page import write_trace_page
from vrjax.commands.agent_traces import SftData
from vrjax.evidence import exact_match
from vrjax.generation import Engine, EngineOptions
from vrjax.ledger import Ledger
from vrjax.llm import Chat, ChatClient, NativeChat, parse_llm
from vrjax.llm.conversation_file import load_conversations
from vrjax.loading import load, load_run, save
from vrjax.records import load_records
from vrjax.training import (
    BatchConfig,
    CheckpointConfig,
    DatasetConfig,
    FreshModel,
    OptimizerConfig,
    SftConfig,
    sft,
)

MODES: tuple[Mode, ...] = ("critic", "direct")
CONTEXT = 4096
# Small windows of small pictures, short prompts and replies: what a small model can take.
SETTINGS: dict[str, Any] = {
    "agent": AgentSettings(steps=6, max_tokens=128, brief=True),
    "tool_settings": ToolSettings(window=12, max_tokens=96),
    "critic": CriticSettings(max_tokens=48, trace_characters=1500),
    "sampling": Sampling(fps=1.0, max_pixels=56 * 56),
}


@dataclass(frozen=True)
class CaviarShapes:
    """Train a small model on a scripted agent's traces, and let it run."""

    out: Path = Path("runs/caviar_shapes")
    """Run directory; a second call goes on where the first was cut off."""
    clips: int = 48
    """Clips that the scripted agent is asked about, four questions each."""
    test_clips: int = 5
    """Held-out clips."""
    steps: int = 600
    """Steps of training, of eight conversations."""
    seed: int = 0
    """Of clips, weights and the order of training."""


console = Console()


def run(options: CaviarShapes) -> int:
    """Run all stages; returns the exit code."""
    data, kept = options.out / "data", options.out / "seconds.json"
    seconds: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}

    def timed(name: str, work: Any) -> Any:
        """Do the work of a stage; its seconds, those of earlier calls included, are kept."""
        start = time.perf_counter()
        try:
            return work()
        finally:
            seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - start, 1)
            options.out.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(seconds, indent=1) + "\n")
            console.print(f"{name}: {seconds[name]:.0f} s")

    clips = DatasetOptions(train=options.clips, val=1, test=options.test_clips, seed=options.seed)
    timed("clips", lambda: make_dataset(data, clips, workers=2))
    timed("the scripted agent's traces", lambda: teach(tasks_of(data, "train"), options.out / "teacher"))
    conversations = options.out / "lessons" / "conversations.jsonl"
    if not conversations.exists():
        folders = tuple(options.out / "teacher" / mode for mode in MODES)
        timed("conversations", lambda: SftData(runs=folders, out=conversations.parent).run())
    tokenizer, vocabulary = make_tokenizer(conversations, options.out / "tokenizer")
    config = make_config(conversations, tokenizer, vocabulary, options.out / "sft", options.steps, options.seed)
    timed("training", lambda: go_on_if_finished(sft(config)))
    if not (options.out / "model").exists():
        save(load_run(options.out / "sft")[0], options.out / "model")

    tasks, references = tasks_of(data, "test"), references_of(data, "test")
    teacher = teach(tasks, options.out / "teacher_test")
    found: dict[str, dict[str, QuestionRun]] = {}
    figures: dict[str, Any] = {}
    ledger = Ledger()  # one, so that the engines share compiled programs
    ways: tuple[tuple[str, Mode, int, int], ...] = (
        ("together", "critic", 16, 1 << 28),
        ("alone", "critic", 1, 1 << 28),  # each request is a batch of its own
        ("without reuse", "critic", 16, 1),  # no block fits: the same buckets, and nothing kept
        ("direct", "direct", 16, 1 << 28),
    )
    for name, mode, rows, prefix_bytes in ways:
        engine = EngineOptions(batch_rows=rows, chunk=32, unroll=False, prefix_cache_bytes=prefix_bytes)
        folder = options.out / "native" / name.replace(" ", "_")
        work = partial(answer_natively, options.out / "model", tasks, mode, engine, ledger, folder)
        runs, counted = timed(f"the model, {name}", work)
        found[name], figures[name] = runs, counted
    summary = summarise(found, teacher, references) | {"seconds": seconds, "engine": figures}
    summary["conversations"] = len(load_conversations(conversations))
    write_trace_page(
        options.out / "trace.html", list(found["together"].values()), references=references,
        videos={task.id: task.video for task in tasks},
    )  # fmt: skip
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    show(summary)
    return 0 if summary["finished"] >= 0.9 and summary["traces_equal_alone"] == summary["traces"] else 1


def tasks_of(data: Path, split: str) -> list[Task]:
    return [
        Task(question.question_id, question.question, (data / record.video_path).resolve())
        for record in load_records(data / f"{split}.json")
        for question in record.questions
    ]


def references_of(data: Path, split: str) -> dict[str, str]:
    return {
        question.question_id: question.answer
        for record in load_records(data / f"{split}.json")
        for question in record.questions
    }


def teach(tasks: Sequence[Task], out: Path) -> dict[Mode, dict[str, QuestionRun]]:
    """The scripted agent's runs, in both modes."""

    class Named(ChatClient):
        """The port differs between starts, and is no setting."""

        @property
        def name(self) -> str:
            return "scripted, not a model"

    found = {}
    with scripted_endpoint(ShapesScript()) as endpoint:
        for mode in MODES:
            client = Named(parse_llm("openai:scripted", endpoint.url), concurrency=8)
            found[mode] = answer(client, tasks, mode, 4, out / mode)
    return found


def answer(chat: Chat, tasks: Sequence[Task], mode: Mode, at_once: int, out: Path) -> dict[str, QuestionRun]:
    async def work() -> dict[str, QuestionRun]:
        try:
            return await run_questions(agent, tasks, out, questions_at_once=at_once)
        finally:
            await chat.aclose()  # pyright: ignore[reportAttributeAccessIssue]

    agent = VideoAgent(chat, mode=mode, open_videos=len(tasks), traces_at_once=96, **SETTINGS)
    with agent:
        return asyncio.run(work())


def answer_natively(
    path: Path, tasks: Sequence[Task], mode: Mode, options: EngineOptions, ledger: Ledger, out: Path
) -> tuple[dict[str, QuestionRun], dict[str, int]]:
    """The model's runs as agent, tools and critic, and what its engine computed for them."""
    written = out / "engine.json"
    if written.exists():
        return read_traces(out), json.loads(written.read_text(encoding="utf-8"))
    model, before = load(path), len(ledger.entries)
    backend = NativeChat(model, engine=Engine(model, options, ledger))
    client = ChatClient(backend, concurrency=64, timeout_s=None)
    runs = answer(client, tasks, mode, len(tasks), out)
    padding, kept = backend.engine.padding, backend.engine.kept
    counted = {
        "prefilled_tokens": padding.used["prefill"],
        "prefilled_with_padding": padding.computed["prefill"],
        "reused_tokens": 0 if kept is None else kept.reused,
        "vision_patches": padding.used["vision"],
        "drawn_tokens": backend.engine.drawn,
        "programs_compiled": len(ledger.entries) - before,
        "requests": client.counts.numbers["calls"],
    }
    written.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")
    return runs, counted


def make_tokenizer(conversations: Path, folder: Path) -> tuple[Path, dict[str, int]]:
    """A word tokenizer of all that is said, and of the numbers up to 99; made once."""
    from transformers import AutoTokenizer

    if not (folder / "tokenizer.json").is_file():
        texts = {
            part.text
            for one in load_conversations(conversations)
            for message in one.messages
            for part in message.parts
            if part.text is not None
        }
        build_tokenizer([*sorted(texts), *map(str, range(100)), *(f"{number:02d}" for number in range(60))], folder)
    return folder, AutoTokenizer.from_pretrained(str(folder)).get_vocab()


def make_config(
    conversations: Path, tokenizer: Path, vocabulary: dict[str, int], run_dir: Path, steps: int, seed: int
) -> SftConfig:
    """SFT on conversations, with the model and the optimiser of `experiments.shapes_sft`."""
    sizes = model_config(vocabulary)
    sizes = replace(sizes, text=replace(sizes.text, max_positions=CONTEXT))
    return SftConfig(
        run_dir=run_dir,
        model=FreshModel(sizes, tokenizer, seed),
        data=(DatasetConfig(conversations, form="conversations"),),
        batch=BatchConfig(videos=8, questions=1, max_programs=3, max_padding=0.25),
        optimizer=OptimizerConfig(
            method="muon", learning_rate=2e-3, warmup=min(50, steps // 4), b2=0.99, final_share=0.02
        ),
        steps=steps,
        freeze_vision=False,
        remat=False,
        checkpoints=CheckpointConfig(save_every=100, keep_last=1),
        log_every=10,
        seed=seed,
    )


def summarise(
    found: dict[str, dict[str, QuestionRun]],
    teacher: dict[Mode, dict[str, QuestionRun]],
    references: dict[str, str],
) -> dict[str, Any]:
    """Shares of finished traces and right answers, and how many traces are the same in other company."""
    together = found["together"]
    traces = [trace for run in together.values() for trace in run.traces]

    def right(answers: dict[str, str | None]) -> float:
        hits = [float(exact_match(answers[name] or "", reference)) for name, reference in references.items()]
        return sum(hits) / len(hits)

    def chosen(runs: dict[str, QuestionRun]) -> float:
        return right({name: run.answer for name, run in runs.items()})

    def same(other: str) -> int:
        pairs = [
            (one, two)
            for name, run in together.items()
            for one, two in zip(run.traces, found[other][name].traces, strict=True)
        ]
        return sum(_plain(one) == _plain(two) for one, two in pairs)

    names = dict.fromkeys(trace.strategy for trace in traces)
    return {
        "questions": len(references),
        "traces": len(traces),
        "finished": sum(trace.outcome == "finished" for trace in traces) / len(traces),
        "forced": sum(trace.outcome == "forced" for trace in traces),
        "critic_fallbacks": sum(run.verdict is not None and run.verdict.fallback is not None
                                for run in together.values()),
        "traces_equal_alone": same("alone"),
        "traces_equal_without_reuse": same("without reuse"),
        "accuracy": {
            "agent and critic": chosen(together),
            **{
                name: right({
                    key: next(trace.answer for trace in run.traces if trace.strategy == name)
                    for key, run in together.items()
                })
                for name in names
            },
            "direct inference, same weights": chosen(found["direct"]),
            "scripted teacher, agent and critic": chosen(teacher["critic"]),
            "scripted teacher, direct": chosen(teacher["direct"]),
        },
    }  # fmt: skip


def _plain(trace: Any) -> Any:
    """A trace without seconds."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key != "seconds"}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    return timeless(trace.model_dump(mode="json"))


def show(summary: dict[str, Any]) -> None:
    table = Table("what", "value", title="a small model as agent, tools and critic")
    table.add_row("traces that finish within the step cap", f"{summary['finished']:.3f} of {summary['traces']}")
    table.add_row("traces equal to those run alone", str(summary["traces_equal_alone"]))
    table.add_row("traces equal to those without prefix reuse", str(summary["traces_equal_without_reuse"]))
    for name, value in summary["accuracy"].items():
        table.add_row(f"right answers: {name}", f"{value:.3f}")
    for name, row in summary["engine"].items():
        table.add_row(f"tokens prefilled, reused: {name}", f"{row['prefilled_tokens']}, {row['reused_tokens']}")
    console.print(table)


def __getattr__(name: str) -> SftConfig:
    if name == "config":  # for `vrjax train experiments/caviar_shapes.py`, once the conversations are there
        options = CaviarShapes()
        conversations = options.out / "lessons" / "conversations.jsonl"
        tokenizer = make_tokenizer(conversations, options.out / "tokenizer")
        return make_config(conversations, *tokenizer, options.out / "sft", options.steps, options.seed)
    raise AttributeError(name)


if __name__ == "__main__":
    run_command(CaviarShapes, run, "experiments.caviar_shapes")
