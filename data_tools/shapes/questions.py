"""Ask four questions about a script, one of each type; answers and evidence follow from its events.

The templates and their shares are chosen so that the words of a question say little about its answer: which figure,
which colour, yes or no are drawn evenly and stay out of the question (`question_only` measures what is left).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from data_tools.shapes.world import Event, Script
from vrjax.records import Question, QuestionType, TimedText

T = TypeVar("T")

# How "which shape …?" puts what an event's subject does.
_WHICH = {
    "appears": "appears",
    "slides": "slides",
    "leaves": "leaves",
    "touches": "touches another shape",
    "turns": "changes colour",
}


def ask(script: Script, video_id: str, rng: np.random.Generator) -> tuple[Question, ...]:
    """A descriptive, a temporal, a causal and a counterfactual question, each with at most two spans of evidence."""
    makers = (_descriptive, _temporal, _causal, _counterfactual)
    return tuple(maker(script, f"{video_id}_q{number:02d}", rng) for number, maker in enumerate(makers, 1))


def timed_texts(events: Sequence[Event]) -> tuple[TimedText, ...]:
    """`events` in the record format."""
    return tuple(
        TimedText(timestamp=(float(event.start), float(event.end)), description=event.description) for event in events
    )


def _question(
    question_id: str, kind: QuestionType, text: str, answer: str, reasoning: str, evidence: Sequence[Event]
) -> Question:
    ordered = sorted(evidence, key=lambda event: event.start)
    return Question(
        question_id=question_id,
        question=text,
        type=kind,
        answer=answer,
        evidence=timed_texts(ordered),
        reasoning=reasoning,
    )


def _descriptive(script: Script, question_id: str, rng: np.random.Generator) -> Question:
    draw = rng.random()
    if draw < 0.4:
        verbs = [event.verb for event in script.events]
        event = _choose(rng, [event for event in script.events if verbs.count(event.verb) == 1])
        does = _WHICH[event.verb]
        text, answer = f"Which shape {does}?", event.subject.name
        reasoning = f"only the {event.subject.kind} {does}"
    elif draw < 0.7:
        event = _choose(rng, script.singles)
        text, answer = f"What does {event.subject.name} do?", f"it {event.verb}"
        reasoning = f"the {event.subject.kind} only {event.verb}"
    else:
        event = script.change
        text, answer = f"What colour does the {event.subject.kind} turn?", f"{event.colour}"
        reasoning = f"it was {event.subject.colour} and turns {event.colour}"
    return _question(question_id, "descriptive", text, answer, reasoning, [event])


def _temporal(script: Script, question_id: str, rng: np.random.Generator) -> Question:
    # Not across the touch and its change: there the question would name the figure that is asked for.
    neighbours = [
        (first, second)
        for first, second in zip(script.events, script.events[1:], strict=False)
        if (first.verb, second.verb) != ("touches", "turns")
    ]
    first, second = _choose(rng, neighbours)
    known, asked, side = (first, second, "after") if rng.random() < 0.5 else (second, first, "before")
    text = f"Which shape acts right {side} {known.description}?"
    reasoning = f"first the {first.subject.kind}, then the {second.subject.kind}"
    return _question(question_id, "temporal", text, asked.subject.name, reasoning, [first, second])


def _causal(script: Script, question_id: str, rng: np.random.Generator) -> Question:
    touch, change = script.touch, script.change
    draw = rng.random()
    answer = f"{touch.subject.name} touches it"
    if draw < 0.35:
        text = f"Why does {change.subject.name} turn {change.colour}?"
    elif draw < 0.7:
        text = f"Why does the {change.subject.kind} change colour?"
    else:
        text = f"What happens to the {change.subject.kind} because of the touch?"
        answer = f"it turns {change.colour}"
    reasoning = f"the {touch.subject.kind} touches, then the {change.subject.kind} turns {change.colour}"
    return _question(question_id, "causal", text, answer, reasoning, [touch, change])


def _counterfactual(script: Script, question_id: str, rng: np.random.Generator) -> Question:
    touch, change = script.touch, script.change
    if rng.random() < 0.5:
        text = f"What colour would the {change.subject.kind} be at the end without the touch?"
        answer = change.subject.colour
        reasoning = f"without the touch the {change.subject.kind} stays {answer}"
    else:
        bystander = rng.random() < 0.5
        without = _choose(rng, script.singles).subject if bystander else touch.subject
        text = f"Would the {change.subject.kind} change colour without {without.name}?"
        answer = "yes" if bystander else "no"
        reasoning = f"only the {touch.subject.kind} touches the {change.subject.kind}"
    return _question(question_id, "counterfactual", text, answer, reasoning, [touch])


def _choose(rng: np.random.Generator, items: Sequence[T]) -> T:
    return items[int(rng.integers(len(items)))]
