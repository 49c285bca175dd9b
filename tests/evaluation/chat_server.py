"""A local chat-completions server whose answer depends on the question alone, for evaluations."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class ChatServer:
    """answer: (text of the last message, number of its pictures) → the reply's text, or an HTTP status to fail with.

    asked: how often each text came; pictures: how many went with it.
    """

    def __init__(self, answer: Callable[[str, int], str | int], delay_s: float = 0.0) -> None:
        self.answer, self.delay_s = answer, delay_s
        self.asked: Counter[str] = Counter()
        self.pictures: dict[str, int] = {}
        self.keys: set[str] = set()
        self.lock = threading.Lock()
        self.http = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def chat_server(answer: Callable[[str, int], str | int], delay_s: float = 0.0) -> Iterator[ChatServer]:
    server = ChatServer(answer, delay_s)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def handle(self):
            try:
                super().handle()
            except (ConnectionError, TimeoutError, ValueError):  # whoever asked was killed
                self.close_connection = True

        def do_POST(self):
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = sent["messages"][-1]["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            text = [part["text"] for part in parts if part["type"] == "text"][-1]
            pictures = sum(part["type"] == "image_url" for part in parts)
            with server.lock:
                server.asked[text] += 1
                server.pictures[text] = pictures
                server.keys.add(self.headers.get("Authorization", ""))
            if server.delay_s:
                time.sleep(server.delay_s)
            answer = server.answer(text, pictures)
            if isinstance(answer, int):
                self.reply(answer, {"error": {"message": "this one fails"}})
            else:
                message = {"role": "assistant", "content": answer}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
                self.reply(200, {"id": "1", "object": "chat.completion", "created": 0, "model": sent["model"],
                                 "choices": [choice], "usage": usage})  # fmt: skip

        def reply(self, status: int, body: dict) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
