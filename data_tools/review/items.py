"""What is to be judged, read from the files that the stages write.

A payload is what the page shows, and what an answer is checked against:

    question   {kind, video, question, segments, verdicts?, why?}     adjudicate, audit
    segments   {kind, video, title, segments}                         segments
    pair       {kind, video, question, answer, evidence}              verify
    caption    {kind, video, caption}                                 verify

`video` is {id, path, duration}; duration is None where the file does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_tools.review.store import Task
from vrjax.errors import InputError
from vrjax.records import Question, TimedText, VideoRecord, first_problem, load_json, parse_records

Named = tuple[str, dict[str, Any]]


def read_items(task: Task, path: Path) -> list[Named]:
    """(name, payload) of each thing in a file. Forms by task:

    adjudicate, audit: `queue.jsonl`, `audit.jsonl` or `screened.jsonl`, or records with questions. segments: records.
    verify: MovieCORE's files of pairs or captions, `annotations.jsonl`, or anything that adjudicate takes.
    Raises InputError naming the file, the line and the field, and where nothing is to be judged.
    """
    rows = load_json(path, unique_keys=True)
    if task == "segments":
        found = [_segments(record) for record in parse_records(rows, str(path))]
    elif task == "verify":
        found = list(_verified(path, rows))
    elif task in ("adjudicate", "audit"):
        found = list(_questions(path, rows))
    else:
        raise InputError(f"items of the task {task!r} come from ratings, not from a file.")
    if not found:
        raise InputError(f"{path}: holds nothing to judge. Check that the stage before has written something.")
    return found


def _segments(record: VideoRecord) -> Named:
    return record.video_id, {
        "kind": "segments",
        "video": _video(record.video_id, record.video_path, record.duration),
        "title": record.metadata.title,
        "segments": [_piece(one) for one in record.metadata.segments],
    }


def _questions(path: Path, rows: Any) -> Iterator[Named]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: expected one JSON object a line, as queue.jsonl has them. Check the file.")
    if rows and "questions" in rows[0] and "metadata" in rows[0]:
        for record in parse_records(rows, str(path)):
            for question in record.questions:
                video = _video(record.video_id, record.video_path, record.duration)
                yield _question(video, question, [_piece(one) for one in record.metadata.segments], {})
        return
    for number, row in enumerate(rows, 1):
        try:
            question = Question.model_validate(row.get("question"))
            segments = [TimedText.model_validate(one) for one in row.get("segments") or ()]
        except ValidationError as error:
            raise InputError(f"{path}: line {number}: {first_problem(error)}. Correct the field.") from error
        video = _video(row.get("video_id"), row.get("video_path"), row.get("duration"))
        if not video["id"]:
            raise InputError(f"{path}: line {number}: has no video_id. Give the queue of `eg-vqa screen`.")
        yield _question(video, question, [_piece(one) for one in segments], row)


def _question(video: dict[str, Any], question: Question, segments: list[Any], row: Mapping[str, Any]) -> Named:
    payload: dict[str, Any] = {
        "kind": "question",
        "video": video,
        "question": {
            "question": question.question,
            "type": question.type,
            "answer": question.answer,
            "evidence": [_piece(one) for one in question.evidence],
        },
        "segments": segments,
    }
    if row.get("why"):
        payload["why"] = str(row["why"])
    if isinstance(row.get("verdicts"), list):
        payload["verdicts"] = [one for one in row["verdicts"] if isinstance(one, dict)]
    return question.question_id, payload


def _verified(path: Path, rows: Any) -> Iterator[Named]:
    if isinstance(rows, dict):
        for name, value in rows.items():
            yield from _of_clip(path, name, {"caption": value} if isinstance(value, str) else {"pairs": value})
    elif isinstance(rows, list) and rows and isinstance(rows[0], dict) and "refined" in rows[0]:
        for row in rows:
            contents = {"pairs": row.get("refined"), "caption": row.get("caption")}
            yield from _of_clip(path, f"{row.get('clip')}.mp4", contents)
    else:
        for name, payload in _questions(path, rows):
            asked = payload["question"]
            yield name, {
                "kind": "pair", "video": payload["video"],
                **{key: asked[key] for key in ("question", "answer", "evidence")},
            }  # fmt: skip


def _of_clip(path: Path, name: str, contents: Mapping[str, Any]) -> Iterator[Named]:
    video = _video(name, name, None)
    pairs = contents.get("pairs") or []
    if not isinstance(pairs, list):
        raise InputError(f"{path}: {name}: expected a list of pairs or a caption. Check the file.")
    for number, pair in enumerate(pairs, 1):
        texts = [pair.get(key) if isinstance(pair, dict) else None for key in ("question", "answer")]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{path}: {name}: pair {number} needs a question and an answer in words. Correct it.")
        yield pair_name(name, number), {
            "kind": "pair", "video": video, "question": texts[0], "answer": texts[1], "evidence": [],
        }  # fmt: skip
    if contents.get("caption"):
        yield caption_name(name), {"kind": "caption", "video": video, "caption": str(contents["caption"])}


def pair_name(file: str, number: int) -> str:
    """The item of a clip's n-th pair, from 1."""
    return f"{file}/{number}"


def caption_name(file: str) -> str:
    return f"{file}/caption"


def _video(name: Any, path: Any, duration: Any) -> dict[str, Any]:
    known = isinstance(duration, int | float) and 0 < duration < float("inf")
    return {"id": str(name or ""), "path": str(path or ""), "duration": float(duration) if known else None}


def _piece(one: TimedText) -> dict[str, Any]:
    return {"timestamp": list(one.timestamp), "description": one.description}


def find_video(folder: Path | None, video: Mapping[str, Any]) -> Path | None:
    """The file of a payload's video in a folder, by its file name or its id; None where there is none.

    Names from a dataset never lead out of the folder.
    """
    from vrjax.video.inspection import VIDEO_SUFFIXES

    if folder is None:
        return None
    name, bare = Path(video["path"]).name, Path(video["id"]).name
    names = [name, *(f"{stem}{suffix}" for stem in (bare, Path(name).stem) for suffix in sorted(VIDEO_SUFFIXES)), bare]
    for one in names:
        if one in ("", ".", "..") or "\x00" in one:
            continue
        path = folder / one
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return path
    return None
