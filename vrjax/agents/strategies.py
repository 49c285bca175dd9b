"""Strategies: different tools lead to different traces, where drawing at a temperature hardly does.

all                         the agent with every tool
get_segment+retrieval_qa    the agent with these (and think, finish)
direct:retrieval_qa         the tool alone answers the question, without programs
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vrjax.agents.tools import ALWAYS, Tool
from vrjax.errors import InputError

QuestionKind = Literal["qa", "localise"]
ALL = "all"
SPEECH = "asr_understanding"
DIRECT = "direct:"
# They look at nothing themselves, so they lead to no answer alone.
BLIND = frozenset({*ALWAYS, "get_segment"})


@dataclass(frozen=True)
class Strategy:
    """name: as written. tools: that the agent has, or that answers alone. direct: no programs."""

    name: str
    tools: tuple[str, ...]
    direct: bool = False


def default_strategies(kind: QuestionKind, speech: bool) -> tuple[str, ...]:
    """CAViAR's three for a kind of question; speech: whether there is a transcript."""
    if kind == "localise":
        return (ALL, "get_segment+find_when", "direct:find_when")
    spoken = f"+{SPEECH}" if speech else ""
    return (ALL, f"get_segment+retrieval_qa{spoken}", "direct:retrieval_qa")


def parse_strategy(text: str, tools: Mapping[str, Tool], kind: QuestionKind, speech: bool) -> Strategy:
    """The strategy that a text names, for a question of this kind, with or without a transcript.

    Raises InputError for an unknown tool, one that cannot answer alone, and speech where there is no transcript.
    """
    if text.startswith(DIRECT):
        name = text.removeprefix(DIRECT)
        able = sorted(one.name for one in tools.values() if kind in one.answers)
        if name not in able:
            raise InputError(f"strategy {text!r}: {name!r} cannot answer alone. Choose from: {', '.join(able)}.")
        return Strategy(text, (name,), direct=True)
    if text == ALL:
        return Strategy(text, tuple(name for name in tools if name != SPEECH or speech))
    names = [name.strip() for name in text.split("+")]
    for name in names:
        if name not in tools:
            raise InputError(f"strategy {text!r}: {name!r} is no tool. Choose from: {', '.join(sorted(tools))}.")
    if SPEECH in names and not speech:
        raise InputError(f"strategy {text!r}: needs a transcript, and there is none. Give one, or leave {SPEECH} out.")
    chosen = {*names, *ALWAYS}
    return Strategy(text, tuple(name for name in tools if name in chosen))


def every_subset(tools: Sequence[str], speech: bool) -> tuple[str, ...]:
    """All sets of tools that can lead to an answer, as strategies; smaller ones first."""
    names = [name for name in tools if name not in ALWAYS and (name != SPEECH or speech)]
    return tuple(
        "+".join(chosen)
        for size in range(1, len(names) + 1)
        for chosen in itertools.combinations(names, size)
        if not set(chosen) <= BLIND
    )
