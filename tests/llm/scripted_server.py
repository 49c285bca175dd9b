"""A local chat-completions server that answers by a function of what it is sent, and fails at a share of its calls."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

from tests.llm.faulty_server import completion

# What may stand in place of a reply: a status, a cut connection, or a text that is of no use.
FAULTS = ("rate_limit", "server_error", "cut", "not_json", "empty")


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class ScriptedServer:
    """script: what is sent (model, messages, …) → the text of the reply. bodies: what was sent and answered properly;
    asked: the number of answered requests by their canonical text. interrupt: called with the number of calls before
    each is answered, one at a time; where it returns True neither this call nor any that waits is answered."""

    def __init__(self, script: Callable[[dict], str], fault_share: float = 0.0, seed: int = 0) -> None:
        self.script, self.fault_share, self.random = script, fault_share, Random(seed)
        self.kinds = FAULTS
        self.calls = self.faults = 0
        self.bodies: list[dict] = []
        self.asked: Counter[str] = Counter()
        self.interrupt: Callable[[int], bool] = lambda calls: False
        self.era = 0
        self.lock, self.gate = threading.Lock(), threading.Lock()
        self.http = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def scripted_server(script: Callable[[dict], str], **options):
    server = ScriptedServer(script, **options)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
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
            with server.lock:
                server.calls += 1
                calls, era = server.calls, server.era
                fault = server.random.choice(server.kinds) if server.random.random() < server.fault_share else None
                server.faults += fault is not None
            with server.gate:
                if server.era != era or server.interrupt(calls):
                    server.era += server.era == era
                    self.close_connection = True
                    return
                self.answer(sent, fault)

        def answer(self, sent: dict, fault: str | None) -> None:
            if fault is None:
                text = server.script(sent)
                with server.lock:
                    server.bodies.append(sent)
                    server.asked[json.dumps(sent, sort_keys=True)] += 1
                self.send(200, completion(text))
            elif fault == "rate_limit":
                self.send(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})
            elif fault == "server_error":
                self.send(500, {"error": {"message": "broken"}})
            elif fault == "cut":
                self.connection.close()
                self.close_connection = True
            else:
                self.send(200, completion("I would rather talk about something else." if fault == "not_json" else ""))

        def send(self, status: int, body, headers=None) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
