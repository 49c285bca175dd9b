"""The dataset in numbers: by source (EG-VQA, Table 4), by split (Table 5), distributions (Figure 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_tools.eg_vqa.questions import TYPES
from vrjax.records import VideoRecord

SOURCE_COLUMNS = ("videos", "hours", "mean duration (s)", "segments a video", "questions", "questions a video",
                  "evidence a question", "evidence length (s)")  # fmt: skip
PIECES = (1, 2, 3, 4, 5)
SPLIT_COLUMNS = ("videos", "questions", *TYPES, "evidence a question", "question words", "answer words")


def source_table(records: Sequence[VideoRecord]) -> dict[str, dict[str, float]]:
    """A row a source, and one for all."""
    return {name: _source_row(part) for name, part in _with_total(records, lambda one: one.data_source).items()}


def split_table(splits: Mapping[str, Sequence[VideoRecord]]) -> dict[str, dict[str, float]]:
    """A row a split, and one for all."""
    everything = [record for records in splits.values() for record in records]
    parts = {**splits, "all": everything} if len(splits) > 1 else splits
    return {name: _split_row(part) for name, part in parts.items()}


def _with_total(records: Sequence[VideoRecord], key: Any) -> dict[str, list[VideoRecord]]:
    parts: dict[str, list[VideoRecord]] = {}
    for record in records:
        parts.setdefault(key(record), []).append(record)
    return dict(sorted(parts.items())) | ({"all": list(records)} if len(parts) != 1 else {})


def _source_row(records: Sequence[VideoRecord]) -> dict[str, float]:
    questions = [question for record in records for question in record.questions]
    pieces = [piece for question in questions for piece in question.evidence]
    seconds = sum(record.duration for record in records)
    values = (
        len(records),
        seconds / 3600,
        seconds / max(1, len(records)),
        _mean([len(record.metadata.segments) for record in records]),
        len(questions),
        len(questions) / max(1, len(records)),
        len(pieces) / max(1, len(questions)),
        _mean([piece.end - piece.start for piece in pieces]),
    )
    return dict(zip(SOURCE_COLUMNS, values, strict=True))


def _split_row(records: Sequence[VideoRecord]) -> dict[str, float]:
    questions = [question for record in records for question in record.questions]
    kinds = Counter(question.type for question in questions)
    values = (
        len(records),
        len(questions),
        *(kinds[kind] for kind in TYPES),
        _mean([len(question.evidence) for question in questions]),
        _mean([len(question.question.split()) for question in questions]),
        _mean([len(question.answer.split()) for question in questions]),
    )
    return dict(zip(SPLIT_COLUMNS, values, strict=True))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def markdown(title: str, columns: Sequence[str], table: Mapping[str, Mapping[str, float]]) -> str:
    lines = [f"## {title}", "", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(shown(row[one]) for one in columns) + " |" for name, row in table.items()]
    return "\n".join([*lines, "", ""])


def plots(splits: Mapping[str, Sequence[VideoRecord]]) -> str:
    """Sources and durations, and where there are questions their types and evidence, as SVG; a colour a split."""
    from matplotlib.figure import Figure

    from data_tools.figure_svg import svg

    asked = any(record.questions for records in splits.values() for record in records)
    canvas = Figure(figsize=(11, 5.5 if asked else 2.8), layout="constrained")
    axes = canvas.subplots(2 if asked else 1, 2, squeeze=False)
    sources = sorted({record.data_source for records in splits.values() for record in records})
    width = 0.8 / len(splits)
    for number, (name, records) in enumerate(splits.items()):
        offset = (number - (len(splits) - 1) / 2) * width
        by_source = Counter(record.data_source for record in records)
        axes[0, 0].bar(np.arange(len(sources)) + offset, [by_source[one] for one in sources], width, label=name)
        axes[0, 1].hist([record.duration for record in records], bins=40, histtype="step", density=True, label=name)
        if asked:
            questions = [question for record in records for question in record.questions]
            by_type = Counter(question.type for question in questions)
            pieces = Counter(len(question.evidence) for question in questions)
            axes[1, 0].bar(np.arange(len(TYPES)) + offset, [by_type[one] for one in TYPES], width)
            shares = [pieces[n] / max(1, len(questions)) for n in PIECES]
            axes[1, 1].bar(np.array(PIECES) + offset, shares, width)
    axes[0, 0].set_xticks(range(len(sources)), sources)
    axes[0, 1].set_xlabel("seconds", fontsize=8)
    titles = ("videos by source", "durations, density", "questions by type", "pieces of evidence a question, share")
    if asked:
        axes[1, 0].set_xticks(range(len(TYPES)), TYPES)
    for axis, title in zip(axes.flat, titles, strict=False):
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(fontsize=8, frameon=False)
    return svg(canvas)


def write_page(
    path: Path, sources: Mapping[str, Any], splits: Mapping[str, Any], figure: str, text: Sequence[str]
) -> None:
    """`report.html` with both tables and the plots."""
    from vrjax.evaluation.report import Figure, Table, write_report

    sections = [
        Table("By source", ("", *SOURCE_COLUMNS), _rows(SOURCE_COLUMNS, sources)),
        Table("By split", ("", *SPLIT_COLUMNS), _rows(SPLIT_COLUMNS, splits)),
        Figure("Distributions", figure, text),
    ]
    write_report(path, "EG-VQA in numbers", "", sections)


def _rows(columns: Sequence[str], table: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    return [[name, *(shown(row[one]) for one in columns)] for name, row in table.items()]
