"""What a model is taught to answer: the text of a response, made from a question's record.

`evidence_first`: timed evidence, reasoning, answer (EG-VQA's form, see vrjax.evidence.response).
`plain_answer`: the answer and nothing else.
EG-VQA's records hold no reasoning; `reasoning` says where the text between <think> and </think> comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vrjax.errors import InputError
from vrjax.evidence import EVIDENCE_INSTRUCTION, Evidence, Span, format_response, format_time
from vrjax.records import Question

TemplateName = Literal["evidence_first", "plain_answer"]
ReasoningSource = Literal["record_else_template", "record", "template"]


@dataclass(frozen=True)
class ResponseTemplate:
    """name: the form of the response. reasoning: the record's own, the template over its evidence, or the first that
    there is. instruction: what is put behind the question; None stands for the form's own text, "" for nothing (a
    small model with a small vocabulary needs none).
    """

    name: TemplateName = "evidence_first"
    reasoning: ReasoningSource = "record_else_template"
    instruction: str | None = None

    @property
    def instruction_text(self) -> str:
        if self.instruction is not None:
            return self.instruction
        return EVIDENCE_INSTRUCTION if self.name == "evidence_first" else ""

    def response(self, question: Question) -> str:
        """The response that `question` should get.

        Raises InputError without an answer, with evidence that the form cannot hold (more than five pieces, reversed or
        empty times, no description), or without reasoning where `reasoning` asks for the record's.
        """
        if not question.answer.strip():
            raise InputError("the question has no answer. Fill in the field, or leave the question out.")
        if self.name == "plain_answer":
            return question.answer.strip()
        evidence = _evidence(question)
        return format_response(evidence, self._reasoning(question, evidence), question.answer)

    def _reasoning(self, question: Question, evidence: Sequence[Evidence]) -> str:
        if self.reasoning != "template" and question.reasoning is not None:
            return question.reasoning
        if self.reasoning == "record":
            raise InputError("the question has no reasoning. Fill in the field, or let the template write it.")
        return reasoning_from_evidence(evidence)


def reasoning_from_evidence(evidence: Sequence[Evidence]) -> str:
    """Reasoning that only restates the evidence in time order; version 1 of the wording."""
    usable = sorted((piece.span, piece.description) for piece in evidence if piece.span is not None)
    sentences = [
        f"From {format_time(span.start)} to {format_time(span.end)}, {description.strip().rstrip('.')}."
        for span, description in usable
    ]
    if not sentences:
        return "No single moment decides this; the video as a whole does."
    return " ".join([*sentences, "The answer follows from this."])


def _evidence(question: Question) -> list[Evidence]:
    pieces = []
    for number, piece in enumerate(question.evidence, 1):
        try:
            pieces.append(Evidence(Span(piece.start, piece.end), piece.description))
        except ValueError as error:
            raise InputError(f"evidence {number}: {error}. Correct the times.") from error
    return pieces
