"""Questions about movie clips in the forms of MovieCORE and MovieChat-1K, with answers where a file has them.

    {"clip-a.mp4": [{"question", "answer", "pred"?, "classification", "enhanced_answer"?}, …], …}
        MovieCORE, and the results of HERMES
    [{"video", "question", "answer", …}, …]
        the same rows in a list
    {"clip-a_1": {"video": "clip-a", "question", "answer", "class", "fps", "frame_length"}, …}
        questions by id, as HERMES has MovieChat-1K
    {"info": {"video_path", "fps", "class"}, "global": [{"question", "answer"}], "breakpoint": [{"time", …}]}
        a clip of MovieChat-1K; its times are frames

A question's id is its own, or its clip and its number there: clip-a_2.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vrjax.errors import InputError, listed
from vrjax.records import first_problem, load_json

VIDEO_ENDINGS = frozenset({".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v", ".flv"})
_ENDED = "</s>"  # the end token that some models leave in their answers


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, strict=True)


class _Turn(_Row):
    content: str


class _Question(_Row):
    question: str = Field(pattern=r"\S")
    answer: str | None = None
    enhanced_answer: list[_Turn] | None = None
    pred: str | None = None
    classification: str = ""
    judged: dict[str, Any] = Field(default_factory=dict)
    video: str | None = None
    video_id: str | None = None
    question_id: str | None = None
    id: str | None = None
    frame_length: float | None = Field(default=None, gt=0)
    fps: float | None = Field(default=None, gt=0)
    time: float | None = Field(default=None, ge=0)


class _Info(_Row):
    video_path: str = Field(pattern=r"\S")
    fps: float | None = Field(default=None, gt=0)
    num_frame: float | None = Field(default=None, gt=0)


class _Clip(_Row):
    info: _Info
    questions: list[dict[str, Any]] = Field(default_factory=list, alias="global")
    breakpoint: list[dict[str, Any]] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MovieQuestion:
    """One question of a file.

    video: the clip's name without its ending; video_file: as the file names it. answer: the reference (the last turn of
    `enhanced_answer`, where there is one); None in test sets without labels. pred: a model's answer, verbatim.
    classification: as written, classes separated by commas. time: seconds into the clip at which it is asked; None:
    after all of it. duration: of the clip, in seconds. judged: recorded verdicts, by judge's name.
    """

    id: str
    video: str
    video_file: str
    question: str
    answer: str | None = None
    pred: str | None = None
    classification: str = ""
    time: float | None = None
    duration: float | None = None
    judged: Mapping[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """Its classes, each once."""
        return tuple(dict.fromkeys(name for one in self.classification.split(",") if (name := one.strip())))


def clip_name(video: str) -> str:
    """A video's name without folder and ending."""
    path = PurePosixPath(video)
    return path.stem if path.suffix.lower() in VIDEO_ENDINGS else path.name


def without_end_token(text: str) -> str:
    """An answer without the end token that some models write as text."""
    return text.replace(_ENDED, "").strip()


def load_movie_questions(path: str | Path) -> list[MovieQuestion]:
    """Read a file in any of the forms, in its order.

    Raises InputError naming file, record and field where the file is empty or in none of the forms, a field is missing
    or of another type, or an id occurs twice.
    """
    return _checked(_read(load_json(path, unique_keys=True), str(path)), str(path))


def load_movie_folder(folder: Path, split: str) -> list[MovieQuestion]:
    """Read `{split}.json` of a folder, or, without one, all its JSON files together (MovieChat-1K has one a clip)."""
    named = folder / f"{split}.json"
    paths = [named] if named.is_file() else sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder}: holds no {split}.json and no other JSON file. Give the folder of annotations.")
    found = [question for path in paths for question in _read(load_json(path, unique_keys=True), str(path))]
    return _checked(found, str(folder))


def match_questions(
    rows: Sequence[MovieQuestion], known: Iterable[tuple[str, str, str]], where: str | Path
) -> dict[str, MovieQuestion]:
    """Rows of a predictions file by the id of the question that they answer, found by clip and wording, never by place.

    known: (id, video, question) of every question there is; a wording that a clip has twice is matched in order. Raises
    InputError naming rows that answer no known question, or one that is answered already.
    """
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, video, question in known:
        waiting[_key(video, question)].append(name)
    asked = {key: len(names) for key, names in waiting.items()}
    given = Counter(_key(row.video, row.question) for row in rows)
    unknown = [row.id for row in rows if _key(row.video, row.question) not in asked]
    if unknown:
        raise InputError(
            f"{where}: no such questions: {listed(unknown)}. Check that predictions and annotations belong together."
        )
    twice = [row.id for row in rows if given[key := _key(row.video, row.question)] > asked[key]]
    if twice:
        raise InputError(f"{where}: answered more than once: {listed(twice)}. Keep one answer to each question.")
    return {waiting[_key(row.video, row.question)].pop(0): row for row in rows}


