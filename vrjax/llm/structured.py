"""Replies in a form: ask with a schema, parse, repair, check, and ask again with what was wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from vrjax.errors import InputError
from vrjax.llm.chat import Chat, ChatError, ChatReply, ChatRequest, Message, Remembering, Text, Usage
from vrjax.llm.json_text import find_json
from vrjax.records import first_problem

T = TypeVar("T", bound=BaseModel)

SHOWN_BACK = 4000  # characters of an unusable reply that go back to the model


@dataclass(frozen=True)
class Structured(Generic[T]):
    """A reply that fits.

    value: the checked model; reply: the last one; repairs: what was wrong on the way (`json_text.FoundJson.repairs`,
    and `asked_again` once a further attempt); usage: of all attempts.
    """

    value: T
    reply: ChatReply
    repairs: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)


async def ask(chat: Chat, request: ChatRequest, form: type[T], attempts: int = 3) -> Structured[T]:
    """Ask until the reply fits `form`, at most `attempts` times; each further one tells the model what was wrong.

    The schema goes with the request unless it holds one. Raises ChatError of kind bad_reply, with the last text
    verbatim, where no attempt fits (its replies are then forgotten by a chat that keeps replies, so that a later run
    asks anew); and whatever else the chat raises. Raises InputError where several samples are asked for.
    """
    if request.samples != 1:
        raise InputError(f"{request.samples} samples of a structured reply were asked for. Ask for one at a time.")
    if request.schema is None:
        request = replace(request, schema=strict_schema(form), schema_name=form.__name__)
    asked: list[ChatRequest] = []
    usage, problem, reply = Usage(), "", None
    messages = request.messages
    for attempt in range(attempts):
        request = replace(request, messages=messages)
        asked.append(request)
        reply = await chat.complete(request)
        usage = usage + (Usage() if reply.cached else reply.usage)
        try:
            found = find_json(reply.text)
            value = form.model_validate(found.value)
        except ValidationError as error:
            problem = first_problem(error)
        except ValueError as error:
            problem = str(error)
        else:
            return Structured(value, reply, (*found.repairs, *["asked_again"] * attempt), usage)
        if reply.cut:
            problem += f" (it was cut off at {request.max_tokens} tokens: be brief)"
        messages = (*asked[0].messages, *_complaint(reply.text, problem, request.schema or {}, attempt + 1))
    if isinstance(chat, Remembering):
        for one in asked:
            await chat.forget(one)
    raise ChatError(
        f"{chat.name}: none of {attempts} replies fits {form.__name__}; the last: {problem}.",
        "bad_reply",
        retryable=False,
        text=None if reply is None else reply.text,
    )


def strict_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model in the form that endpoints enforce: every property required, none beside them."""
    schema = copy.deepcopy(form.model_json_schema())
    _close(schema)
    return schema


def _close(node: Any) -> None:
    if isinstance(node, dict):
        properties = node.get("properties")
        if isinstance(properties, dict):
            node["required"] = list(properties)
            node["additionalProperties"] = False
            for one in properties.values():
                one.pop("default", None)
        for item in node.values():
            _close(item)
    elif isinstance(node, list):
        for item in node:
            _close(item)


def describe_schema(schema: Mapping[str, Any]) -> str:
    """The wish for a form in words, for models whose decoding cannot be bound to it."""
    return (
        "Reply with one JSON value that fits this JSON schema, and with nothing else:\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )


def worded(request: ChatRequest) -> tuple[Message, ...]:
    """The messages as they are put to the model: the schema, where there is one, described behind the last."""
    if request.schema is None:
        return request.messages
    last = request.messages[-1]
    described = Message(last.role, (*last.parts, Text("\n" + describe_schema(request.schema))))
    return (*request.messages[:-1], described)


def _complaint(text: str, problem: str, schema: Mapping[str, Any], attempt: int) -> tuple[Message, Message]:
    """What goes behind the first conversation; only the last unusable reply is shown, so that prompts stay short.

    The number of the attempt makes each a request of its own: the same reply twice must not be met with the same words.
    """
    return (
        Message.assistant(text[:SHOWN_BACK]),
        Message.user(f"This reply (attempt {attempt}) cannot be used: {problem}. {describe_schema(schema)}"),
    )
