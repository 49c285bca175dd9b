"""Reading what an OpenAI-compatible server sent: a completion, or the kind of failure that it is.

Servers differ, so nothing is taken for granted: the body is checked field by field before it becomes a ChatReply.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from vrjax.llm.chat import ChatError, ChatReply, ChatRequest, ErrorKind, Usage
from vrjax.records import first_problem

MOST_SHOWN = 300  # characters of a server's message in an error
CHARACTERS_PER_TOKEN = 4
FILTER_CODES = {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class _Completion(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None
    model: str | None = None


def read_completion(
    text: str, headers: Mapping[str, str], request: ChatRequest, where: str, blank: Callable[[str], str]
) -> ChatReply:
    """The reply in a body that came with status 200.

    where: name of the model, for errors. blank: takes secrets out of text that goes into an error.
    Raises ChatError: bad_reply for anything but a completion with text, refused, or what an error inside the body says.
    """
    headers = {name.lower(): value for name, value in headers.items()}
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        kind = "a web page" if text.lstrip()[:1] == "<" else "not JSON"
        raise ChatError(
            f"{where}: the reply is {kind}, not a completion: {_short(blank(text))!r}. Is the base URL right?",
            "bad_reply",
            text=blank(text[:2000]),
        ) from None
    error = raw.get("error") if isinstance(raw, dict) else None
    if error:  # some gateways put their errors into a 200
        body = error if isinstance(error, dict) else {"message": str(error)}
        code = body.get("code")
        status = code if isinstance(code, int) else 500
        raise status_error(where, status, body, blank(str(body.get("message"))), retry_after_s(headers))
    try:
        completion = _Completion.model_validate(raw)
    except ValidationError as fault:
        raise ChatError(f"{where}: the reply is no completion ({blank(first_problem(fault))}).", "bad_reply") from None
    usage = _usage(completion, request)
    if len(completion.choices) != request.samples:
        count = len(completion.choices)
        raise ChatError(f"{where}: the reply holds {count} of {request.samples} samples.", "bad_reply", usage=usage)
    for choice in completion.choices:
        if choice.finish_reason == "content_filter" or choice.message.refusal:
            said = choice.message.refusal or choice.message.content or "content filter"
            raise ChatError(f"{where}: refused: {_short(blank(said))!r}", "refused", text=said, usage=usage)
        if not (choice.message.content or "").strip():
            raise ChatError(
                f"{where}: the reply holds no text (finish reason {choice.finish_reason}). "
                "Raise max_tokens where the model reasons first.",
                "bad_reply",
                text="",
                usage=usage,
            )
    return ChatReply(
        texts=tuple(choice.message.content or "" for choice in completion.choices),
        usage=usage,
        model=completion.model or where,
        finish_reasons=tuple(choice.finish_reason or "unknown" for choice in completion.choices),
    )


def status_error(
    where: str, status: int, body: Mapping[str, Any], message: str, retry_after: float | None
) -> ChatError:
    """The error for a status code. body: the server's error object; message: its words, free of secrets."""
    code = str(body.get("code") or body.get("type") or "")
    kind: ErrorKind = "bad_request"
    retryable, advice = None, "Check the model's name and the request."
    if code in FILTER_CODES:
        kind, advice = "refused", "The content filter stopped it."
    elif status == 429:
        kind, advice = "rate_limited", "Lower the concurrency if this goes on."
        if code == "insufficient_quota":
            retryable, advice = False, "The account's quota is used up."
    elif status in (401, 403):
        kind, advice = "unauthorised", "Check the API key."
    elif status >= 500 or status in (408, 409, 425):
        kind, advice = "server", "The server failed."
    text = f"{where}: status {status}: {_short(message)}. {advice}"
    return ChatError(text, kind, retryable=retryable, retry_after_s=retry_after)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.

    headers: with names in lower case. None where there is no such wish or it cannot be read.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _usage(completion: _Completion, request: ChatRequest) -> Usage:
    if completion.usage is not None:
        return Usage(completion.usage.prompt_tokens, completion.usage.completion_tokens or 0)
    sent = sum(len(message.text) for message in request.messages)
    came = sum(len(choice.message.content or "") for choice in completion.choices)
    return Usage(-(-sent // CHARACTERS_PER_TOKEN), -(-came // CHARACTERS_PER_TOKEN), estimated=True)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"
