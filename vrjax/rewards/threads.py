"""Threads for functions that may hang: unlike those of asyncio.to_thread, they do not keep the process from ending."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

_Job: TypeAlias = Callable[[], bool]  # whether its loop is still there


class DaemonThreads:
    """Runs functions for one event loop, each at once: in a thread that is free, else in a new one.

    A function that never returns keeps its thread, and costs nothing else.
    """

    def __init__(self) -> None:
        self._free: list[SimpleQueue[_Job | None]] = []

    async def run(self, function: Callable[[], Any]) -> Any:
        """The result of the function, or what it raises. Given up by cancelling; the function then goes on unheard."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        jobs = self._free.pop() if self._free else self._new_thread()

        def settle(result: Any, error: BaseException | None) -> None:
            self._free.append(jobs)
            if future.done():  # given up meanwhile
                if inspect.iscoroutine(result):
                    result.close()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def job() -> bool:
            result, error = None, None
            try:
                result = function()
            except StopIteration as stopped:  # which a future cannot hold
                error = RuntimeError(f"StopIteration: {stopped}")
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:  # closed meanwhile, so nobody waits for this any more
                return False
            return True

        jobs.put(job)
        return await future

    def close(self) -> None:
        """End the threads that are free."""
        while self._free:
            self._free.pop().put(None)

    def _new_thread(self) -> SimpleQueue[_Job | None]:
        jobs: SimpleQueue[_Job | None] = SimpleQueue()

        def work() -> None:
            while (job := jobs.get()) is not None and job():
                pass

        threading.Thread(target=work, daemon=True, name="vrjax-reward").start()
        return jobs
