"""Any language model behind one interface: messages with text, images and frames in; texts or checked JSON out.

    client = ChatClient(parse_llm("openai:gpt-4o", None, key), cache=ReplyCache("replies"), budget=Budget(10**6))
    found = await ask(client, ChatRequest(messages=(Message.user("…"),)), MyForm)

`ChatClient` adds retries, time limits, cache, budget and replay to a backend; `AnswerJudge` stands on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vrjax.llm.budget import Budget, BudgetExceeded, Price
from vrjax.llm.cache import ReplyCache
from vrjax.llm.chat import (
    Chat,
    ChatError,
    ChatReply,
    ChatRequest,
    Frames,
    Image,
    Message,
    Part,
    Text,
    Usage,
)
from vrjax.llm.client import ChatClient, Retrying
from vrjax.llm.endpoints import parse_llm
from vrjax.llm.json_text import extract_json
from vrjax.llm.judge import AnswerJudge, Judgement
from vrjax.llm.score_text import parse_score
from vrjax.llm.structured import Structured, ask

if TYPE_CHECKING:
    from vrjax.llm.native import NativeChat
    from vrjax.llm.openai_endpoint import OpenAIEndpoint

# Imported when first used: one needs JAX and a model, the other the openai package.
_PLACES = {"NativeChat": "native", "OpenAIEndpoint": "openai_endpoint"}

__all__ = [
    "AnswerJudge",
    "Budget",
    "BudgetExceeded",
    "Chat",
    "ChatClient",
    "ChatError",
    "ChatReply",
    "ChatRequest",
    "Frames",
    "Image",
    "Judgement",
    "Message",
    "NativeChat",
    "OpenAIEndpoint",
    "Part",
    "Price",
    "ReplyCache",
    "Retrying",
    "Structured",
    "Text",
    "Usage",
    "ask",
    "extract_json",
    "parse_llm",
    "parse_score",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
