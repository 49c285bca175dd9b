"""`report.html`: one self-contained page, readable offline. Whatever a model or a dataset wrote is escaped."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vrjax.evaluation.evidence_questions import AskedQuestion
from vrjax.evidence import format_time
from vrjax.video import ReaderPool, read_frames

MOST_FRAMES = 16


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()
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
    keep = np.unique(
        np.linspace(0, len(plan.timestamps) - 1, min(MOST_FRAMES, len(plan.timestamps))).round().astype(int)
    )
    pictures = read_frames(plan, pool=pool)
    frames = [Frame(_data_uri(pictures[i]), f"{plan.timestamps[i]:.1f} s") for i in keep]
    true_bars = [_bar(piece.start, piece.end, duration, piece.description) for piece in one.question.evidence]
    said_bars = [
        _bar(line.span.start, line.span.end, duration, line.description)
        for line in response.evidence
        if line.span is not None
    ]
    soft = one.score.value("soft_eg_f1")
    return Card(
        question=one.question.question,
        caption=f"{one.record.video_id}, {one.question.type}, soft EG-F1 {soft:.2f}",
        right=bool(one.score.item.answer_score),
        answer=response.answer or "(nothing)",
        reference=one.question.answer,
        frames=frames,
        true_bars=true_bars,
        said_bars=said_bars,
        response=one.reply.samples[0].text,
    )


def _bar(start: float, end: float, duration: float, text: str) -> Bar:
    left = float(np.clip(100 * start / duration, 0, 100))
    width = float(np.clip(100 * (end - start) / duration, 0, 100 - left))
    return Bar(round(left, 2), round(width, 2), f"{format_time(start)}-{format_time(end)}  {text}")


def _data_uri(frame: UInt8[np.ndarray, "H W 3"]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    picture = Image.fromarray(frame)
    picture.thumbnail((160, 160))
    picture.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
