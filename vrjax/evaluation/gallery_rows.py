"""Items of an evaluation as a page shows them: verdict, spans on a timeline, words of model and judge, some frames."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Item
from vrjax.evaluation.video_files import VideoFolder
from vrjax.video import FrameOptions, ReaderPool, plan_frames, read_frames

VERDICTS = ("right", "partly", "wrong", "unscored", "unanswered")
FRAMES = FrameOptions(frames=8, min_pixels=28 * 28 * 12, max_pixels=28 * 28 * 24, total_pixels=None)
JPEG_QUALITY = 72


def verdict_of(row: Mapping[str, Any], answering: str, best: float = 1.0) -> str:
    """One of VERDICTS, by the item's value of the metric `answering`, which lies between 0 and `best`."""
    if row["text"] is None and not row["parsed"]:
        return "unanswered"
    value = row["values"].get(answering)
    if value is None:
        return "unscored"
    return "right" if value >= best else "partly" if value > 0 else "wrong"


def is_ungrounded(row: Mapping[str, Any], verdict: str, grounding: Sequence[Any] | None) -> bool:
    """Answered at least partly right, but without the evidence for it."""
    if grounding is None or verdict not in ("right", "partly"):
        return False
    metric, least = grounding
    value = row["values"].get(metric)
    return value is not None and value < least


def gallery_row(
    row: Mapping[str, Any], answering: str, grounding: Sequence[Any] | None, best: float = 1.0
) -> dict[str, Any]:
    """A row of `items.jsonl` as the page's script reads it; spans are [start, end, text] in seconds."""
    parsed, reference = row["parsed"], row["reference"]
    verdict = verdict_of(row, answering, best)
    shown: dict[str, Any] = {
        "id": row["id"],
        "video": row["video"],
        "verdict": verdict,
        "types": row["types"],
        "question": row["question"],
        "answer": _answer(parsed, row["options"]),
        "reference": _answer(reference, row["options"]),
        "duration": row["duration"],
        "true": _spans(reference),
        "said": _spans(parsed),
        "values": {name: None if value is None else round(value, 4) for name, value in row["values"].items()},
    }
    more = {
        "ungrounded": is_ungrounded(row, verdict, grounding),
        "options": [[letter, text] for letter, text in row["options"].items()],
        "unreadable": [piece["description"] for piece in _pieces(parsed) if piece.get("timestamp") is None],
        "reasoning": parsed.get("reasoning"),
        "faults": parsed.get("faults"),
        "failure": row["failure"],
        "error": row["error"],
        "notes": row["notes"],
        "text": row["text"],
    }
    return shown | {key: value for key, value in more.items() if value}


def _answer(values: Mapping[str, Any], options: Mapping[str, str]) -> str:
    choice = values.get("choice")
    if isinstance(choice, str):
        return f"{choice}. {options[choice]}" if choice in options else choice
    return str(values.get("answer") or "")


def _pieces(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = values.get("evidence") or ()
    return [piece for piece in found if isinstance(piece, Mapping) and "description" in piece]


def _spans(values: Mapping[str, Any]) -> list[list[Any]]:
    timed = [(piece.get("timestamp"), piece["description"]) for piece in _pieces(values)]
    timed += [(span, "") for span in values.get("spans") or ()]
    return [[float(span[0]), float(span[1]), text] for span, text in timed if span is not None]


def choose_items(rows: Sequence[Mapping[str, Any]], count: int) -> list[int]:
    """Places of up to `count` gallery rows, as many of each kind (ungrounded is one of its own), evenly spread."""
    kinds: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        kind = "ungrounded" if row.get("ungrounded") else row["verdict"]
        kinds.setdefault(kind, []).append(place)
    chosen: list[int] = []
    # The rarest first, so that what they leave over goes to the others.
    for left, places in zip(range(len(kinds), 0, -1), sorted(kinds.values(), key=len), strict=True):
        share = min(len(places), (count - len(chosen)) // left)
        chosen += [places[number * len(places) // share] for number in range(share)]
    return sorted(chosen)


def frames_of(items: Sequence[Item], folder: VideoFolder) -> dict[str, list[list[str]]]:
    """[image, time] of a few frames of each item's video, by item id; items without a readable video are left out."""
    found: dict[str, list[list[str]]] = {}
    by_file: dict[str, list[list[str]] | None] = {}
    with ReaderPool(2) as pool:
        for item in items:
            try:
                path = folder.find(item) if item.with_video else None
            except InputError:
                continue
            if path is None:
                continue
            if str(path) not in by_file:
                by_file[str(path)] = _frames(str(path), pool)
            frames = by_file[str(path)]
            if frames:
                found[item.id] = frames
    return found


def _frames(path: str, pool: ReaderPool) -> list[list[str]] | None:
    from PIL import Image

    try:
        plan = plan_frames(path, FRAMES, pool=pool)
        frames = read_frames(plan, pool=pool)
    except InputError:
        return None
    shown = []
    for seconds, frame in zip(plan.timestamps, frames, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, format="JPEG", quality=JPEG_QUALITY)
        shown.append(["data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode(), f"{seconds:.1f} s"])
    return shown
