"""What makes two requests the same: the model, every word, every picture, every option. Named by a SHA-256.

Images count by their bytes, videos by the bytes of the file and the frame options, so that a moved or copied file is
still the same request.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from typing import Any

from vrjax.errors import InputError
from vrjax.llm.chat import ChatRequest, Frames, Image, Part, Text

# Raised when the way in which a request is put to a model changes (how frames are announced, say).
VERSION = 1


def canonical_request(request: ChatRequest, model: str) -> dict[str, Any]:
    """The request as plain JSON. Reads each video file once; raises InputError naming one that cannot be read."""
    return {
        "version": VERSION,
        "model": model,
        "messages": [
            {"role": message.role, "parts": [_part(part) for part in message.parts]} for message in request.messages
        ],
        "schema": None if request.schema is None else dict(request.schema),
        "schema_name": None if request.schema is None else request.schema_name,
        "temperature": float(request.temperature),
        "top_p": float(request.top_p),
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "samples": request.samples,
    }


def request_key(canonical: dict[str, Any]) -> str:
    """SHA-256 of a canonical request, in hexadecimal."""
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()


def has_frames(request: ChatRequest) -> bool:
    """Whether making the key reads files."""
    return any(isinstance(part, Frames) for message in request.messages for part in message.parts)


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, Image):
        return {"image": hashlib.sha256(part.data).hexdigest(), "media_type": part.media_type}
    try:
        status = os.stat(part.video)
        digest = _file_digest(str(part.video), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise InputError(f"{part.video}: cannot be read ({error.strerror}). Check the path.") from error
    return {"frames": digest, "options": dataclasses.asdict(part.options)}


@functools.lru_cache(maxsize=4096)
def _file_digest(path: str, size: int, mtime_ns: int) -> str:
    """SHA-256 of a file; size and time of change are there to notice that it is another one now."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
