"""One page for reading traces: self-contained, offline, and everything that a model or a dataset wrote is escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrjax.agents.crossing import bounded_repr, from_json
from vrjax.agents.trace import QuestionRun, ToolCall, Trace
from vrjax.agents.video_handle import Video
from vrjax.errors import RunError, VideoError

if TYPE_CHECKING:
    from jinja2 import Template

TICKS = 240  # frames drawn for one call
THUMBNAILS = 6  # pictures of one call


@dataclass(frozen=True)
class Bar:
    """A call on the timeline; all in percent of the video."""

    tool: str
    left: float
    width: float
    ticks: Sequence[float]
    chosen: Sequence[float]


@dataclass(frozen=True)
class CallView:
    head: str
    output: str
    failed: bool
    cost: str
    notes: str
    pictures: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class StepView:
    number: int
    thought: str
    program: str | None
    result: str
    kind: str
    facts: str
    calls: Sequence[CallView]


@dataclass(frozen=True)
class TraceView:
    strategy: str
    tools: str
    outcome: str
    answer: str
    chosen: bool
    won: bool
    bars: Sequence[Bar]
    steps: Sequence[StepView]
    cost: str


@dataclass(frozen=True)
class RunView:
    id: str
    question: str
    video: str
    facts: str
    answer: str
    traces: Sequence[TraceView]
    critique: str
    critic_facts: str
    reference: str


def write_trace_page(
    path: Path,
    runs: Sequence[QuestionRun],
    *,
    references: Mapping[str, str] | None = None,
    videos: Mapping[str, Path] | None = None,
    title: str = "Agent traces",
) -> None:
    """Write the page. references: right answers by question id. videos: files by question id, for small pictures.

    A video that cannot be read leaves its pictures out, and the page says so. Raises RunError where the page cannot be
    written.
    """
    pictures = _Pictures(videos or {})
    views = [_run_view(run, (references or {}).get(run.id, ""), pictures) for run in runs]
    page = _template().render(title=title, runs=views, notes=pictures.faults)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}). Check the folder.") from error


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("vrjax", "agents"), autoescape=True,
                              undefined=StrictUndefined)  # fmt: skip
    return environment.get_template("trace_page.html.jinja")


class _Pictures:
    """Small pictures of frames, read when first asked for."""

    def __init__(self, videos: Mapping[str, Path]) -> None:
        self._videos, self._stores = videos, {}
        self.faults: list[str] = []

    def of(self, run: QuestionRun, call: ToolCall) -> list[tuple[str, str]]:
        path = self._videos.get(run.id)
        times = call.chosen or call.frames
        if path is None or not times:
            return []
        from vrjax.agents.frame_store import FrameStore, Sampling
        from vrjax.llm.frame_images import time_label

        shown = [
            times[round(n * (len(times) - 1) / max(THUMBNAILS - 1, 1))] for n in range(min(THUMBNAILS, len(times)))
        ]
        try:
            if path not in self._stores:
                self._stores[path] = FrameStore(path, Sampling(max_pixels=28 * 28 * 12))
            store = self._stores[path]
            found = []
            for seconds in dict.fromkeys(shown):
                plan = store.plan(Video(max(seconds - 1e-3, 0.0), seconds + 0.5), most=2)
                data = store.read(plan, [0])[0].image.data
                found.append((f"data:image/jpeg;base64,{base64.b64encode(data).decode()}", time_label(seconds)))
            return found
        except (VideoError, ValueError) as error:
            if str(error) not in self.faults:
                self.faults.append(str(error))
            return []


def _run_view(run: QuestionRun, reference: str, pictures: _Pictures) -> RunView:
    verdict = run.verdict
    prompt, completion = run.tokens
    facts = [
        run.mode,
        f"{run.end - run.start:.1f} s of video",
        f"{prompt} + {completion} tokens",
        f"{run.seconds:.1f} s",
    ]
    critic = ""
    if verdict is not None:
        shown = ", ".join(f"{number} {name}" for number, name in enumerate(verdict.order, 1))
        critic = f"shown as {shown}; winners: {', '.join(verdict.winners) or 'none'}"
        if verdict.fallback:
            critic += f"; fell back ({verdict.fallback}) to {verdict.chosen}"
    return RunView(
        id=run.id,
        question=run.question,
        video=run.video,
        facts=" · ".join(facts),
        answer=run.answer if run.answer is not None else f"no answer: {run.error}",
        traces=[_trace_view(run, trace, pictures) for trace in run.traces],
        critique="" if verdict is None else (verdict.critique or verdict.error or ""),
        critic_facts=critic,
        reference=reference,
    )


def _trace_view(run: QuestionRun, trace: Trace, pictures: _Pictures) -> TraceView:
    calls = trace.calls
    prompt = sum(one.prompt_tokens for one in (*trace.replies, *calls))
    completion = sum(one.completion_tokens for one in (*trace.replies, *calls))
    requests = len(trace.replies) + sum(call.requests for call in calls)
    verdict = run.verdict
    return TraceView(
        strategy=trace.strategy,
        tools=", ".join(trace.tools),
        outcome=trace.outcome,
        answer=trace.answer if trace.answer is not None else f"none: {trace.error or trace.outcome}",
        chosen=verdict is None or verdict.chosen == trace.strategy,
        won=verdict is not None and trace.strategy in verdict.winners,
        bars=[bar for call in calls if (bar := _bar(run, call)) is not None],
        steps=[_step_view(run, number, step, pictures) for number, step in enumerate(trace.steps, 1)],
        cost=f"{len(trace.steps)} steps, {len(calls)} calls, {requests} requests, {prompt} + {completion} tokens, "
        f"{sum(step.seconds for step in trace.steps):.1f} s",
    )


def _step_view(run: QuestionRun, number: int, step: Any, pictures: _Pictures) -> StepView:
    facts = [f"{step.seconds:.1f} s"]
    if step.shortened:
        facts.append(f"{step.shortened} earlier results left out")
    if step.confidence is not None:
        facts.append(f"confidence {step.confidence} of 3 in: {step.candidate}")
    calls = []
    for call in step.calls:
        given = ", ".join(f"{key}={bounded_repr(from_json(value), 300)}" for key, value in call.inputs.items())
        output = call.error if call.error is not None else bounded_repr(from_json(call.output), 3000)
        calls.append(
            CallView(
                head=f"{call.tool}({given})",
                output=output,
                failed=call.error is not None,
                cost=f"{len(call.frames)} frames, {call.requests} requests, {call.prompt_tokens} + "
                f"{call.completion_tokens} tokens, {call.seconds:.1f} s",
                notes=", ".join(f"{name} {count}" for name, count in call.notes.items()),
                pictures=pictures.of(run, call),
            )
        )
    return StepView(number, step.thought, step.program, step.result, step.kind, " · ".join(facts), calls)


def _bar(run: QuestionRun, call: ToolCall) -> Bar | None:
    length = run.end - run.start
    if length <= 0:
        return None

    def percent(seconds: float) -> float:
        return round(100 * min(max((seconds - run.start) / length, 0.0), 1.0), 3)

    handles = [one for one in map(from_json, (*call.inputs.values(), call.output)) if isinstance(one, Video)]
    if not handles and not call.frames:
        return None
    start = min((one.start for one in handles), default=min(call.frames, default=run.start))
    end = max((one.end for one in handles), default=max(call.frames, default=run.end))
    step = max(1, -(-len(call.frames) // TICKS))
    ticks, chosen = call.frames[::step], call.chosen[:TICKS]
    left = percent(start)
    return Bar(
        call.tool, left, max(percent(end) - left, 0.3), [percent(t) for t in ticks], [percent(t) for t in chosen]
    )
