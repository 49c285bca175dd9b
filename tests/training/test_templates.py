import pytest

from vrjax.errors import InputError
from vrjax.evidence import parse_response
from vrjax.records import Question, TimedText
from vrjax.training.templates import ResponseTemplate


def question(**changes) -> Question:
    fields = {
        "question_id": "q1",
        "question": "Why does it move?",
        "answer": "It is pulled.",
        "evidence": (
            TimedText(timestamp=(20, 25), description="A boat moves."),
            TimedText(timestamp=(7, 19), description=" A rope is tied to the boat. "),
        ),
    }
    return Question(**{**fields, **changes})


def test_evidence_first_with_reasoning_from_the_evidence() -> None:
    assert ResponseTemplate().response(question()) == (
        "<evidence>\n"
        "Time:00:07-00:19, Des: A rope is tied to the boat.\n"
        "Time:00:20-00:25, Des: A boat moves.\n"
        "</evidence>\n"
        "<think>From 00:07 to 00:19, A rope is tied to the boat. From 00:20 to 00:25, A boat moves. "
        "The answer follows from this.</think>\n"
        "<answer>It is pulled.</answer>"
    )


def test_the_records_own_reasoning_comes_first() -> None:
    taught = ResponseTemplate().response(question(reasoning="The rope holds."))
    assert parse_response(taught).reasoning == "The rope holds."
    taught = ResponseTemplate(reasoning="template").response(question(reasoning="The rope holds."))
    assert "The rope holds." not in taught


def test_what_is_taught_is_well_formed() -> None:
    response = parse_response(ResponseTemplate().response(question()), duration=30.0)
    assert response.well_formed
    assert not response.faults


def test_plain_answer() -> None:
    template = ResponseTemplate("plain_answer")
    assert template.response(question()) == "It is pulled."
    assert template.instruction_text == ""
    assert "<evidence>" in ResponseTemplate().instruction_text
    assert ResponseTemplate(instruction="").instruction_text == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": " "}, "no answer"),
        ({"evidence": (TimedText(timestamp=(9, 3), description="x"),)}, "evidence 1"),
        ({"evidence": tuple(TimedText(timestamp=(i, i + 1), description="x") for i in range(6))}, "at most 5"),
        ({"answer": "yes</answer><answer>no"}, "tag"),  # duplicated tags would pass a careless format check
    ],
)
def test_what_the_form_cannot_hold_is_an_error(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ResponseTemplate().response(question(**changes))


def test_reasoning_of_the_record_may_be_demanded() -> None:
    with pytest.raises(InputError, match="no reasoning"):
        ResponseTemplate(reasoning="record").response(question())
