"""Answers against grounding as a scatter, as in EG-VQA's figure 7: a point a model, a type of question, or a video."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_LETTERS = 40


@dataclass(frozen=True)
class Point:
    """x: answer score, y: grounding score; label: "" for one of many. main: drawn large."""

    x: float
    y: float
    label: str = ""
    main: bool = False


def scatter(points: Sequence[Point], x_name: str, y_name: str) -> str:
    """SVG markup of the points. Labels are text, never mathematics or markup."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = canvas.subplots()
    plain = [point for point in points if not point.label]
    axis.scatter([point.x for point in plain], [point.y for point in plain], s=14, color="#8fa3bd", alpha=0.55, lw=0)
    named = [point for point in points if point.label]
    for point in named:
        colour, size = ("#c2571a", 70) if point.main else ("#2f5d9b", 42)
        axis.scatter([point.x], [point.y], s=size, color=colour, zorder=3)
    axis.set_xlabel(x_name, parse_math=False)
    axis.set_ylabel(y_name, parse_math=False)
    axis.margins(0.12)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    _label(canvas, axis, named)
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _label(canvas: Any, axis: Any, points: Sequence[Point]) -> None:
    """Write each label beside its point, on the first side where it covers no other."""
    canvas.draw_without_rendering()
    taken: list[Any] = []
    for point in points:
        note = None
        for across, up in ((7, 5), (7, -13), (-7, 5), (-7, -13), (7, 17), (7, -25)):
            if note is not None:
                note.remove()
            note = axis.annotate(
                point.label[:MOST_LETTERS], (point.x, point.y), xytext=(across, up), textcoords="offset points",
                ha="left" if across > 0 else "right", fontsize=9, zorder=4, parse_math=False,
            )  # fmt: skip
            box = note.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
        if note is not None:
            taken.append(note.get_window_extent())
