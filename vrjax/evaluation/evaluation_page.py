"""`report.html` of an evaluation: one self-contained page, readable offline, for ten thousand items and more.

Whatever a model, a dataset or a judge wrote is escaped: tables by the template; items travel as JSON and are put into
the page as text nodes by the one script that the page's security policy lets run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vrjax.evaluation.benchmark import Item
from vrjax.evaluation.gallery_rows import choose_items, frames_of, gallery_row
from vrjax.evaluation.result_files import asked_with
from vrjax.evaluation.scatter import Point, scatter
from vrjax.evaluation.video_files import VideoFolder
from vrjax.run_directory import RunDirectory

SCRIPT = Path(__file__).with_name("evaluation_page.js")


def write_page(
    path: Path,
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    items: Sequence[Item] = (),
    folder: VideoFolder | None = None,
    frames: int = 0,
) -> None:
    """Write the page. summary, rows: as in scores.json and items.jsonl; frames: items that are shown with frames of
    their videos, which are looked up in `folder` for `items`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    answering, grounding = summary["answering"], summary["grounding"]
    gallery = [gallery_row(row, answering, grounding, summary.get("best", 1.0)) for row in rows]
    chosen: list[int] = []
    if folder is not None and frames > 0:
        by_id = {item.id: item for item in items}
        wanted = choose_items(gallery, frames)
        pictures = frames_of([by_id[gallery[place]["id"]] for place in wanted if gallery[place]["id"] in by_id], folder)
        for place in wanted:
            if gallery[place]["id"] in pictures:
                gallery[place]["frames"] = pictures[gallery[place]["id"]]
                chosen.append(place)
    first = set(chosen)
    gallery = [gallery[place] for place in chosen] + [row for place, row in enumerate(gallery) if place not in first]
    script = SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pages = Environment(loader=PackageLoader("vrjax.evaluation", "."), autoescape=True, undefined=StrictUndefined)
    text = pages.get_template("evaluation_page.html.jinja").render(
        summary=summary,
        prompt=asked_with(summary),
        scores=_scores(summary),
        types=_types(summary),
        figure=None if grounding is None else _figure(rows, summary, answering, grounding[0]),
        frames=len(chosen),
        script=script,
        digest=digest,
        data=_embedded({"rows": gallery, "grounding": grounding}),
    )
    RunDirectory(path.parent).write_text(path.name, text)


def _embedded(data: Any) -> str:
    """JSON that may stand within a script element: it holds no `<`."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _scores(summary: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    names = list(dict.fromkeys([*summary["official"], *summary["strict"]]))
    rows = []
    for name in names:
        interval = summary["intervals"].get(name)
        bounds = "–" if interval is None else f"{interval['low']:.4f} to {interval['high']:.4f}"
        rows.append((name, _number(summary["official"].get(name)), _number(summary["strict"].get(name)), bounds))
    return rows


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _types(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    by_type = summary["by_type"]
    keys = [key for key in dict.fromkeys(key for row in by_type.values() for key in row) if key != "n"]
    rows = [[kind, f"{row['n']:.0f}", *(_number(row.get(key)) for key in keys)] for kind, row in by_type.items()]
    return keys, rows


def _figure(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], x: str, y: str) -> str:
    """A small point a video, a labelled one a type of question, and one for all."""
    by_video: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        pair = row["values"].get(x), row["values"].get(y)
        if pair[0] is not None and pair[1] is not None:
            by_video[row["video"]].append(pair)
    pairs_of = list(by_video.values())
    points = [Point(sum(a for a, _ in of) / len(of), sum(b for _, b in of) / len(of)) for of in pairs_of]
    for kind, row in summary["by_type"].items():
        if x in row and y in row:
            points.append(Point(row[x], row[y], kind))
    if x in summary["strict"] and y in summary["strict"]:
        points.append(Point(summary["strict"][x], summary["strict"][y], "all", main=True))
    return scatter(points, x, y)