def _key(video: str, question: str) -> tuple[str, str]:
    return video, " ".join(question.split())


def _checked(questions: list[MovieQuestion], where: str) -> list[MovieQuestion]:
    if not questions:
        raise InputError(f"{where}: holds no questions. Check that what wrote it has finished.")
    counts = Counter(question.id for question in questions)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InputError(f"{where}: ids occur twice: {listed(twice)}. Keep one of each.")
    return questions


def _read(data: Any, where: str) -> list[MovieQuestion]:
    if isinstance(data, dict) and "info" in data:
        return _read_clip(data, where)
    if isinstance(data, list):
        if data and all(isinstance(row, dict) and "info" in row for row in data):
            return [question for row in data for question in _read_clip(row, where)]
        return _read_rows([(None, None, row) for row in data], where)
    if isinstance(data, dict):
        kinds = {type(value) for value in data.values()}
        if kinds <= {list}:
            return _read_rows([(None, video, row) for video, rows in data.items() for row in rows], where)
        if kinds == {dict}:
            return _read_rows([(name, None, row) for name, row in data.items()], where)
    raise InputError(
        f"{where}: is in no form of MovieCORE or MovieChat-1K. Give lists of questions by video, a list of questions "
        "that name their video, questions by id, or a clip with `info` and `global`."
    )


def _read_rows(rows: Iterable[tuple[str | None, str | None, Any]], where: str) -> list[MovieQuestion]:
    """rows: (id, video, row), the first two where the form gives them beside the row."""
    numbers: Counter[str] = Counter()
    found = []
    for place, (key, video_key, raw) in enumerate(rows, 1):
        name = key or (f"{video_key} number {numbers[clip_name(video_key)] + 1}" if video_key else f"number {place}")
        row = _validated(raw, where, name)
        video_file = video_key or row.video or row.video_id
        if not video_file or not video_file.strip():
            raise InputError(f"{where}: record {name}: video: is missing. Name the clip that the question is about.")
        own = row.question_id or row.id
        if key is not None and own is not None and own != key:
            raise InputError(f"{where}: record {key}: question_id: is {own!r}. Let both be the same.")
        video = clip_name(video_file)
        numbers[video] += 1
        duration = row.frame_length / row.fps if row.frame_length and row.fps else None
        found.append(_question(row, key or own or f"{video}_{numbers[video]}", video_file, duration))
    return found


def _read_clip(raw: dict[str, Any], where: str) -> list[MovieQuestion]:
    try:
        clip = _Clip.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{where}: {first_problem(error)}. Correct the field.") from error
    info = clip.info
    video = clip_name(info.video_path)
    extra = info.model_extra or {}
    duration = info.num_frame / info.fps if info.num_frame and info.fps else None
    found = []
    for number, raw_row in enumerate(clip.questions, 1):
        row = _validated({"class": extra.get("class"), **raw_row}, where, f"global {number}")
        found.append(_question(row, f"{video}_{number}", info.video_path, duration))
    for number, raw_row in enumerate(clip.breakpoint, 1):
        row = _validated({"class": extra.get("class"), **raw_row}, where, f"breakpoint {number}")
        if row.time is None or info.fps is None:
            lacking = "time" if row.time is None else "info.fps"
            raise InputError(f"{where}: record breakpoint {number}: {lacking}: is missing. Add it.")
        time = row.time / info.fps  # the file counts frames
        found.append(_question(row, f"{video}_breakpoint_{number}", info.video_path, duration, time))
    return found


def _validated(raw: Any, where: str, name: str) -> _Question:
    if not isinstance(raw, dict):
        raise InputError(f"{where}: record {name}: is {type(raw).__name__}, not an object with a question.")
    try:
        return _Question.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{where}: record {name}: {first_problem(error)}. Correct the field.") from error


def _question(
    row: _Question, name: str, video_file: str, duration: float | None, time: float | None = None
) -> MovieQuestion:
    answer = row.enhanced_answer[-1].content if row.enhanced_answer else row.answer
    kind = (row.model_extra or {}).get("class")
    return MovieQuestion(
        id=name,
        video=clip_name(video_file),
        video_file=video_file,
        question=row.question,
        answer=answer,
        pred=row.pred,
        classification=row.classification or (kind if isinstance(kind, str) else ""),
        time=time,
        duration=duration,
        judged=row.judged,
    )
