"""Scoring batches of groups beside whatever else the trainer does.

```python
with RewardRunner(reward, concurrency=32) as runner:
    batch = runner.open()
    for index, group in enumerate(sampled):         # judges work on the first group while the second is sampled
        batch.submit(index, group.prompt, group.texts, group.record)
    rewards = batch.result()                        # [B][G], in the order of the indices
```
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress

from vrjax.errors import InputError, RunError
from vrjax.rewards.batch import Groups, RewardBatch, Rewards
from vrjax.rewards.calls import CallOptions, GuardedCalls, look_at
from vrjax.rewards.composite import CompositeReward, leaves
from vrjax.rewards.counts import RewardCounts, Stopwatch
from vrjax.rewards.reward import Reward, RewardFunction, RewardItem, RewardPrompt, RewardRecord

# The share of unscored samples is that of the latest ones: a judge that stops answering late in a run shows soon.
# Of fewer samples than these, it says too little.
_LATEST, _FEWEST = 512, 64
_CLOSING_S = 5.0


class RewardRunner:
    """Calls a reward on batches of groups, in a background thread with an event loop of its own.

    All samples of all groups are scored at once, up to `concurrency` calls: async rewards (judges) in the event loop,
    sync ones each in a thread. The parts of a composite reward are separate calls, so that one that fails neither
    delays nor loses the others. A reward with a method `prepare(items)` sees each group, or with `start` the whole
    batch, before its first call, without a time limit; a `prepare` that fails is counted, and the reward is then called
    without.

    A call that raises or runs out of time is made again, and after the last attempt its sample is unscored, never 0.

    Args:
        reward: what to call.
        concurrency, timeout_s, attempts, backoff_s: see `CallOptions`.
        max_unscored_share: of the latest 512 samples (64 at least), above which `result` raises RunError; 1 for never.

    Raises:
        InputError: an option out of range.
    """

    def __init__(
        self,
        reward: RewardFunction,
        *,
        concurrency: int = 16,
        timeout_s: float = 300.0,
        attempts: int = 3,
        backoff_s: float = 1.0,
        max_unscored_share: float = 0.5,
    ) -> None:
        if not 0 <= max_unscored_share <= 1:
            raise InputError(f"max_unscored_share must lie in [0, 1], found {max_unscored_share}.")
        self.reward = reward
        self._max_unscored_share = max_unscored_share
        self._calls = GuardedCalls(CallOptions(concurrency, timeout_s, attempts, backoff_s))
        self._preparable = {id(leaf): leaf for leaf in leaves(reward) if hasattr(leaf, "prepare")}
        self._preparing = {key: asyncio.Lock() for key in self._preparable}
        self._latest: deque[str] = deque(maxlen=_LATEST)  # faults, "" for scored
        self._scored = 0
        self._unscored: Counter[str] = Counter()
        self._stopwatch = Stopwatch()
        self._waited_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def open(self) -> RewardBatch:
        """An empty batch, whose groups are scored as they are submitted."""
        return RewardBatch(self._schedule, self._account)

    def start(
        self,
        prompts: Sequence[RewardPrompt],
        responses: Sequence[Sequence[str]],
        records: Sequence[RewardRecord],
    ) -> RewardBatch:
        """Start scoring a whole batch and return at once.

        Args:
            prompts: [B].
            responses: [B][G].
            records: [B]; each must be its prompt's.
        """
        batch = self.open()
        batch.submit_all(range(len(prompts)), prompts, responses, records)
        return batch

    def score_batch(
        self,
        prompts: Sequence[RewardPrompt],
        responses: Sequence[Sequence[str]],
        records: Sequence[RewardRecord],
    ) -> Rewards:
        """Score a whole batch and wait for it: rewards [B][G]. Arguments as for `start`, errors as of `result`."""
        return self.start(prompts, responses, records).result()

    async def score_batch_async(
        self,
        prompts: Sequence[RewardPrompt],
        responses: Sequence[Sequence[str]],
        records: Sequence[RewardRecord],
    ) -> Rewards:
        """`score_batch`, without blocking the caller's event loop."""
        return await self.start(prompts, responses, records).result_async()

    @property
    def counts(self) -> RewardCounts:
        """What was done so far; samples are counted when their batch's results are taken."""
        return RewardCounts(
            self._scored,
            dict(self._unscored),
            dict(self._calls.failures),
            self._calls.retries,
            self._calls.abandoned,
            self._stopwatch.seconds,
            self._waited_s,
        )

    def close(self) -> None:
        """Give up what is running and end the background thread. Safe to call twice."""
        self._closed = True
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        with suppress(TimeoutError):  # a reward that blocks the event loop; its thread does not outlive the process
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(_CLOSING_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSING_S)
        self._calls.threads.close()
        if not thread.is_alive():
            loop.close()

    def __enter__(self) -> RewardRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _schedule(self, groups: Groups) -> Future[Rewards]:
        if self._closed:
            raise ValueError("the reward runner is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="vrjax-rewards")
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._score_groups(groups), self._loop)

    async def _score_groups(self, groups: Groups) -> Rewards:
        self._stopwatch.start()
        items = [item for group in groups for item in group]
        ready = {key: asyncio.create_task(self._prepare(key, items)) for key in self._preparable}
        tasks = [asyncio.create_task(self._score(self.reward, item, ready)) for item in items]
        for task in (*ready.values(), *tasks):
            task.add_done_callback(look_at)
        try:
            scored = iter(await asyncio.gather(*tasks))
            return [[next(scored) for _ in group] for group in groups]
        finally:
            for task in (*ready.values(), *tasks):
                task.cancel()
            self._stopwatch.stop()

    async def _prepare(self, key: int, items: Sequence[RewardItem]) -> None:
        leaf = self._preparable[key]
        async with self._preparing[key]:
            try:
                result = await self._calls.threads.run(lambda: leaf.prepare(items))  # type: ignore[attr-defined]
                if inspect.isawaitable(result):
                    await result
            except InputError:  # such as a sentence model that is not there: no sample will fare better
                raise
            except Exception:
                self._calls.failures["prepare"] += 1

    async def _score(self, reward: RewardFunction, item: RewardItem, ready: Mapping[int, asyncio.Task[None]]) -> Reward:
        if isinstance(reward, CompositeReward):
            parts = await asyncio.gather(*(self._score(part, item, ready) for part in reward.rewards.values()))
            return reward.combine(dict(zip(reward.rewards, parts, strict=True)))
        if id(reward) in ready:
            await asyncio.shield(ready[id(reward)])
        return await self._calls.score(reward, item)

    def _account(self, rewards: Rewards, waited_s: float) -> None:
        """Count a batch. Raises RunError where too large a share of the latest samples is unscored."""
        self._waited_s += waited_s
        flat = [reward for group in rewards for reward in group]
        for reward in flat:
            if reward.value is None:
                self._unscored[reward.fault] += 1
            else:
                self._scored += 1
            self._latest.append(reward.fault if reward.value is None else "")
        faults = Counter(fault for fault in self._latest if fault)
        share = faults.total() / max(len(self._latest), 1)
        if share > self._max_unscored_share and len(self._latest) >= _FEWEST:
            kinds = ", ".join(f"{fault} {count}" for fault, count in faults.most_common())
            last = next((reward.note for reward in reversed(flat) if reward.value is None), "")
            raise RunError(
                f"{faults.total()} of the latest {len(self._latest)} responses could not be scored ({kinds}), which is "
                f"more than the share of {self._max_unscored_share:g} that is allowed. The last one: {last[:300]}. "
                "Mend the reward, or raise max_unscored_share."
            )


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=1.0)
