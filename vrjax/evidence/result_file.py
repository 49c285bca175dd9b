"""The result file of EG-VQA's released evaluator: questions flattened, each with the model's response or an `error`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vrjax.errors import InputError
from vrjax.evidence.response import Response, parse_response
from vrjax.evidence.scoring import ScoredItem, reference_evidence
from vrjax.records import Seconds, TimedText, first_problem, load_json, load_records

_SHOWN_IDS = 5


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class ParsedResponse(_Row):
    """The three blocks as the released inference code cut them out."""

    evidence: str | None = None
    think: str | None = None
    answer: str | None = None


class ResultRow(_Row):
    """One question with what a model said. `duration` in seconds; `answer_score` a recorded judgement in [0, 1]."""

    question_id: str
    question: str | None = None
    duration: Seconds | None = None
    answer: str | None = None
    evidence: tuple[TimedText, ...] | None = None
    model_response_raw: str | None = None
    parsed_response: ParsedResponse | None = None
    error: str | None = None
    answer_score: Annotated[float, Field(ge=0, le=1)] | None = None

    def text(self) -> tuple[str | None, str | None]:
        """The response's text and None, or None and why there is none.

        The raw text is taken where there is one, because it alone shows whether the format was kept.
        """
        if self.error:
            return None, self.error
        if self.model_response_raw is not None:
            return self.model_response_raw, None
        if self.parsed_response is None:
            return None, "no response in the row"
        blocks = [(name, getattr(self.parsed_response, name)) for name in ("evidence", "think", "answer")]
        return "\n".join(f"<{name}>{block}</{name}>" for name, block in blocks if block is not None), None

    def response(self, duration: float | None) -> tuple[Response | None, str | None]:
        """The response and None, or None and the name of the reason why there is none."""
        text, error = self.text()
        return (None, error_name(error)) if text is None else (parse_response(text, duration), None)


def error_name(error: str | None) -> str:
    """An error up to its first colon, so that reasons group; lone surrogates, which cannot be printed, are escaped."""
    name = " ".join((error or "").split(":")[0].split()) or "error"
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def load_results(path: str | Path) -> list[ResultRow]:
    """Read a result file (`.json` list or `.jsonl`).

    Raises InputError naming the file and the row where it is empty, malformed, or has a question_id twice.
    """
    raw = load_json(path)
    if not isinstance(raw, list):
        raise InputError(f"{path}: expected a list of question rows, found {type(raw).__name__}.")
    if not raw:
        raise InputError(f"{path}: holds no rows. Check that the run that wrote it has finished.")
    rows: list[ResultRow] = []
    for number, entry in enumerate(raw):
        name = entry.get("question_id", f"number {number}") if isinstance(entry, dict) else f"number {number}"
        try:
            rows.append(ResultRow.model_validate(entry))
        except ValidationError as error:
            raise InputError(f"{path}: row {name}: {first_problem(error)}. Correct the field.") from error
    seen: set[str] = set()
    twice = [row.question_id for row in rows if row.question_id in seen or seen.add(row.question_id)]
    if twice:
        raise InputError(f"{path}: question_id occurs twice: {_names(twice)}. Keep one row for each question.")
    return rows


class Reference(_Row):
    """What a question is scored against; `duration` in seconds."""

    question: str | None
    answer: str
    evidence: tuple[TimedText, ...]
    duration: float | None


def load_references(path: str | Path) -> dict[str, Reference]:
    """References by question_id from a file of EG-VQA records. Raises InputError where an id occurs in two videos."""
    references: dict[str, Reference] = {}
    for record in load_records(path):
        for question in record.questions:
            if question.question_id in references:
                raise InputError(f"{path}: question_id {question.question_id!r} occurs in two videos. Rename one.")
            references[question.question_id] = Reference(
                question=question.question,
                answer=question.answer,
                evidence=question.evidence,
                duration=record.duration,
            )
    return references


def own_references(rows: Sequence[ResultRow], where: str | Path) -> dict[str, Reference]:
    """References that the result file carries itself. Raises InputError naming rows without an `evidence` field."""
    without = [row.question_id for row in rows if row.evidence is None]
    if without:
        raise InputError(f"{where}: no reference evidence in {_names(without)}. Give a references file as well.")
    return {
        row.question_id: Reference(
            question=row.question, answer=row.answer or "", evidence=row.evidence or (), duration=row.duration
        )
        for row in rows
    }


def join(
    rows: Sequence[ResultRow],
    references: Mapping[str, Reference],
    where: str | Path,
    missing_is_unanswered: bool = False,
) -> list[tuple[Reference, ResultRow | None, ScoredItem]]:
    """Put each row beside the reference of its own id, in the order of the references; never by position.

    Args:
        rows: the results.
        references: by question_id.
        where: the result file, for messages.
        missing_is_unanswered: count references without a row as unanswered (None in their place) instead of refusing.

    Raises:
        InputError: an id is unknown to the references, a reference has no row, or an id stands for another question.
    """
    by_id = {row.question_id: row for row in rows}
    unknown = [name for name in by_id if name not in references]
    if unknown:
        raise InputError(
            f"{where}: not in the references: {_names(unknown)}. Check that the two files belong together."
        )
    missing = [name for name in references if name not in by_id]
    if missing and not missing_is_unanswered:
        raise InputError(
            f"{where}: no row for {_names(missing)}. "
            "Complete the file, or count them as unanswered (--missing unanswered)."
        )
    joined: list[tuple[Reference, ResultRow | None, ScoredItem]] = []
    for name, reference in references.items():
        row = by_id.get(name)
        evidence = reference_evidence(reference.evidence)
        if row is None:
            joined.append((reference, None, ScoredItem(name, evidence, None, unanswered="missing row")))
            continue
        asked = (row.question or "").strip(), (reference.question or "").strip()
        if all(asked) and asked[0] != asked[1]:
            raise InputError(
                f"{where}: {name} asks {asked[0]!r}, the references {asked[1]!r}. "
                "The results are keyed to other questions: use the references they were made with."
            )
        response, reason = row.response(reference.duration)
        joined.append((reference, row, ScoredItem(name, evidence, response, unanswered=reason)))
    return joined


def _names(ids: Sequence[Any]) -> str:
    shown = ", ".join(str(name) for name in ids[:_SHOWN_IDS])
    return shown if len(ids) <= _SHOWN_IDS else f"{shown} and {len(ids) - _SHOWN_IDS} more"
