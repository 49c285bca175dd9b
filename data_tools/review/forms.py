"""What a rater may say about an item, checked against it before it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, create_model

from data_tools.review.store import Item
from vrjax.errors import InputError
from vrjax.records import Seconds, first_problem

# MovieCORE, appendix II.3. What each is asked of, with the words at both ends of the scale.
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "questions": ("relevance", "clarity", "depth", "answerability"),
    "answers": ("relevance", "clarity", "depth", "answerability"),
    "captions": ("accuracy", "clarity", "depth"),
}
MEANINGS: dict[str, tuple[str, str, str]] = {
    "relevance": ("How directly is it about this video?", "off topic", "wholly on topic"),
    "clarity": ("Is it clearly worded and unambiguous?", "unclear", "perfectly clear"),
    "depth": ("How much thought does it take or show?", "on the surface", "deep analysis"),
    "answerability": ("Does the video alone settle it?", "not at all", "entirely"),
    "accuracy": ("Is it true to the video?", "wrong", "true throughout"),
}
SIDES = {"pair": ("questions", "answers"), "caption": ("captions",)}
SLACK_S = 0.01

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
Comment = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
Rating = Annotated[int, Field(strict=True, ge=1, le=5)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Piece(_Form):
    timestamp: tuple[Seconds, Seconds]
    description: str


class Adjudication(_Form):
    """None: as it was."""

    decision: Literal["accept", "reject"]
    question: Text | None = None
    answer: Text | None = None
    evidence: list[Piece] | None = None
    comment: Comment = ""


class SegmentChange(_Form):
    segment: int
    timestamp: tuple[Seconds, Seconds] | None = None
    description: Text | None = None
    drop: bool = False


class SegmentReview(_Form):
    edits: list[SegmentChange] = []
    comment: Comment = ""


class MetaDecision(_Form):
    decision: Literal["keep", "remove"]
    reason: Text


def _rating_form(kind: str) -> type[BaseModel]:
    sides: Any = {
        side: (create_model(side, __config__=_Form.model_config, **dict.fromkeys(DIMENSIONS[side], (Rating, ...))), ...)  # pyright: ignore
        for side in SIDES[kind]
    }
    ratings = create_model("Ratings", __config__=_Form.model_config, **sides)
    return create_model("Rated", __config__=_Form.model_config, ratings=(ratings, ...), comment=(Comment, ""))


RATED = {kind: _rating_form(kind) for kind in SIDES}


def check_answer(item: Item, raw: Any) -> dict[str, Any]:
    """The answer as it is kept: unchanged parts taken out, texts stripped.

    Raises InputError with what is wrong, in words for the rater.
    """
    form: type[BaseModel]
    if item.task == "meta":
        form = MetaDecision
    elif item.task == "verify":
        form = RATED[item.payload["kind"]]
    else:
        form = SegmentReview if item.task == "segments" else Adjudication
    try:
        answer = form.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{item.name}: {first_problem(error)}. Correct it and save again.") from error
    if isinstance(answer, Adjudication):
        return _adjudicated(item, answer)
    if isinstance(answer, SegmentReview):
        return _segments_reviewed(item, answer)
    return answer.model_dump(mode="json")


def _adjudicated(item: Item, answer: Adjudication) -> dict[str, Any]:
    kept: dict[str, Any] = {"decision": answer.decision, "comment": answer.comment}
    if item.task == "audit" and any(one is not None for one in (answer.question, answer.answer, answer.evidence)):
        raise InputError(f"{item.name}: an audit says whether the item is right as it is. Reject what needs an edit.")
    if answer.decision == "reject":
        return kept
    original = item.payload["question"]
    for name in ("question", "answer"):
        text = getattr(answer, name)
        if text is not None and text != original[name].strip():
            kept[name] = text
    if answer.evidence is not None:
        evidence = [piece.model_dump(mode="json") for piece in answer.evidence]
        evidence.sort(key=lambda piece: piece["timestamp"])
        if evidence != sorted(original["evidence"], key=lambda piece: piece["timestamp"]):
            _check_evidence(item, evidence)
            kept["evidence"] = evidence
    if not kept.get("evidence", original["evidence"]):
        raise InputError(f"{item.name}: an accepted question needs evidence. Add a segment, or reject it.")
    return kept


def _check_evidence(item: Item, evidence: Sequence[Mapping[str, Any]]) -> None:
    if not evidence:
        raise InputError(f"{item.name}: no evidence is left. Add a segment, or reject the question.")
    known = {one["description"].strip() for one in (*item.payload["segments"], *item.payload["question"]["evidence"])}
    seen: list[Any] = []
    for number, piece in enumerate(evidence, 1):
        _check_span(item, f"evidence {number}", piece["timestamp"])
        if piece["description"].strip() not in known:
            raise InputError(f"{item.name}: evidence {number} has the words of no segment. Choose one of the segments.")
        if piece in seen:
            raise InputError(f"{item.name}: evidence {number} is there twice. Take one out.")
        seen.append(piece)


def _check_span(item: Item, name: str, span: Sequence[float]) -> None:
    start, end = span
    duration = item.payload["video"]["duration"]
    if not 0 <= start < end:
        raise InputError(f"{item.name}: {name} goes from {start:g} to {end:g} s. The start comes first, at 0 or later.")
    if duration is not None and end > duration + SLACK_S:
        raise InputError(f"{item.name}: {name} ends at {end:g} s, after the video's end at {duration:g} s.")


def _segments_reviewed(item: Item, answer: SegmentReview) -> dict[str, Any]:
    segments = item.payload["segments"]
    edits: dict[int, dict[str, Any]] = {}
    for edit in answer.edits:
        if not 0 <= edit.segment < len(segments):
            raise InputError(f"{item.name}: there is no segment {edit.segment}. Reload the page.")
        if edit.segment in edits:
            raise InputError(f"{item.name}: segment {edit.segment} is edited twice. Reload the page.")
        original = segments[edit.segment]
        change: dict[str, Any] = {"segment": edit.segment}
        if edit.drop:
            change["drop"] = True
        else:
            if edit.timestamp is not None and list(edit.timestamp) != original["timestamp"]:
                _check_span(item, f"segment {edit.segment + 1}", edit.timestamp)
                change["timestamp"] = list(edit.timestamp)
            if edit.description is not None and edit.description != original["description"].strip():
                change["description"] = edit.description
        if len(change) > 1:
            edits[edit.segment] = change
    return {"edits": [edits[number] for number in sorted(edits)], "comment": answer.comment}
