"""Any OpenAI-compatible server (chat completions) as a Chat. Every failure gets one of ChatError's kinds.

The key is sent to the server and goes nowhere else: it is not part of the name, and whatever a server echoes of it is
blanked before it can reach an error or a log.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from vrjax.errors import InputError
from vrjax.llm.chat import ChatError, ChatReply, ChatRequest, Frames, Image, Message, Part, Text
from vrjax.llm.frame_images import FrameImages, TimedImage, time_label
from vrjax.llm.openai_reply import read_completion, retry_after_s, status_error
from vrjax.video import ReaderPool

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIEndpoint:
    """One model of one server.

    base_url: default OpenAI's own. api_key: None for servers that want none. timeout_s: for a whole reply, however
    slowly it drips in. extra: fields of the request's body to add or replace; a value of None takes a field out, for
    servers that refuse one ({"temperature": None}). Frames are sent as JPEG images, each after its time as text.
    Raises InputError where the address is none.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.timeout_s, self.extra = model, timeout_s, dict(extra or {})
        self._base_url, self._api_key = base_url or OPENAI_URL, api_key
        parts = urlsplit(self._base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"the base URL of {model} is not an address. Give one like http://localhost:8000/v1.")
        # User name, password and query of an address may be secrets.
        place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        # OpenAI's newer models refuse the old name of the limit, other servers do not know the new one.
        self._limit_field = "max_completion_tokens" if parts.hostname == "api.openai.com" else "max_tokens"
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()
        self._pool: ReaderPool | None = None
        self._frames: FrameImages | None = None
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        return f"OpenAIEndpoint({self.name!r})"

    @property
    def name(self) -> str:
        """Model and address, and the fields of `extra`; no key, no credentials of the address."""
        extra = f" {json.dumps(self.extra, sort_keys=True)}" if self.extra else ""
        return self._blank(f"openai:{self.model} at {self.address}{extra}")

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call, without retries. Raises ChatError, and InputError where frames cannot be read."""
        body = await self._body(request)
        # The library's own errors know the request and its headers, so they do not hang on ours.
        try:
            async with asyncio.timeout(self.timeout_s):
                raw = await self._client().chat.completions.with_raw_response.create(**body)
            return read_completion(raw.text, dict(raw.headers), request, self.name, self._blank)
        except Exception as error:
            fault = self._fault(error)
        fault.__cause__ = fault.__context__ = None
        raise fault

    async def aclose(self) -> None:
        """Close this event loop's connections and the processes that read videos."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = self._frames = None

    def _client(self) -> AsyncOpenAI:
        """Connections belong to an event loop, so each has a client of its own."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = AsyncOpenAI(
                api_key=self._api_key or "none",
                base_url=self._base_url,
                timeout=self.timeout_s,
                max_retries=0,
            )
            # The library takes these from the environment; another server has no business with them.
            client.organization = client.project = None
            self._clients[loop] = client
        return client

    async def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [await self._message(message) for message in request.messages],
            "temperature": request.temperature,
            "top_p": request.top_p,
            self._limit_field: request.max_tokens,
        }
        if request.samples > 1:
            body["n"] = request.samples
        if request.seed is not None:
            body["seed"] = request.seed
        if request.schema is not None:
            schema = {"name": request.schema_name, "schema": dict(request.schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        removed = {name for name, value in self.extra.items() if value is None}
        added = {name: value for name, value in self.extra.items() if value is not None}
        body = {name: value for name, value in body.items() if name not in removed}
        return {**body, **({"extra_body": added} if added else {})}

    async def _message(self, message: Message) -> dict[str, Any]:
        if all(isinstance(part, Text) for part in message.parts):
            return {"role": message.role, "content": message.text}
        content = [block for part in message.parts for block in await self._blocks(part)]
        return {"role": message.role, "content": content}

    async def _blocks(self, part: Part) -> list[dict[str, Any]]:
        if isinstance(part, Text):
            return [{"type": "text", "text": part.text}]
        if isinstance(part, Image):
            return [_image_block(part)]
        blocks = []
        for frame in await asyncio.to_thread(self._read, part):
            blocks.append({"type": "text", "text": f"Frame at {time_label(frame.seconds)}:"})
            blocks.append(_image_block(frame.image))
        return blocks

    def _read(self, part: Frames) -> list[TimedImage]:
        with self._opening:
            if self._pool is None or self._frames is None:
                self._pool = ReaderPool(2)
                self._frames = FrameImages(self._pool)
            frames = self._frames
        return frames.read(part)

    def _fault(self, error: Exception) -> ChatError:
        import openai

        if isinstance(error, ChatError):
            return error
        where = self.name
        if isinstance(error, (TimeoutError, openai.APITimeoutError)):
            return ChatError(f"{where}: no whole reply within {self.timeout_s:g} s.", "timeout")
        if isinstance(error, openai.APIConnectionError):
            cause = error.__cause__
            reason = type(cause).__name__ if cause is not None else "no connection"
            return ChatError(f"{where}: the connection failed ({reason}). Is the server there?", "connection")
        if isinstance(error, openai.APIStatusError):
            headers = {name.lower(): value for name, value in error.response.headers.items()}
            body = error.body if isinstance(error.body, dict) else {}
            message = self._blank(str(error.message))
            return status_error(where, error.status_code, body, message, retry_after_s(headers))
        return ChatError(f"{where}: {type(error).__name__}: {self._blank(str(error))}", "backend")

    def _blank(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self._api_key, "[key]") if self._api_key else text


def _image_block(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}
