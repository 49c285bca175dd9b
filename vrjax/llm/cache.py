"""Replies on disk, one file each, found again by the full request. No key or secret is part of a request.

    DIRECTORY/3f/3f9a….json = {"request": …, "reply": …, "check": SHA-256 of the reply}

A file appears whole or not at all, so any number of processes may share a directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import uuid
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vrjax.errors import InputError
from vrjax.llm.chat import ChatReply, Usage


class ReplyCache:
    """Replies under a directory, which is made on the first write.

    `counts`: hits, misses, damaged (unreadable or altered entries, which count as misses and are replaced), written,
    not_written (the disk was full or read-only; the reply was returned all the same) and forgotten.
    Raises InputError where the directory's name is taken by a file.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        if self.directory.exists() and not self.directory.is_dir():
            raise InputError(f"{self.directory}: is a file, but the reply cache needs a directory. Name another.")
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"

    def read(self, key: str) -> ChatReply | None:
        """The reply kept under a key, marked as cached, or None."""
        try:
            content = self.path(key).read_bytes()
        except OSError:
            self._count("misses")
            return None
        try:
            entry = json.loads(content)
            if entry["check"] != _check(entry["reply"]):
                raise ValueError("altered")
            raw = entry["reply"]
            reply = ChatReply(
                texts=tuple(raw["texts"]),
                usage=Usage(**raw["usage"]),
                model=raw["model"],
                cached=True,
                finish_reasons=tuple(raw["finish_reasons"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            self._count("damaged")
            return None
        self._count("hits")
        return reply

    def write(self, key: str, request: dict[str, Any], reply: ChatReply) -> None:
        """Keep a reply. `request`: its canonical form, for people who look into the file."""
        raw = asdict(reply)
        del raw["cached"]
        entry = json.dumps({"request": request, "reply": raw, "check": _check(raw)}, indent=1)
        path = self.path(key)
        partial = path.with_name(f".{key[:16]}.{uuid.uuid4().hex}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(entry, encoding="utf-8")
            os.replace(partial, path)
        except OSError:
            # A reply that was paid for is not lost because it cannot be kept.
            with contextlib.suppress(OSError):
                partial.unlink()
            self._count("not_written")
            return
        self._count("written")

    def forget(self, key: str) -> None:
        """Remove an entry, if it is there."""
        try:
            self.path(key).unlink()
        except OSError:
            return
        self._count("forgotten")

    def _count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1


def _check(reply: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(reply, sort_keys=True).encode()).hexdigest()
