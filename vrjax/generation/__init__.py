"""Prompts, and the engine that answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.generation.beam_search import Beam, BeamOptions
    from vrjax.generation.chat_forms import ChatForm, Turn
    from vrjax.generation.chat_tokenizer import ChatTokenizer
    from vrjax.generation.continuations import Continuations, Reading
    from vrjax.generation.engine import Engine
    from vrjax.generation.prompts import Prompt, Vision, build_conversation, build_prompt
    from vrjax.generation.requests import EngineOptions, Request, Sample
    from vrjax.generation.sampling import SamplingOptions

# Imported when first used: commands that only read a recipe need not wait for the engine.
_PLACES = {
    "Beam": "beam_search",
    "BeamOptions": "beam_search",
    "Continuations": "continuations",
    "ChatForm": "chat_forms",
    "ChatTokenizer": "chat_tokenizer",
    "Engine": "engine",
    "EngineOptions": "requests",
    "Prompt": "prompts",
    "Reading": "continuations",
    "Request": "requests",
    "Sample": "requests",
    "SamplingOptions": "sampling",
    "Turn": "chat_forms",
    "Vision": "prompts",
    "build_conversation": "prompts",
    "build_prompt": "prompts",
}

__all__ = [
    "Beam",
    "BeamOptions",
    "ChatForm",
    "ChatTokenizer",
    "Continuations",
    "Engine",
    "EngineOptions",
    "Prompt",
    "Reading",
    "Request",
    "Sample",
    "SamplingOptions",
    "Turn",
    "Vision",
    "build_conversation",
    "build_prompt",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
