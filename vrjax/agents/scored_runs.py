"""What scored runs teach: examples for the critic, and the set of tools that is best on the whole.

Scores are numbers by question and strategy, {"q1": {"all": 1.0, …}, …}; None where a trace could not be scored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vrjax.agents.critic import CriticExample, ExampleTrace
from vrjax.agents.strategies import ALL, DIRECT
from vrjax.agents.trace import QuestionRun
from vrjax.agents.trace_text import trace_text
from vrjax.errors import InputError

Scores = Mapping[str, Mapping[str, float | None]]


def check_scores(raw: Any, where: str) -> dict[str, dict[str, float | None]]:
    """Scores as read from JSON. Raises InputError naming `where`, question and strategy."""
    if not isinstance(raw, Mapping):
        raise InputError(f"{where}: expected {{question: {{strategy: score}}}}, found {type(raw).__name__}.")
    found: dict[str, dict[str, float | None]] = {}
    for question, row in raw.items():
        if not isinstance(row, Mapping):
            raise InputError(f"{where}: question {question}: expected {{strategy: score}}.")
        for strategy, value in row.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if value is not None and not number:
                raise InputError(f"{where}: question {question}, strategy {strategy}: {value!r} is no score.")
        found[str(question)] = dict(row)
    return found


def choose_examples(
    runs: Mapping[str, QuestionRun],
    scores: Scores,
    count: int = 4,
    *,
    only: Collection[str] | None = None,
    critiques: Mapping[str, str] | None = None,
    trace_characters: int = 6_000,
) -> tuple[CriticExample, ...]:
    """Questions where some strategies were right and others wrong, the clearest first, as examples for the critic.

    The winners are the strategies with the best score. Among equally clear ones, different sets of winners take turns,
    then the order of the runs decides. only: ids that may be used (training questions, or a held-out list); critiques:
    people's words, by id. Raises InputError where fewer than `count` questions can serve.
    """
    usable: list[tuple[float, QuestionRun, tuple[str, ...]]] = []
    for run in runs.values():
        if only is not None and run.id not in only:
            continue
        known = {trace.strategy: scores.get(run.id, {}).get(trace.strategy) for trace in run.traces}
        values = {name: value for name, value in known.items() if value is not None}
        if len(values) < 2 or len(values) < len(run.traces) or max(values.values()) <= min(values.values()):
            continue
        best = max(values.values())
        winners = tuple(name for name, value in values.items() if value == best)
        usable.append((best - min(values.values()), run, winners))
    if len(usable) < count:
        raise InputError(
            f"{len(usable)} questions can serve as examples (all their traces scored, some right and some wrong), "
            f"{count} are asked for. Run more questions, or ask for fewer."
        )
    usable.sort(key=lambda one: -one[0])
    chosen: list[tuple[float, QuestionRun, tuple[str, ...]]] = []
    while len(chosen) < count:
        used = [winners for _, _, winners in chosen]
        left = [one for one in usable if one not in chosen]
        chosen.append(min(left, key=lambda one: (-one[0], used.count(one[2]))))
    return tuple(
        CriticExample(
            id=run.id,
            question=run.question,
            traces=tuple(
                ExampleTrace(strategy=trace.strategy, text=trace_text(trace, trace_characters)) for trace in run.traces
            ),
            critique=(critiques or {}).get(run.id, ""),
            winners=winners,
        )
        for _, run, winners in chosen
    )


@dataclass(frozen=True)
class SubsetScore:
    """strategy: tools joined by +. mean: over its questions; a trace that could not be scored counts as 0."""

    strategy: str
    mean: float
    questions: int


def rank_subsets(scores: Scores) -> list[SubsetScore]:
    """All agent strategies of scored runs, best mean first; direct ones are left out.

    Only questions that every strategy was run on count, so that the means can be compared. Raises InputError where no
    question is shared.
    """
    names = list(dict.fromkeys(name for row in scores.values() for name in row if not name.startswith(DIRECT)))
    names = [name for name in names if name not in ("direct", "direct_transcript")]
    shared = [row for row in scores.values() if all(name in row for name in names)]
    if not names or not shared:
        raise InputError(
            f"the strategies {', '.join(names) or '(none)'} share no question, so their means cannot be compared. "
            "Run all of them on the same questions."
        )
    found = [SubsetScore(name, sum(row[name] or 0.0 for row in shared) / len(shared), len(shared)) for name in names]
    # Of equal ones the smaller set; `all` is the largest.
    return sorted(found, key=lambda one: (-one.mean, one.strategy == ALL, one.strategy.count("+")))
