"""`report.html`: one self-contained page, readable offline. Whatever a model or a dataset wrote is escaped."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from vrjax.evidence import Response, format_time
from vrjax.records import Question
from vrjax.video import FramePlan, ReaderPool, read_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from vrjax.evaluation.evidence_questions import AskedQuestion

MOST_FRAMES = 16


@dataclass(frozen=True)
class Table:
    """marked: numbers of rows that are shown in red."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()
    marked: Sequence[int] = ()
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Figure:
    """svg: markup that this program drew itself; it is the only part of a page that is not escaped."""

    title: str
    svg: str
    text: Sequence[str] = ()
    kind: str = field(default="figure", init=False)


@dataclass(frozen=True)
class Bar:
    """A span on a timeline; left and width in percent of the video."""

    left: float
    width: float
    text: str


@dataclass(frozen=True)
class Frame:
    image: str
    label: str


@dataclass(frozen=True)
class Card:
    question: str
    caption: str
    right: bool
    answer: str
    reference: str
    frames: Sequence[Frame]
    true_bars: Sequence[Bar]
    said_bars: Sequence[Bar]
    response: str


@dataclass(frozen=True)
class Gallery:
    title: str
    cards: Sequence[Card]
    text: Sequence[str] = ()
    kind: str = field(default="gallery", init=False)


Section = Table | Figure | Gallery


def write_report(path: str | Path, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Render the page and put it in place at once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(loader=PackageLoader("vrjax.evaluation", "."), autoescape=True, undefined=StrictUndefined)
    text = pages.get_template("report.html.jinja").render(title=title, subtitle=subtitle, sections=sections)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def curves(panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]]) -> str:
    """Line charts side by side as SVG. panels: title → name of a line → (steps, values)."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(3.6 * len(panels), 2.6), layout="constrained")
    axes = canvas.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, (steps, values) in lines.items():
            axis.plot(steps, values, label=name, linewidth=1.4)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            axis.legend(fontsize=8, frameon=False)
    return svg_of(canvas)


def svg_of(canvas: Canvas) -> str:
    """The markup of a figure of matplotlib."""
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def cards_of(asked: Sequence[AskedQuestion]) -> list[Card]:
    """A card for each question that was answered: frames of the video with true and predicted spans under them."""
    with ReaderPool(1) as pool:
        return [_card(one, pool) for one in asked if one.reply.plan is not None and one.reply.responses]


def _card(one: AskedQuestion, pool: ReaderPool) -> Card:
    plan, response = one.reply.plan, one.reply.responses[0]
    assert plan is not None
    duration = one.reply.duration or one.record.duration
    soft = one.score.value("soft_eg_f1")
    return Card(
        question=one.question.question,
        caption=f"{one.record.video_id}, {one.question.type}, soft EG-F1 {soft:.2f}",
        right=bool(one.score.item.answer_score),
        answer=response.answer or "(nothing)",
        reference=one.question.answer,
        frames=frame_strip(plan, pool),
        true_bars=reference_bars(one.question, duration),
        said_bars=response_bars(response, duration),
        response=one.reply.samples[0].text,
    )


def frame_strip(plan: FramePlan, pool: ReaderPool) -> list[Frame]:
    """At most MOST_FRAMES frames of what a model was shown, with their times."""
    count = len(plan.timestamps)
    keep = np.unique(np.linspace(0, count - 1, min(MOST_FRAMES, count)).round().astype(int))
    pictures = read_frames(plan, pool=pool)
    return [Frame(picture(pictures[i]), f"{plan.timestamps[i]:.1f} s") for i in keep]


def reference_bars(question: Question, duration: float) -> list[Bar]:
    """The reference evidence of a question on a timeline of `duration` seconds."""
    return [span_bar(piece.start, piece.end, duration, piece.description) for piece in question.evidence]


def response_bars(response: Response, duration: float) -> list[Bar]:
    """The evidence of a response that has usable times, on a timeline of `duration` seconds."""
    return [
        span_bar(line.span.start, line.span.end, duration, line.description)
        for line in response.evidence
        if line.span is not None
    ]


def span_bar(start: float, end: float, duration: float, text: str) -> Bar:
    left = float(np.clip(100 * start / duration, 0, 100))
    width = float(np.clip(100 * (end - start) / duration, 0, 100 - left))
    return Bar(round(left, 2), round(width, 2), f"{format_time(start)}-{format_time(end)}  {text}")


def picture(frame: UInt8[np.ndarray, "H W 3"]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    small = Image.fromarray(frame)
    small.thumbnail((160, 160))
    small.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
