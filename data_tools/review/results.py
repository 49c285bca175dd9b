"""What people said, as rows for the next stage and as a table (MovieCORE, Table S1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from data_tools.review.agreement import panel_agreement
from data_tools.review.forms import DIMENSIONS
from data_tools.review.store import Answer, Item, ReviewStore, Task

Row = dict[str, Any]
RATINGS = ("1", "2", "3", "4", "5")
DECISIONS = ("accept", "reject")
# MovieCORE, Table S1, in the order in which it has them.
PUBLISHED: dict[str, dict[str, float | None]] = {
    "accuracy": {"captions": 3.9, "questions": None, "answers": None},
    "clarity": {"captions": 4.0, "questions": 4.3, "answers": 4.3},
    "depth": {"captions": 4.1, "questions": 4.5, "answers": 4.2},
    "relevance": {"captions": None, "questions": 4.0, "answers": 3.8},
    "answerability": {"captions": None, "questions": 3.8, "answers": 4.1},
}
SIDES = ("captions", "questions", "answers")


def decisions(store: ReviewStore, task: Task) -> tuple[list[Row], list[Row]]:
    """(decided, undecided) of `adjudicate` or `audit`: {question_id, decision, question?, answer?, evidence?, …}.

    Where several people judge an item, all have to have answered, and more than half of them decide; the edits are
    those of the first of these. Undecided: {question_id, why, answers}.
    """
    decided, undecided = [], []
    for item, answers in store.answers(task):
        if len(answers) < item.raters:
            why = f"{len(answers)} of {item.raters} answers"
            undecided.append({"question_id": item.name, "why": why, "answers": _said(answers)})
            continue
        label, votes = Counter(one.body["decision"] for one in answers).most_common(1)[0]
        if 2 * votes <= len(answers):
            undecided.append({"question_id": item.name, "why": "the raters disagree", "answers": _said(answers)})
            continue
        agreed = [one for one in answers if one.body["decision"] == label]
        edits = {name: agreed[0].body[name] for name in ("question", "answer", "evidence") if name in agreed[0].body}
        decided.append({
            "question_id": item.name, "decision": label, **edits,
            "raters": [one.rater for one in answers], "votes": votes,
            "comments": [one.body["comment"] for one in answers if one.body["comment"]],
        })  # fmt: skip
    return decided, undecided


def segment_edits(store: ReviewStore) -> list[Row]:
    """Corrections in the form of `eg-vqa curate --edits`. Of several raters of a video the last one counts."""
    rows = []
    for item, answers in store.answers("segments"):
        for answer in answers[-1:]:
            rows += [{"video_id": item.name, **edit, "editor": answer.rater} for edit in answer.body["edits"]]
    return rows


def ratings(store: ReviewStore) -> list[Row]:
    """A row a rating of an item: {item, kind, rater, at, ratings, comment}."""
    return [
        {"item": item.name, "kind": item.payload["kind"], "rater": one.rater, "at": one.at, **one.body}
        for item, answers in store.answers("verify")
        for one in answers
    ]


def verified(store: ReviewStore) -> list[Row]:
    """A row an item with all its ratings: {item, kind, question?, means, kept, why, reason?}.

    kept: None while a low-rated item waits for its meta-reviewer.
    """
    judged = {item.name: answers for item, answers in store.answers("meta")}
    rows = []
    for item, answers in store.answers("verify"):
        if len(answers) < item.raters:
            continue
        row: Row = {"item": item.name, "kind": item.payload["kind"], "means": _means(answers)}
        if "question" in item.payload:
            row["question"] = item.payload["question"]
        if item.name not in judged:
            row |= {"kept": True, "why": "rated well"}
        elif not judged[item.name]:
            row |= {"kept": None, "why": "rated low, waits for a meta-reviewer"}
        else:
            verdict = judged[item.name][0]
            row |= {"kept": verdict.body["decision"] == "keep", "why": "meta-reviewed",
                    "reason": verdict.body["reason"], "meta_reviewer": verdict.rater}  # fmt: skip
        rows.append(row)
    return rows


def _means(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    sides = answers[0].body["ratings"]
    return {
        side: {name: sum(one.body["ratings"][side][name] for one in answers) / len(answers) for name in names}
        for side, names in sides.items()
    }


def _said(answers: Sequence[Answer]) -> list[Row]:
    return [{"rater": one.rater, **one.body} for one in answers]


def results(store: ReviewStore) -> dict[str, Any]:
    """Table S1's means, with the agreement of each cell, that of the decisions, and counts.

    means: dimension → side → mean over all ratings, None where the dimension is not asked of the side.
    """
    answers = store.answers("verify")
    means: dict[str, dict[str, float | None]] = {}
    cells: dict[str, dict[str, Any]] = {}
    for dimension in PUBLISHED:
        means[dimension], cells[dimension] = {}, {}
        for side in SIDES:
            given = _labels(answers, side, dimension)
            values = [int(label) for thing in given for label in thing.values()]
            means[dimension][side] = sum(values) / len(values) if values else None
            if dimension in DIMENSIONS[side] and values:
                cells[dimension][side] = {"ratings": len(values), **panel_agreement(given, RATINGS).as_json()}
    verdicts = verified(store)
    return {
        "progress": store.progress(),
        "means": means,
        "agreement": cells,
        "decisions": {task: _decision_agreement(store, task) for task in ("adjudicate", "audit") if store.items(task)},
        "kept": dict(Counter({True: "kept", False: "removed", None: "waiting"}[row["kept"]] for row in verdicts)),
        "raters": len({one.rater for _, given in answers for one in given}),
    }


def _labels(answers: Sequence[tuple[Item, Sequence[Answer]]], side: str, dimension: str) -> list[dict[str, str]]:
    return [
        {one.rater: str(one.body["ratings"][side][dimension]) for one in given}
        for _, given in answers
        if given and dimension in given[0].body["ratings"].get(side, ())
    ]


def _decision_agreement(store: ReviewStore, task: Task) -> dict[str, Any]:
    given = [{one.rater: one.body["decision"] for one in answers} for _, answers in store.answers(task)]
    counts = Counter(label for thing in given for label in thing.values())
    return {"counts": dict(counts), **panel_agreement(given, DECISIONS).as_json()}


def markdown(found: dict[str, Any]) -> str:
    """The results as Markdown: means in the form of Table S1 beside the paper's, then agreement."""
    names = [side.capitalize() for side in SIDES]
    lines = ["## Human verification", "", _row("Metric", *names, *(f"{name} (paper)" for name in names)), _rule(7)]
    for dimension, row in found["means"].items():
        cells = [*(row[side] for side in SIDES), *(PUBLISHED[dimension][side] for side in SIDES)]
        lines.append(_row(dimension.capitalize(), *(_shown(one, 1) for one in cells)))
    lines += ["", f"Scores from 1 to 5, by {found['raters']} raters; dashes: not asked, or not rated yet.", ""]
    lines += [
        "## Agreement",
        "",
        _row("", "items", "the same (%)", "within one (%)", "Cohen's κ", "Fleiss' κ"),
        _rule(6),
    ]
    for dimension, row in found["agreement"].items():
        lines += [_agreement_row(f"{side}: {dimension}", cell) for side, cell in row.items()]
    lines += [_agreement_row(f"{task}: decision", cell) for task, cell in found["decisions"].items()]
    kept = ", ".join(f"{number} {name}" for name, number in found["kept"].items())
    if kept:
        lines += ["", f"Of the items with all their ratings: {kept}."]
    return "\n".join(lines) + "\n"


def _agreement_row(name: str, cell: dict[str, Any]) -> str:
    shares = (None if cell[key] is None else 100 * cell[key] for key in ("exact", "within_one"))
    kappas = (_shown(cell[key], 3) for key in ("cohen", "fleiss"))
    return _row(name, str(cell["things"]), *(_shown(one, 1) for one in shares), *kappas)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "|---" * columns + "|"


def _shown(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
