"""Names of models on the command line: `openai:MODEL`, `native:DIR`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vrjax.errors import InputError
from vrjax.llm.chat import Chat


def parse_llm(
    spec: str,
    base_url: str | None = None,
    api_key: str | None = None,
    *,
    timeout_s: float = 120.0,
    extra: Mapping[str, Any] | None = None,
) -> Chat:
    """The backend that a spec names; wrap it in a ChatClient for retries, cache and budget.

    `openai:MODEL`: a model behind an OpenAI-compatible server at base_url (default OpenAI's, which wants api_key);
    timeout_s and extra as in OpenAIEndpoint. `native:DIR`: a model directory, run directory or hub id, loaded now.
    Raises InputError for anything else, and CheckpointError where the directory's checkpoint cannot be used.
    """
    kind, colon, model = spec.partition(":")
    if not colon or not model.strip() or kind not in ("openai", "native"):
        raise InputError(f"{spec!r} names no model. Write openai:MODEL or native:DIR.")
    if kind == "openai":
        from vrjax.llm.openai_endpoint import OpenAIEndpoint

        if base_url is None and not api_key:
            raise InputError(f"{spec} needs an API key. Set one, or give the base URL of a server that wants none.")
        return OpenAIEndpoint(model, base_url, api_key, timeout_s, extra)
    if base_url is not None:
        raise InputError(f"{spec} runs here and takes no base URL, but {base_url!r} is given. Leave it out.")
    from vrjax.llm.native import NativeChat

    return NativeChat(model)
