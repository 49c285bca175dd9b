"""The ways to answer a question that are compared with each other (CAViAR, tables 4 and 5, and its baselines)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from vrjax.agents.strategies import ALL, QuestionKind, Strategy, default_strategies, parse_strategy
from vrjax.agents.tools import Tool
from vrjax.errors import InputError

Mode = Literal[
    "direct",  # the model answers from one window of frames
    "direct_transcript",  # … and the transcript
    "single_program",  # one program with all tools
    "single_program_best_subset",
    "agent_best_subset",  # the agent with the tools that are best on the whole
    "agent",  # the agent with all tools
    "self_evaluation",  # … that goes on until it is sure
    "critic",  # several strategies, and the critic chooses
]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Work:
    """One trace to make. single, self_evaluation: as in `agent.run_agent`."""

    strategy: Strategy
    single: bool = False
    self_evaluation: bool = False


def plan_work(
    mode: Mode,
    tools: Mapping[str, Tool],
    kind: QuestionKind,
    speech: bool,
    strategies: tuple[str, ...] | None = None,
    subset: str | None = None,
) -> tuple[Work, ...]:
    """The traces that a mode makes of a question. strategies: of the critic; subset: the best fixed one.

    Raises InputError where the mode needs a transcript or a subset that is not there, or does not take what is given.
    """
    if mode not in MODES:
        raise InputError(f"{mode!r} is no mode. Choose from: {', '.join(MODES)}.")
    if strategies is not None and mode != "critic":
        raise InputError(f"strategies are for the mode critic, not {mode}. Leave them out.")
    if mode == "direct_transcript" and not speech:
        raise InputError("the mode direct_transcript needs a transcript, and there is none. Give one.")
    if mode in ("direct", "direct_transcript"):
        return (Work(Strategy(mode, (mode,), direct=True)),)
    if mode.endswith("best_subset"):
        if subset is None:
            raise InputError(
                f"the mode {mode} needs the best fixed subset, such as get_segment+retrieval_qa. Find it by "
                "`vrjax agent best-subset`."
            )
        return (Work(parse_strategy(subset, tools, kind, speech), single=mode.startswith("single")),)
    if mode != "critic":
        every = parse_strategy(ALL, tools, kind, speech)
        return (Work(every, mode == "single_program", mode == "self_evaluation"),)
    names = strategies if strategies is not None else default_strategies(kind, speech)
    if not names or len(set(names)) < len(names):
        raise InputError(f"the strategies {', '.join(names) or '(none)'} are not some different ones. Correct them.")
    return tuple(Work(parse_strategy(name, tools, kind, speech)) for name in names)
