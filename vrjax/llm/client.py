"""A chat that goes on through faults: concurrency, time limits, retries, cache, budget and replay around a backend.

request → cache? → same request running? → budget? → a free place → call ──▶ reply, kept
                                                        ▲            └─ fault: wait (back-off, Retry-After) ─┐
                                                        └────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from vrjax.errors import InputError, VrjaxError
from vrjax.llm.budget import Budget
from vrjax.llm.cache import ReplyCache
from vrjax.llm.chat import Chat, ChatError, ChatReply, ChatRequest
from vrjax.llm.counts import Counts
from vrjax.llm.request_key import canonical_request, has_frames, request_key


@dataclass(frozen=True, kw_only=True)
class Retrying:
    """When to try again. The n-th wait is drawn from [½, 1] · min(first_wait_s · 2ⁿ⁻¹, longest_wait_s) seconds.

    attempts: calls of one request in all; refusal_attempts: those of them that may end in a refusal, since filters
    waver. A server's Retry-After is kept to, by all requests; one that asks for more than patience_s ends the request.
    """

    attempts: int = 6
    refusal_attempts: int = 2
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    patience_s: float = 300.0


@dataclass
class _Call:
    task: asyncio.Task[ChatReply]
    waiters: int = 0


@dataclass
class _LoopState:
    """What belongs to one event loop; a client may serve several, one a thread."""

    places: asyncio.Semaphore
    running: dict[str, _Call] = field(default_factory=dict)


class ChatClient:
    """A Chat around a backend. All errors are ChatErrors.

    concurrency: calls at once (in one event loop). attempts: takes the place of `retrying.attempts`. timeout_s: seconds
    for one call, reading frames included; None for no limit (a local model that others wait for). cache: replies are
    kept and looked up first. replay: answer from the cache alone. Identical requests that are under way share one call.
    sleep, clock: for tests.
    """

    def __init__(
        self,
        backend: Chat,
        *,
        concurrency: int = 8,
        attempts: int | None = None,
        timeout_s: float | None = 120.0,
        cache: ReplyCache | None = None,
        budget: Budget | None = None,
        replay: bool = False,
        retrying: Retrying | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if replay and cache is None:
            raise InputError("replay answers from a cache, but none is given. Name the directory of recorded replies.")
        retrying = retrying or Retrying()
        retrying = retrying if attempts is None else replace(retrying, attempts=attempts)
        if concurrency < 1 or retrying.attempts < 1 or (timeout_s is not None and not timeout_s > 0):
            raise InputError(
                f"concurrency {concurrency} and attempts {retrying.attempts} must be at least 1, "
                f"timeout_s {timeout_s} above 0."
            )
        self.backend, self.cache, self.budget, self.replay = backend, cache, budget, replay
        self.concurrency, self.timeout_s = concurrency, timeout_s
        self.retrying = retrying
        self.counts = Counts()
        self._sleep, self._clock = sleep, clock
        self._not_before = float("-inf")
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def summary(self) -> dict[str, Any]:
        """`counts` as plain numbers, with the money spent where the budget has prices."""
        prices = None if self.budget is None else self.budget.prices
        return self.counts.as_dict(None if prices is None else prices.of(self.counts.usage))

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One reply. Raises ChatError once all attempts are used up, or at once where another try would not help."""
        self.counts.add("requests")
        try:
            return await self._answer(request)
        except ChatError as error:
            self.counts.failure(error.kind)
            raise
        except VrjaxError as error:
            self.counts.failure("bad_request")
            raise ChatError(str(error), "bad_request") from error

    async def complete_all(
        self, requests: Sequence[ChatRequest], progress: Callable[[int, int], None] | None = None
    ) -> list[ChatReply | ChatError]:
        """Replies in the order of the requests; one that failed is its ChatError, in its place.

        progress: called with (requests done, requests in all).
        """
        done = 0

        async def one(request: ChatRequest) -> ChatReply | ChatError:
            nonlocal done
            try:
                result = await self.complete(request)
            except ChatError as error:
                result = error
            done += 1
            if progress is not None:
                progress(done, len(requests))
            return result

        return list(await asyncio.gather(*(one(request) for request in requests)))

    async def forget(self, request: ChatRequest) -> None:
        """Take a reply that proved unusable out of the cache, so that a later run asks again. Replay keeps all."""
        if self.cache is not None and not self.replay:
            self.cache.forget(request_key(await self._canonical(request)))

    def kept(self, request: ChatRequest) -> bool:
        """Whether the cache has a reply to the request, so that it would cost no call. Reads the request's videos."""
        return self.cache is not None and self.cache.path(request_key(canonical_request(request, self.name))).is_file()

    async def aclose(self) -> None:
        """Close the backend, where it has something to close."""
        close = getattr(self.backend, "aclose", None)
        if close is not None:
            await close()

    async def _canonical(self, request: ChatRequest) -> dict[str, Any]:
        if has_frames(request):
            return await asyncio.to_thread(canonical_request, request, self.name)
        return canonical_request(request, self.name)

    async def _answer(self, request: ChatRequest) -> ChatReply:
        canonical = await self._canonical(request)
        key = request_key(canonical)
        if self.cache is not None and (found := self.cache.read(key)) is not None:
            self.counts.add("cached")
            return found
        if self.replay:
            raise ChatError(
                f"{self.name}: the reply to request {key[:12]} is not in the cache, and replay asks nobody. "
                "Record it first by a run without replay.",
                "replay_miss",
            )
        loop = asyncio.get_running_loop()
        state = self._loops.setdefault(loop, _LoopState(asyncio.Semaphore(self.concurrency)))
        call = state.running.get(key)
        if call is None:
            call = _Call(loop.create_task(self._call(state, key, canonical, request)))
            state.running[key] = call
        else:
            self.counts.add("shared")
        call.waiters += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.waiters -= 1
            if call.waiters == 0:
                if state.running.get(key) is call:
                    del state.running[key]
                call.task.cancel()  # of no effect where it is done

    async def _call(self, state: _LoopState, key: str, canonical: dict[str, Any], request: ChatRequest) -> ChatReply:
        attempt = refusals = 0
        while True:
            attempt += 1
            async with state.places:
                if (pause := self._not_before - self._clock()) > 0:
                    await self._sleep(pause)
                if self.budget is not None:
                    self.budget.check()
                self.counts.add("calls")
                try:
                    reply = await self._once(request)
                except ChatError as error:
                    fault = error
                else:
                    self._spend(reply)
                    if self.cache is not None:
                        self.cache.write(key, canonical, reply)
                    return reply
            self.counts.fault(fault.kind)
            self._spend(fault)
            refusals += fault.kind == "refused"
            await self._wait_after(fault, attempt, refusals)

    async def _once(self, request: ChatRequest) -> ChatReply:
        """One call. Whatever the backend does, it ends in a reply or a ChatError within timeout_s."""
        try:
            async with asyncio.timeout(self.timeout_s):
                reply = await self.backend.complete(request)
        except TimeoutError:
            raise ChatError(f"{self.name}: no reply within {self.timeout_s} s.", "timeout") from None
        except ChatError:
            raise
        except VrjaxError as error:
            raise ChatError(str(error), "bad_request") from error
        except Exception as error:
            # One request's fault must not end a run of thousands; it is counted under its own name.
            raise ChatError(f"{self.name}: the backend raised {type(error).__name__}: {error}", "backend") from error
        if len(reply.texts) != request.samples:
            raise ChatError(
                f"{self.name}: {len(reply.texts)} of {request.samples} samples came back.",
                "bad_reply",
                usage=reply.usage,
            )
        return reply

    async def _wait_after(self, fault: ChatError, attempt: int, refusals: int) -> None:
        """Wait for the next attempt, or raise the fault where there is none."""
        retrying = self.retrying
        asked = fault.retry_after_s or 0.0
        if asked > retrying.patience_s:
            raise fault.saying(f"{fault} The server asks to wait {asked:.0f} s, which is too long. Try later.")
        again = refusals < retrying.refusal_attempts if fault.kind == "refused" else fault.retryable
        if not again or attempt >= retrying.attempts:
            raise fault if attempt == 1 else fault.saying(f"{fault} (gave up after {attempt} attempts)")
        self.counts.add("retries")
        wait = min(retrying.first_wait_s * 2 ** (attempt - 1), retrying.longest_wait_s) * random.uniform(0.5, 1.0)
        if asked:
            self._not_before = max(self._not_before, self._clock() + asked)
        await self._sleep(max(wait, asked))

    def _spend(self, outcome: ChatReply | ChatError) -> None:
        if outcome.usage is not None:
            self.counts.spend(outcome.usage)
            if self.budget is not None:
                self.budget.spend(outcome.usage)
