"""Asking for a form: what goes back to the model, what is counted, and how it fails."""

import asyncio
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from vrjax.errors import InputError
from vrjax.llm import ChatError, ChatReply, ChatRequest, Message, Usage, ask
from vrjax.llm.structured import strict_schema


class Inner(BaseModel):
    note: str = "none"


class Form(BaseModel):
    label: Literal["yes", "no"]
    share: float = Field(ge=0, le=1)
    inner: Inner | None = None


class Script:
    """Says its lines, one a call; keeps the requests."""

    name = "script"

    def __init__(self, *lines: str, finish: str = "stop") -> None:
        self.lines, self.finish = list(lines), finish
        self.asked: list[ChatRequest] = []
        self.forgotten: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        return ChatReply((self.lines.pop(0),), Usage(10, 1), self.name, finish_reasons=(self.finish,))

    async def forget(self, request: ChatRequest) -> None:
        self.forgotten.append(request)


REQUEST = ChatRequest(messages=(Message.user("Is it?"),))
GOOD = '{"label": "yes", "share": 0.5, "inner": null}'


def test_a_fitting_reply_needs_one_call():
    chat = Script(GOOD)
    found = asyncio.run(ask(chat, REQUEST, Form))
    assert found.value == Form(label="yes", share=0.5)
    assert found.repairs == ()
    assert chat.asked[0].schema == strict_schema(Form)
    assert chat.asked[0].schema_name == "Form"


def test_the_model_is_told_what_was_wrong_and_sees_only_its_last_reply():
    chat = Script("I think yes.", '{"label": "yes", "share": 2}', f"Sorry: {GOOD}")
    found = asyncio.run(ask(chat, REQUEST, Form))
    assert found.value.share == 0.5
    assert found.repairs == ("text_around", "asked_again", "asked_again")
    assert found.usage == Usage(30, 3)
    second, third = ([message.text for message in request.messages] for request in chat.asked[1:])
    assert second[:2] == ["Is it?", "I think yes."]
    assert "the reply holds no JSON" in second[2]
    assert third[:2] == ["Is it?", '{"label": "yes", "share": 2}']
    assert "share: Input should be less than or equal to 1" in third[2]
    assert '"additionalProperties": false' in third[2]
    assert not chat.forgotten


def test_after_the_last_attempt_the_text_is_kept_verbatim_and_the_replies_are_forgotten():
    chat = Script("one", "two", "three", finish="length")
    with pytest.raises(ChatError, match=r"none of 3 replies fits Form.*cut off at 1024 tokens") as caught:
        asyncio.run(ask(chat, REQUEST, Form, attempts=3))
    assert (caught.value.kind, caught.value.text, caught.value.retryable) == ("bad_reply", "three", False)
    assert chat.forgotten == chat.asked


def test_nan_never_becomes_a_number():
    with pytest.raises(ChatError, match="NaN is not a number"):
        asyncio.run(ask(Script('{"label": "yes", "share": NaN}'), REQUEST, Form, attempts=1))


def test_several_samples_of_a_form_are_refused():
    with pytest.raises(InputError, match="one at a time"):
        asyncio.run(ask(Script(), ChatRequest(messages=REQUEST.messages, samples=2), Form))


def test_the_schema_closes_every_object_and_requires_every_property():
    schema = strict_schema(Form)
    assert schema["required"] == ["label", "share", "inner"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Inner"]["required"] == ["note"]
    assert schema["$defs"]["Inner"]["additionalProperties"] is False
    assert "default" not in schema["$defs"]["Inner"]["properties"]["note"]


def test_the_same_unusable_reply_again_is_asked_about_anew():
    chat = Script("no", "no", GOOD)
    asyncio.run(ask(chat, REQUEST, Form))
    assert len({request.messages for request in chat.asked}) == 3
