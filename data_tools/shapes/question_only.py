"""How far one gets without looking: the best guesses that read the question but not the video.

Two guessers learn from the training split and are scored on another. One knows only the template of a question (its
words with colours, kinds and verbs masked), the other its exact words and, where those were never seen, the template.
Both give the commonest answer, and the one or two spans that score best, as if each description were right (Sim = 1):
a ceiling for every model that ignores the video.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from data_tools.shapes.world import COLOURS, KINDS, SINGLE_VERBS
from vrjax.records import Question, VideoRecord

Span = tuple[float, float]
Guess = tuple[str, tuple[Span, ...]]
_SLOTS = re.compile(rf"\b({'|'.join(COLOURS)})\b|\b({'|'.join(KINDS)})\b|\b({'|'.join(SINGLE_VERBS)})\b")
_SLOT_NAMES = ("COLOUR", "KIND", "VERB")


@dataclass(frozen=True)
class Ceiling:
    """Share of answers guessed exactly, and mean soft EG-F1 of the spans guessed, over `questions` questions."""

    questions: int
    answer: float
    soft_eg_f1: float


def template(question: str) -> str:
    """`question` with the words that name figures and single events masked."""
    return _SLOTS.sub(lambda match: _SLOT_NAMES[(match.lastindex or 1) - 1], question)


def ceilings(train: Sequence[VideoRecord], test: Sequence[VideoRecord]) -> dict[str, dict[str, Ceiling]]:
    """Guesser ("template", "words") → question type, or "all" → Ceiling on `test`."""
    known = [question for record in train for question in record.questions]
    asked = [question for record in test for question in record.questions]
    by_template = _learn(known, lambda question: template(question.question))
    by_words = _learn(known, lambda question: question.question)

    def from_template(question: Question) -> Guess:
        return by_template.get(template(question.question), ("", ()))

    def from_words(question: Question) -> Guess:
        return by_words.get(question.question) or from_template(question)

    return {"template": _score(asked, from_template), "words": _score(asked, from_words)}


def span_f1(predicted: Sequence[Span], reference: Sequence[Span]) -> float:
    """Soft EG-F1 of at most two spans a side where every description is right: 2 S / (|P| + |G|), S the summed IoU of
    the best assignment."""
    if len(predicted) > 2 or len(reference) > 2:
        raise ValueError("at most two spans a side")
    if not predicted or not reference:
        return float(len(predicted) == len(reference))
    iou = [[_iou(p, g) for g in reference] for p in predicted]
    if len(predicted) == len(reference) == 2:
        best = max(iou[0][0] + iou[1][1], iou[0][1] + iou[1][0])
    else:
        best = max(value for row in iou for value in row)
    return 2 * best / (len(predicted) + len(reference))


def _iou(a: Span, b: Span) -> float:
    overlap = min(a[1], b[1]) - max(a[0], b[0])
    return max(0.0, overlap) / (max(a[1], b[1]) - min(a[0], b[0]))


def _learn(questions: Iterable[Question], key: Callable[[Question], str]) -> dict[str, Guess]:
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[key(question)].append(question)
    return {name: (_commonest(group), _best_spans(group)) for name, group in groups.items()}


def _commonest(group: Sequence[Question]) -> str:
    counts = Counter(question.answer for question in group)
    return min(counts, key=lambda answer: (-counts[answer], answer))


def _best_spans(group: Sequence[Question]) -> tuple[Span, ...]:
    """One or two spans, on whole seconds, with the highest mean score: the best one, then the best one beside it."""
    references = Counter(tuple(text.timestamp for text in question.evidence) for question in group)
    latest = int(max(span[1] for spans in references for span in spans))
    spans = [(float(s), float(e)) for s in range(latest) for e in range(s + 1, min(s + 6, latest) + 1)]

    def mean(guess: tuple[Span, ...]) -> float:
        return sum(count * span_f1(guess, reference) for reference, count in references.items())

    first = max(((span,) for span in spans), key=mean)
    # Beside the best single span, and from pairs that follow one another, as touch and change do.
    pairs = [(first[0], span) for span in spans]
    pairs += [(a, b) for a in spans for b in spans if b[0] == a[1] and a[1] - a[0] <= 3 and b[1] - b[0] <= 3]
    return max([first, *pairs], key=mean)


def _score(questions: Sequence[Question], guess: Callable[[Question], Guess]) -> dict[str, Ceiling]:
    rows: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for question in questions:
        answer, spans = guess(question)
        row = (answer == question.answer, span_f1(spans, [text.timestamp for text in question.evidence]))
        rows[question.type].append(row)
        rows["all"].append(row)
    return {
        kind: Ceiling(
            len(group), sum(right for right, _ in group) / len(group), sum(f1 for _, f1 in group) / len(group)
        )
        for kind, group in rows.items()
    }
