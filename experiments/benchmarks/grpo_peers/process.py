"""A peer in a process of its own, with its own interpreter: it makes one step each time it is told to.

The scripts beside this file speak three lines on their standard streams: they print `@ready` once their model is
loaded, and `@done` after each step that the line `step` asked for; when their input ends, so do they.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vrjax.errors import RunError


class PeerProcess:
    """Runs `script` (a file beside this one) with `arguments`; a context."""

    def __init__(self, python: str, script: str, arguments: Sequence[str]) -> None:
        command = [python, str(Path(__file__).parent / script), *arguments]
        self._name = script
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._expect("@ready")

    def step(self) -> None:
        """Make one step and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        self._expect("@done")

    def _expect(self, mark: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # libraries print there too
            if line.strip() == mark:
                return
        raise RunError(
            f"{self._name} ended with code {self._process.wait()} before it said {mark}. Run it by hand to see why."
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
