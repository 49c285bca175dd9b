"""The critic: reads all traces of a question at once, says what is good and bad in them, and names the winners.

It sees no video. It judges by what led to right answers in its examples.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from vrjax.agents.exchanges import FATAL, RecordingChat
from vrjax.agents.strategies import ALL
from vrjax.agents.trace import Trace, Verdict
from vrjax.agents.trace_text import trace_text
from vrjax.errors import InputError
from vrjax.llm import Chat, ChatError, ChatRequest, Message, ask
from vrjax.records import first_problem, load_json

INSTRUCTIONS = (
    "Several attempts were made to answer a question about a video, each with other tools. You read how each went, and "
    "you cannot see the video. Judge how likely each is to be right: whether its tools gave something solid, whether "
    "it checked what it found, whether its answer follows from it. First write a critique that compares them. Then "
    "name the numbers of the winners, the best one first."
)


class CriticReply(BaseModel):
    critique: str
    winners: list[int]


class ExampleTrace(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    strategy: str
    text: str


class CriticExample(BaseModel):
    """One question whose right attempts are known. winners: names of strategies."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    question: str
    traces: tuple[ExampleTrace, ...]
    critique: str = ""
    winners: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """trace_characters: of each trace that is shown. max_tokens: of its reply. seed: of the order of the traces."""

    trace_characters: int = 12_000
    max_tokens: int = 1500
    temperature: float = 0.0
    seed: int = 0


def load_examples(path: Path) -> tuple[CriticExample, ...]:
    """Read examples. Raises InputError naming file, example and field."""
    rows = load_json(path)
    if not isinstance(rows, list):
        raise InputError(f"{path}: expected a list of examples, found {type(rows).__name__}.")
    found = []
    for number, row in enumerate(rows):
        try:
            example = CriticExample.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}: example {number}: {first_problem(error)}. Correct the field.") from error
        unknown = set(example.winners) - {trace.strategy for trace in example.traces}
        if unknown or not example.winners:
            what = f"winners names {sorted(unknown)}, which has no trace" if unknown else "winners is empty"
            raise InputError(f"{path}: example {example.id}: {what}. Correct the field.")
        found.append(example)
    return tuple(found)


def save_examples(path: Path, examples: Sequence[CriticExample]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [example.model_dump(mode="json") for example in examples]
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def shuffled(names: Sequence[str], seed: int, question_id: str) -> list[str]:
    """The order in which traces are shown: by the seed and the question alone."""
    order = list(names)
    random.Random(f"{seed}:{question_id}").shuffle(order)
    return order


async def judge(
    question_id: str,
    question: str,
    traces: Sequence[Trace],
    examples: Sequence[CriticExample],
    chat: Chat,
    settings: CriticSettings | None = None,
) -> Verdict:
    """Choose among the traces of a question; the first winner that has an answer counts.

    Where there is none, the trace with all tools counts, or the first that has an answer; `fallback` says why. Raises
    ChatError where no further request would be answered.
    """
    settings = settings or CriticSettings()
    by_name = {trace.strategy: trace for trace in traces}
    order = shuffled(list(by_name), settings.seed, question_id)
    parts = [INSTRUCTIONS]
    for number, example in enumerate(examples, 1):
        parts.append(f"=== Example {number} ===\n{_example_text(example, settings)}")
    if examples:
        parts.append("=== The question to judge ===")
    texts = [trace_text(by_name[name], settings.trace_characters) for name in order]
    parts.append(_attempts_text(question, [(name, text) for name, text in zip(order, texts, strict=True)]))
    recording = RecordingChat(chat)
    request = ChatRequest(
        messages=(Message.user("\n\n".join(parts)),), temperature=settings.temperature, max_tokens=settings.max_tokens
    )
    critique, winners, fallback, error = "", [], None, None
    try:
        reply = (await ask(recording, request, CriticReply)).value
        critique = reply.critique
        winners = [order[number - 1] for number in dict.fromkeys(reply.winners) if 1 <= number <= len(order)]
    except ChatError as fault:
        if fault.kind in FATAL:
            raise
        fallback, error = "no_reply", str(fault)
    chosen = next((name for name in winners if by_name[name].answer is not None), None)
    if chosen is None:
        fallback = fallback or ("no_answer" if winners else "no_winner")
        with_answer = [trace.strategy for trace in traces if trace.answer is not None]
        chosen = ALL if ALL in with_answer else with_answer[0] if with_answer else traces[0].strategy
    return Verdict(
        order=tuple(order),
        critique=critique,
        winners=tuple(winners),
        chosen=chosen,
        fallback=fallback,
        error=error,
        replies=tuple(recording.exchanges),
    )


def _attempts_text(question: str, attempts: Sequence[tuple[str, str]]) -> str:
    # Names of strategies stay out: the number is all there is to name an attempt by.
    listed = "\n\n".join(f"--- Attempt {number} ---\n{text}" for number, (_, text) in enumerate(attempts, 1))
    return f"Question: {question}\n\n{listed}"


def _example_text(example: CriticExample, settings: CriticSettings) -> str:
    by_name = {trace.strategy: trace.text for trace in example.traces}
    order = shuffled(list(by_name), settings.seed, example.id)
    text = _attempts_text(example.question, [(name, by_name[name]) for name in order])
    winners = [number for number, name in enumerate(order, 1) if name in example.winners]
    reply = {"critique": example.critique, "winners": winners} if example.critique else {"winners": winners}
    return f"{text}\n\nReply: {json.dumps(reply, ensure_ascii=False)}"
