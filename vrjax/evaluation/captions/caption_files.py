"""Files of predictions and references for caption scores, in the forms that they come in.

{"id": "text", …}, {"id": ["text", …], …}                         texts by id
[{"image_id": 1, "caption": "text"}, …], {"annotations": [ … ]}   COCO's results and annotations
[{"question_id": "q1", "pred": "text", "answer": "text"}, …]      rows, also as JSON lines, or by id
{"clip-a.mp4": [{"question", "answer", "pred"}, …]}               MovieCORE, MovieChat-1K
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vrjax.errors import InputError, listed
from vrjax.evaluation.movie_questions import MovieQuestion, load_movie_questions, match_questions, without_end_token
from vrjax.records import load_json

ID_FIELDS = ("id", "question_id", "image_id", "video_id")
PREDICTION_FIELDS = ("pred", "prediction", "response", "caption", "text")
OWN_REFERENCE_FIELDS = ("references", "reference", "answer")  # beside a prediction
REFERENCE_FIELDS = (*OWN_REFERENCE_FIELDS, "caption", "text")

Texts = dict[str, list[str]]


def load_caption_pairs(
    predictions: str | Path, references: str | Path | None = None, missing: Literal["error", "empty"] = "error"
) -> tuple[dict[str, str], Texts]:
    """Predictions and references by id, from two files, or from one whose rows hold both.

    missing: what a reference without a prediction is, an error or an empty text. A prediction of null is missing.

    Raises:
        InputError: a file is in none of the forms or empty, a field is missing or no text, an id is predicted twice, or
            is known to one side only.
    """
    rows = _movie_rows(predictions)
    if rows is not None:
        told, known = _movie_pairs(rows, Path(predictions), references)
    else:
        told = _one_each(_texts(load_json(predictions, unique_keys=True), PREDICTION_FIELDS, predictions), predictions)
        known = _references(predictions, OWN_REFERENCE_FIELDS) if references is None else _references(references)
    where = references or predictions
    unknown = [name for name in told if name not in known]
    if unknown:
        raise InputError(f"{predictions}: no reference for {listed(unknown)} in {where}. Check that the files match.")
    lacking = [name for name in known if name not in told]
    if lacking and missing == "error":
        raise InputError(
            f"{predictions}: no prediction for {listed(lacking)}. "
            "Complete the file, or count them as empty (--missing unanswered)."
        )
    return {name: told.get(name, "") for name in known}, known


def _movie_rows(path: str | Path) -> list[MovieQuestion] | None:
    """The questions of a file that has them by clip, else None."""
    data = load_json(path, unique_keys=True)
    by_clip = isinstance(data, dict) and data and all(
        isinstance(rows, list) and rows and isinstance(rows[0], dict) for rows in data.values()
    )  # fmt: skip
    return load_movie_questions(path) if by_clip and "annotations" not in data else None


def _references(path: str | Path, fields: Sequence[str] = REFERENCE_FIELDS) -> Texts:
    rows = _movie_rows(path)
    if rows is not None:
        return _answers(rows, path)
    data = load_json(path, unique_keys=True)
    by_id = data.values() if isinstance(data, dict) else ()
    if fields is OWN_REFERENCE_FIELDS and not all(isinstance(value, dict) for value in by_id):
        raise InputError(f"{path}: holds predictions without references. Give a file of references as well.")
    return _texts(data, fields, path)


def _answers(rows: Sequence[MovieQuestion], path: str | Path) -> Texts:
    without = [one.id for one in rows if one.answer is None]
    if without:
        raise InputError(f"{path}: answer: is missing for {listed(without)}. Give a labelled file.")
    return {one.id: [one.answer or ""] for one in rows}


def _movie_pairs(
    rows: Sequence[MovieQuestion], path: Path, references: str | Path | None
) -> tuple[dict[str, str], Texts]:
    questions = rows if references is None else load_movie_questions(references)
    found = match_questions(rows, [(one.id, one.video, one.question) for one in questions], path)
    told = {name: without_end_token(row.pred) for name, row in found.items() if row.pred is not None}
    if not told:
        raise InputError(f"{path}: no record has a field `pred`. Give a file with a model's answers.")
    return told, _answers(questions, references or path)


def _texts(data: Any, fields: Sequence[str], path: str | Path) -> Texts:
    """Texts by id, in the order of the file; rows that share an id add up."""
    if isinstance(data, dict) and isinstance(data.get("annotations"), list):
        data = data["annotations"]
    if not isinstance(data, (dict, list)) or not data:
        raise InputError(f"{path}: holds no texts. Give a list of rows, or texts by id.")
    found: Texts = {}
    if isinstance(data, dict):
        for name, value in data.items():
            if isinstance(value, dict):
                value = _field(value, fields, f"{path}: record {name}")
            found[name] = _as_texts(value, f"{path}: record {name}")
        return found
    for number, row in enumerate(data, 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}: record number {number}: is {type(row).__name__}, not an object with an id.")
        name = _id(row, f"{path}: record number {number}")
        found.setdefault(name, []).extend(
            _as_texts(_field(row, fields, f"{path}: record {name}"), f"{path}: record {name}")
        )
    return found


def _id(row: Mapping[str, Any], where: str) -> str:
    for field in ID_FIELDS:
        value = row.get(field)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return str(value)
    raise InputError(f"{where}: id: is missing. Give each record one of {', '.join(ID_FIELDS)}.")


def _field(row: Mapping[str, Any], fields: Sequence[str], where: str) -> Any:
    for field in fields:
        if field in row:
            return row[field]
    raise InputError(f"{where}: holds no text. Give it one of the fields {', '.join(fields)}.")


def _as_texts(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: holds {type(value).__name__}, not a text or a list of texts. Correct the field.")
    return texts


def _one_each(texts: Texts, path: str | Path) -> dict[str, str]:
    twice = [name for name, of_one in texts.items() if len(of_one) > 1]
    if twice:
        raise InputError(f"{path}: more than one prediction for {listed(twice)}. Keep one of each.")
    told = {name: of_one[0] for name, of_one in texts.items() if of_one}
    if not told:
        raise InputError(f"{path}: holds no predictions. Check that what wrote it has finished.")
    return told
