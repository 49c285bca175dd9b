"""Who may reach the review page: loopback names without a password, anybody with it elsewhere."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Any

LONGEST_NAME = 60
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Nothing of the page may be fetched from, or sent, elsewhere. Gradio compiles its components, hence unsafe-eval.
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
)


class Gate:
    """ASGI around an app: checks the password or the host, refuses other sites' requests, sets the security policy.

    With a password every request needs HTTP Basic credentials; any name will do, and becomes `scope["rater"]`. Without
    one only requests to a loopback name are answered, so that no other site's name can be pointed here.
    """

    def __init__(self, app: Any, password: str | None) -> None:
        self.app, self.password = app, password

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        host = headers.get("host", "")
        if self.password is None:
            if bare_host(host) not in LOOPBACK:
                await _reply(send, 403, b"This page is served on loopback alone. Start it with a password.\n")
                return
        else:
            rater = self._rater(headers.get("authorization", ""))
            if rater is None:
                ask = [
                    (b"www-authenticate", b'Basic realm="vrjax review: your name, and the password", charset="UTF-8"')
                ]
                await _reply(send, 401, b"Give your name and the password.\n", ask)
                return
            scope = {**scope, "rater": rater}
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
            await _reply(send, 403, b"This request comes from another site.\n")
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [
                    (b"content-security-policy", POLICY.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                ]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self.app(scope, receive, guarded)

    def _rater(self, given: str) -> str | None:
        """The name in credentials with the right password."""
        kind, _, code = given.partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(code, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        right = hmac.compare_digest(password.encode(), (self.password or "").encode())
        return name.strip() if colon and right and 0 < len(name.strip()) <= LONGEST_NAME else None


def bare_host(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host if host.count(":") == 1 else host


async def _reply(send: Any, status: int, text: bytes, headers: Any = ()) -> None:
    plain = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*plain, *headers]})
    await send({"type": "http.response.body", "body": text})
