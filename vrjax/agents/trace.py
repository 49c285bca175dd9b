"""What an agent did, as records that are read, shown and replayed: all of it, in JSON, without a model or a video."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Outcome = Literal[
    "finished",
    "forced",  # finished in the one step that follows the cap
    "no_answer",  # the cap, and no answer
    "failed",  # a model or tool that cannot be done without gave nothing; `error` says what
]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Exchange(_Record):
    """One reply of a model, or why there was none (`error`, of `kind`; text "": it was blank). finish: why it ended, as
    the server says.
    """

    text: str | None = None
    finish: str | None = None
    error: str | None = None
    kind: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ToolCall(_Record):
    """One call of a tool. inputs, output: see `crossing.from_json`. frames: seconds of the frames that a model looked
    at, in order; chosen: those that it picked. requests: replies asked of a model. notes: what was substituted or left
    out, counted by name. replies: all that the tool's model said, in order (windows in order of time).
    """

    tool: str
    inputs: dict[str, Any]
    output: Any = None
    error: str | None = None
    error_type: str | None = None
    frames: tuple[float, ...] = ()
    chosen: tuple[float, ...] = ()
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    notes: dict[str, int] = {}
    replies: tuple[Exchange, ...] = ()


class Step(_Record):
    """One reply of the agent and what came of it.

    thought: its text beside the program. program: None where the reply held none that can be run. result: what the
    agent was shown. kind: as in `sandbox.Kind`, or "no_program". shortened: earlier results that were left out of the
    prompt. confidence, candidate: of self-evaluation.
    """

    thought: str = ""
    program: str | None = None
    result: str = ""
    kind: str = "ok"
    calls: tuple[ToolCall, ...] = ()
    shortened: int = 0
    seconds: float = 0.0
    confidence: int | None = None
    candidate: str | None = None


class Trace(_Record):
    """One strategy's way to an answer. replies: all that its agent's model said, in order, for replaying.

    history_tokens: what the conversation was kept to (see `history`); None where it was measured in characters.
    """

    strategy: str
    tools: tuple[str, ...]
    outcome: Outcome
    answer: str | None = None
    error: str | None = None
    steps: tuple[Step, ...] = ()
    replies: tuple[Exchange, ...] = ()
    history_tokens: int | None = None

    @property
    def calls(self) -> list[ToolCall]:
        return [call for step in self.steps for call in step.calls]


class Verdict(_Record):
    """The critic's. order: strategies as they were shown; winners: as it named them; chosen: whose answer counts.

    fallback: why the winner was not the critic's: "no_winner", "no_reply" or "no_answer"; None where it was.
    """

    order: tuple[str, ...]
    critique: str = ""
    winners: tuple[str, ...] = ()
    chosen: str
    fallback: str | None = None
    error: str | None = None
    replies: tuple[Exchange, ...] = ()


class QuestionRun(_Record):
    """A question and all that was done about it. One line of `traces.jsonl`."""

    id: str
    question: str
    kind: Literal["qa", "localise"]
    video: str
    start: float
    end: float
    mode: str
    seed: int
    settings: dict[str, Any]
    traces: tuple[Trace, ...] = ()
    verdict: Verdict | None = None
    answer: str | None = None
    error: str | None = None
    seconds: float = 0.0

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens of agent, critic and tools."""
        exchanges = [one for trace in self.traces for one in trace.replies]
        exchanges += self.verdict.replies if self.verdict else ()
        parts = [*exchanges, *(call for trace in self.traces for call in trace.calls)]
        return sum(one.prompt_tokens for one in parts), sum(one.completion_tokens for one in parts)

    def without_times(self) -> dict[str, Any]:
        """The record as JSON without the seconds that things took: what two runs of the same thing share."""
        return _timeless(self.model_dump(mode="json"))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key != "seconds"}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value
