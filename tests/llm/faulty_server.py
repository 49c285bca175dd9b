"""A local chat-completions server that fails on purpose, by the number of the item that it is asked about."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What happens at an item's first call; its later calls are answered properly. None: answered at once.
FAULTS = (
    None, "rate_limit", "server_error", "cut_before_reply", "cut_in_reply", "slow", "web_page", "no_choices",
    "not_json", "null_content", "refusal", "filtered", "error_in_200", "fenced", "trailing_comma", "single_quotes",
    "text_before", "thinking", "nan", "two_values", "wrong_type", "cut_json",
)  # fmt: skip


def right_value(item: int) -> int:
    return item * 7919 % 1009


def fault_of(item: int) -> str | None:
    return FAULTS[item % len(FAULTS)]


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the usual 5, many clients at once wait a second to be let in
    daemon_threads = True


class FaultyServer:
    """calls: requests so far; seen: requests by item; times: when they came; bodies: what was sent."""

    def __init__(self, slow_s: float = 2.0, always: str | None = None, reply=None) -> None:
        self.slow_s, self.always = slow_s, always
        self.reply = reply  # what to say to a request's body, in place of the item's value
        self.calls = 0
        self.seen: Counter[int] = Counter()
        self.times: list[float] = []
        self.bodies: list[dict] = []
        self.authorizations: set[str] = set()
        self.organizations: set[str | None] = set()
        self.retry_after = "1"
        self.running = self.most_running = 0
        self.hold_s = 0.0
        self.lock = threading.Lock()
        self.http = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def faulty_server(**options):
    server = FaultyServer(**options)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def completion(content, finish="stop", refusal=None, choices=1, usage=True) -> dict:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    body = {
        "id": "x", "object": "chat.completion", "created": 0, "model": "judge-1",
        "choices": [{"index": i, "message": message, "finish_reason": finish} for i in range(choices)],
    }  # fmt: skip
    return {**body, "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}} if usage else body


def _text(fault: str | None, item: int, plain: str | None = None) -> str:
    value = right_value(item)
    plain = plain or json.dumps({"item": item, "value": value})
    return {
        "fenced": f"```json\n{plain}\n```",
        "trailing_comma": f'{{"item": {item}, "value": {value},}}',
        "single_quotes": f"{{'item': {item}, 'value': {value}}}",
        "text_before": f"Sure [1], here it is: {plain} Anything else?",
        "thinking": f'<think>maybe {{"item": {item}, "value": 0}}</think>{plain}',
        "nan": f'{{"item": {item}, "value": NaN}}',
        "two_values": f'{{"item": {item}, "value": 0}} or rather {plain}',
        "wrong_type": f'{{"item": {item}, "value": "lots"}}',
        "cut_json": f'{{"draft": {{"item": {item}, "value": 0}}, "value": ',
    }.get(fault or "", plain)


def _handler(server: FaultyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def log_message(self, *_):
            pass

        def handle(self):
            try:
                super().handle()
            except (ConnectionError, TimeoutError, ValueError):
                self.close_connection = True

        def do_POST(self):
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            words = json.dumps(sent["messages"])
            item = int(found[1]) if (found := re.search(r"item (\d+)", words)) else 0
            with server.lock:
                server.calls += 1
                server.seen[item] += 1
                first = server.seen[item] == 1
                server.times.append(time.monotonic())
                server.bodies.append(sent)
                server.authorizations.add(self.headers.get("Authorization", ""))
                server.organizations.add(self.headers.get("OpenAI-Organization"))
                server.running += 1
                server.most_running = max(server.running, server.most_running)
            try:
                if server.hold_s:
                    time.sleep(server.hold_s)
                self.answer(server.always or (fault_of(item) if first else None), item, sent)
            finally:
                with server.lock:
                    server.running -= 1

        def answer(self, fault: str | None, item: int, sent: dict) -> None:
            if fault == "rate_limit":
                self.send(429, {"error": {"message": "slow down"}}, {"Retry-After": server.retry_after})
            elif fault == "server_error":
                self.send(500, {"error": {"message": "broken"}})
            elif fault == "unauthorised":
                key = self.headers.get("Authorization", "").removeprefix("Bearer ")
                self.send(401, {"error": {"message": f"Incorrect API key provided: {key}"}})
            elif fault == "quota":
                self.send(429, {"error": {"message": "no money", "code": "insufficient_quota"}})
            elif fault == "cut_before_reply":
                self.connection.close()
                self.close_connection = True
            elif fault in ("cut_in_reply", "slow"):
                content = json.dumps(completion(_text(None, item))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if fault == "cut_in_reply":
                    self.wfile.write(content[:40])
                    self.wfile.flush()
                else:  # a few bytes at a time: no single read waits long
                    until = time.monotonic() + server.slow_s
                    for place in range(0, len(content), 4):
                        self.wfile.write(content[place : place + 4])
                        self.wfile.flush()
                        time.sleep(server.slow_s / len(content) * 4)
                        if time.monotonic() > until:
                            break
                self.connection.close()
                self.close_connection = True
            elif fault == "web_page":
                self.send(200, "<html><body>Bad gateway</body></html>", {"Content-Type": "text/html"})
            elif fault == "not_json":
                self.send(200, '{"choices": [', {})
            elif fault == "no_choices":
                self.send(200, completion("", choices=0))
            elif fault == "null_content":
                self.send(200, completion(None))
            elif fault == "refusal":
                self.send(200, completion(None, refusal="I cannot help with that."))
            elif fault == "filtered":
                self.send(200, completion("", finish="content_filter"))
            elif fault == "error_in_200":
                self.send(200, {"error": {"message": "upstream is full", "code": 503}})
            elif fault == "no_usage":
                self.send(200, completion(_text(None, item), usage=False))
            else:
                plain = None if server.reply is None else server.reply(sent)
                self.send(200, completion(_text(fault, item, plain), choices=sent.get("n", 1)))

        def send(self, status: int, body, headers=None) -> None:
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
