"""A chat-completions server that plays a large model by rules. It sees the requests and nothing else.

Asked for a program, it writes the next one by what the conversation shows; asked about frames, it decodes the pictures
and tests their pixels; asked to judge, it compares the attempts' texts.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Asked:
    """A request as the server got it. text: all words; pictures: (label before it, RGB pixels) in order."""

    system: str
    turns: tuple[tuple[str, str], ...]
    pictures: tuple[tuple[str, np.ndarray], ...]
    form: str | None
    body: dict[str, Any] = field(repr=False)

    @property
    def text(self) -> str:
        return "\n".join(words for _, words in self.turns)

    @property
    def last(self) -> str:
        return self.turns[-1][1]

    @property
    def replies(self) -> int:
        return sum(role == "assistant" for role, _ in self.turns)


Script = Callable[[Asked], Any]


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class Endpoint:
    """url: its address; forms: requests so far by form (None: in words); statuses: what to fail with, first to last."""

    def __init__(self, script: Script) -> None:
        self.script, self.forms, self.lock = script, Counter[str | None](), threading.Lock()
        self.faults: list[Any] = []
        self.asked: list[str] = []
        self.http = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def scripted_endpoint(script: Script):
    endpoint = Endpoint(script)
    thread = threading.Thread(target=endpoint.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.http.shutdown()
        endpoint.http.server_close()


def read_request(body: dict[str, Any]) -> Asked:
    system, turns, pictures = "", [], []
    for message in body["messages"]:
        content = message["content"]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        words = []
        for block in blocks:
            if block["type"] == "text":
                words.append(block["text"])
                continue
            data = base64.b64decode(block["image_url"]["url"].split(",", 1)[1])
            pictures.append((words[-1] if words else "", np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))))
        if message["role"] == "system":
            system = "\n".join(words)
        else:
            turns.append((message["role"], "\n".join(words)))
    form = body.get("response_format", {}).get("json_schema", {}).get("name")
    return Asked(system, tuple(turns), tuple(pictures), form, body)


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = read_request(body)
            with endpoint.lock:
                endpoint.forms[asked.form] += 1
                endpoint.asked.append(asked.last)
                fault = endpoint.faults.pop(0) if endpoint.faults else None
            said = endpoint.script(asked) if fault is None else fault
            status = 200
            if isinstance(said, int):
                status, answer = said, {"error": {"message": f"fails with {said}"}}
            else:
                text = said if isinstance(said, str) else json.dumps(said)
                message = {"role": "assistant", "content": text, "refusal": None}
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice],
                          "usage": usage}  # fmt: skip
            content = json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except ConnectionError:
                self.close_connection = True

    return Handler
