"""One call of a reward, guarded: it ends in time, is tried again where that may help, and is never 0 by fault."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from dataclasses import dataclass
from typing import Any

from vrjax.errors import InputError
from vrjax.rewards.reward import Reward, RewardFunction, RewardItem, reward_name
from vrjax.rewards.threads import DaemonThreads

TIMEOUT = "timeout"
ERROR = "error"
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class CallOptions:
    """How rewards are called.

    concurrency: calls in flight. timeout_s: seconds for one attempt, which includes whatever retries the reward makes
    itself, so it should exceed those of a judge's client. attempts: for a call that raised or ran out of time; 1 is no
    retry. backoff_s: seconds before the second attempt, doubled for each further one, 60 at most.

    Raises:
        InputError: a value out of range.
    """

    concurrency: int = 16
    timeout_s: float = 300.0
    attempts: int = 3
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.attempts < 1:
            raise InputError("rewards need a concurrency and a number of attempts of at least 1.")
        if not self.timeout_s > 0 or not self.backoff_s >= 0:
            raise InputError("rewards need a time limit above 0 seconds and a back-off of at least 0.")


@dataclass(frozen=True)
class Failure:
    """What went wrong with one attempt. kind: one word; note: a sentence; retry_after_s: seconds to wait at least."""

    kind: str
    note: str
    retryable: bool = True
    retry_after_s: float = 0.0

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """A failure by exception; `kind`, `retryable` and `retry_after_s` are read off it where it has them, as
        vrjax.llm's errors do.
        """
        kind = getattr(error, "kind", None)
        wait = getattr(error, "retry_after_s", None)
        return cls(
            kind if isinstance(kind, str) and kind else ERROR,
            f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
            getattr(error, "retryable", True) is not False,
            float(wait) if isinstance(wait, int | float) and wait > 0 else 0.0,
        )


class GuardedCalls:
    """Calls rewards from one event loop. `failures`: failed attempts by kind. `abandoned`: calls that ran out of time.

    A sync reward runs in a thread, which cannot be ended: one that runs out of time goes on unheard, and is not started
    a second time. An async reward is cancelled; it must not block the event loop.
    """

    def __init__(self, options: CallOptions) -> None:
        self.options = options
        self.failures: Counter[str] = Counter()
        self.retries = 0
        self.abandoned = 0
        self.threads = DaemonThreads()
        self._slots = asyncio.Semaphore(options.concurrency)

    async def score(self, reward: RewardFunction, item: RewardItem) -> Reward:
        """Call a reward on an item. Whatever it raises leaves the item unscored.

        Raises:
            InputError: the reward returned something else than a Reward.
        """
        wait_s = self.options.backoff_s
        for attempt in range(1, self.options.attempts + 1):
            async with self._slots:
                outcome = await self._attempt(reward, item)
            if isinstance(outcome, Reward):
                return outcome
            self.failures[outcome.kind] += 1
            if attempt == self.options.attempts or not outcome.retryable:
                break
            self.retries += 1
            await asyncio.sleep(min(max(wait_s, outcome.retry_after_s), _LONGEST_WAIT_S))
            wait_s *= 2
        return Reward.unscored(outcome.note, outcome.kind)

    async def _attempt(self, reward: RewardFunction, item: RewardItem) -> Reward | Failure:
        call = _Call(reward, item, self.threads)
        task = asyncio.create_task(call.run())
        task.add_done_callback(look_at)
        try:
            # Unlike wait_for, this does not wait for a task that does not let itself be cancelled.
            done, _ = await asyncio.wait({task}, timeout=self.options.timeout_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            self.abandoned += 1
            note = f"{reward_name(reward)} took more than {self.options.timeout_s:g} s"
            return Failure(TIMEOUT, note, retryable=not call.in_thread)
        if task.cancelled():
            return Failure("cancelled", f"{reward_name(reward)} was cancelled")
        error = task.exception()
        if error is not None:
            return Failure.of(error)
        result = task.result()
        if not isinstance(result, Reward):
            raise InputError(
                f"the reward {reward_name(reward)} returned {type(result).__name__} for {item.prompt.name}. "
                "Let it return a vrjax.rewards.Reward."
            )
        return result


class _Call:
    def __init__(self, reward: RewardFunction, item: RewardItem, threads: DaemonThreads) -> None:
        self.reward, self.item, self.threads, self.in_thread = reward, item, threads, False

    async def run(self) -> Any:
        try:
            if inspect.iscoroutinefunction(self.reward) or inspect.iscoroutinefunction(type(self.reward).__call__):
                return await self.reward(*self.item)  # type: ignore[misc]
            self.in_thread = True
            result = await self.threads.run(lambda: self.reward(*self.item))
            self.in_thread = False
            return await result if inspect.isawaitable(result) else result
        except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop, and all other calls with it
            raise RuntimeError(f"the reward raised {type(error).__name__}") from error


def look_at(task: asyncio.Task) -> None:
    """Take a task's exception, so that asyncio does not report what nobody waited for."""
    if not task.cancelled():
        task.exception()
