"""Processes that read videos and can be killed: at a time limit, after a crash, or with their owner.

A decoder may hang, crash or leak, and a fork of a process that has decoded before may deadlock. So each worker is a
fresh interpreter (never a fork), is asked over pipes, answers with one array, and is replaced when it does not answer
in time, dies, or has served `requests_per_worker` requests.

    request  = length (8 bytes) + pickle of (task, subject, options, time limit)     parent → worker
    reply    = length (8 bytes) + JSON {ok, …, dtype, shape} + the array's bytes      worker → parent

Replies are JSON and raw bytes because a worker handles hostile files: nothing it sends is executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from vrjax.errors import VideoError

_ALLOWED_TYPES = frozenset({"uint8", "float64"})
_START_LIMIT_S = 60.0  # importing the decoders on a busy machine


class _Timeout(Exception):
    pass


class _Died(Exception):
    pass


class _Worker:
    def __init__(self) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
        start = f"import sys; sys.path.insert(0, {package_root!r}); from vrjax.video.worker import main; main()"
        # One BLAS thread a worker: the workers themselves fill the cores.
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        self.served = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: tuple, time_limit_s: float) -> tuple[dict, np.ndarray]:
        """Send a request and wait. The time of the worker's own start does not count. Raises _Timeout or _Died."""
        if not self._ready:
            self._receive(time.monotonic() + _START_LIMIT_S)
            self._ready = True
        content = pickle.dumps(request)
        try:
            self._stdin.write(struct.pack("<Q", len(content)) + content)
            self._stdin.flush()
        except (BrokenPipeError, OSError) as error:
            raise _Died from error
        reply = self._receive(time.monotonic() + time_limit_s)
        self.served += 1
        return reply

    def _receive(self, deadline: float) -> tuple[dict, np.ndarray]:
        (length,) = struct.unpack("<Q", self._read(8, deadline))
        header = json.loads(self._read(length, deadline))
        if header.get("dtype", "uint8") not in _ALLOWED_TYPES:
            raise _Died
        array = np.empty(header.pop("shape", [0]), header.pop("dtype", "uint8"))
        self._read_into(array.reshape(-1).view(np.uint8).data, deadline)
        return header, array

    def _read(self, count: int, deadline: float) -> bytes:
        content = np.empty(count, np.uint8)
        self._read_into(content.data, deadline)
        return content.tobytes()

    def _read_into(self, target: memoryview, deadline: float) -> None:
        descriptor = self._stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        while len(target):
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise _Timeout
            got = os.readv(descriptor, [target])
            if got == 0:
                raise _Died
            target = target[got:]

    def stop(self) -> int:
        """Kill the process, close its pipes and return its exit status."""
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # unsent bytes to a dead process
                pipe.close()
        return status


class ReaderPool:
    """Up to `workers` reading processes, started when first needed. Safe between threads; a context manager.

    `time_limit_s` bounds each request in seconds. `replaced` counts processes that hung or crashed, by kind.
    """

    def __init__(self, workers: int = 2, time_limit_s: float = 60.0, requests_per_worker: int = 500) -> None:
        if workers < 1 or not time_limit_s > 0 or requests_per_worker < 1:
            raise ValueError("workers, time_limit_s and requests_per_worker must be above 0")
        self.workers, self.time_limit_s, self.requests_per_worker = workers, time_limit_s, requests_per_worker
        self.replaced: dict[str, int] = {"hang": 0, "crash": 0}
        self._lock = threading.Lock()
        self._closed = False
        self._places: queue.Queue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._places.put(None)

    def run(self, task: str, subject: Any, options: dict | None = None) -> tuple[dict, np.ndarray]:
        """Do a task of `vrjax.video.worker` (probe, frames, patches, inspect) and return (facts, array).

        Waits for a free process. Raises VideoError: what the task raised, `hang` at the time limit, `crash` where the
        process died.
        """
        worker = self._places.get()
        path = subject if isinstance(subject, str) else subject.path
        try:
            if self._closed:
                raise RuntimeError("this ReaderPool is closed")
            if worker is None:
                worker = _Worker()
            try:
                header, array = worker.ask((task, subject, options or {}, self.time_limit_s), self.time_limit_s)
            except _Timeout:
                worker = self._replace(worker, "hang")
                raise VideoError(
                    f"{path}: gave no answer within {self.time_limit_s:g} s and was given up. Check the file, or raise "
                    "the time limit.",
                    "hang",
                ) from None
            except _Died:
                status = worker.stop()
                worker = self._replace(worker, "crash")
                cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                raise VideoError(f"{path}: the decoder crashed on it ({cause}). Re-encode it.", "crash") from None
            if worker.served >= self.requests_per_worker:
                worker.stop()
                worker = None
        except BaseException:
            # Whatever interrupted the request (Ctrl-C, say), a half-read answer must not meet the next one.
            if worker is not None:
                worker.stop()
                worker = None
            raise
        finally:
            self._places.put(worker)
        if not header.pop("ok"):
            raise VideoError(header["message"], header["kind"])
        return header, array

    def _replace(self, worker: _Worker, kind: str) -> None:
        worker.stop()
        with self._lock:
            self.replaced[kind] += 1

    def close(self) -> None:
        """End all idle processes; a request in progress ends its own."""
        self._closed = True
        idle: list[_Worker | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._places.get_nowait())
        for worker in idle:
            if worker is not None:
                worker.stop()
            self._places.put(None)

    def __enter__(self) -> ReaderPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
