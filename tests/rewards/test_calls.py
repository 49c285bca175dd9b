import asyncio
import threading
import time
from collections import Counter
from itertools import pairwise

import pytest

from tests.rewards.questions import prompt, record
from vrjax.errors import InputError
from vrjax.rewards import CompositeReward, Reward, RewardRunner

FAST = {"backoff_s": 0.001}
LIMIT_S = 0.1


class Flaky:
    """Raises until the n-th call for a response, then 1."""

    def __init__(self, good_call, error=None):
        self.good_call, self.error, self.calls = good_call, error or RuntimeError("away"), Counter()

    def __call__(self, prompt, response, record):
        self.calls[response] += 1
        if self.calls[response] < self.good_call:
            raise self.error
        return Reward(1.0)


class FlakyLater(Flaky):
    async def __call__(self, prompt, response, record):
        return super().__call__(prompt, response, record)


def run(reward, texts=("a",), **options):
    with RewardRunner(reward, **{**FAST, **options}) as runner:
        (rewards,) = runner.score_batch([prompt()], [list(texts)], [record()])
        return rewards, runner.counts


@pytest.mark.parametrize("kind", [Flaky, FlakyLater])
def test_tried_again_up_to_the_number_of_attempts(kind):
    rewards, counts = run(kind(3), "abc", attempts=3)
    assert [reward.value for reward in rewards] == [1.0] * 3
    assert (counts.retries, counts.failures, counts.unscored) == (6, {"error": 6}, {})
    rewards, counts = run(kind(3), "abc", attempts=2)
    assert [reward.value for reward in rewards] == [None] * 3
    assert {reward.note for reward in rewards} == {"RuntimeError: away"}
    assert (counts.retries, counts.unscored) == (3, {"error": 3})


def test_one_that_fails_leaves_the_others_alone():
    def sometimes(prompt, response, record):
        if response == "b":
            raise ValueError("no")
        return Reward(0.0)

    rewards, _ = run(sometimes, "abc")
    assert [reward.value for reward in rewards] == [0.0, None, 0.0]


class AwayError(Exception):
    def __init__(self, kind, retryable, retry_after_s=None):
        super().__init__("full")
        self.kind, self.retryable, self.retry_after_s = kind, retryable, retry_after_s


def test_errors_say_whether_to_try_again_and_when():
    reward = Flaky(2, AwayError("budget", False))
    rewards, counts = run(reward)
    assert (rewards[0].fault, reward.calls["a"], counts.retries) == ("budget", 1, 0)
    began = time.perf_counter()
    rewards, counts = run(Flaky(2, AwayError("rate_limited", True, 0.2)))
    assert time.perf_counter() - began >= 0.2
    assert (rewards[0].value, counts.failures) == (1.0, {"rate_limited": 1})


def test_back_off_doubles():
    times = []

    async def away(prompt, response, record):
        times.append(time.perf_counter())
        raise RuntimeError

    run(away, attempts=4, backoff_s=0.02)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert [wait >= least for wait, least in zip(waits, (0.02, 0.04, 0.08), strict=True)] == [True] * 3


def test_an_async_call_that_takes_too_long_is_cancelled_and_tried_again():
    ended = []

    async def slow(prompt, response, record):
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(response)

    rewards, counts = run(slow, attempts=2, timeout_s=LIMIT_S)
    assert (rewards[0].value, rewards[0].fault) == (None, "timeout")
    assert "slow took more than 0.1 s" in rewards[0].note
    assert (ended, counts.abandoned, counts.failures) == (["a", "a"], 2, {"timeout": 2})


def test_a_sync_call_that_takes_too_long_is_not_started_twice():
    calls, release = [], threading.Event()

    def stuck(prompt, response, record):
        calls.append(response)
        release.wait(5)
        return Reward(1.0)

    rewards, counts = run(stuck, timeout_s=LIMIT_S)
    release.set()
    assert (rewards[0].fault, calls, counts.abandoned) == ("timeout", ["a"], 1)


def test_a_call_that_does_not_let_itself_be_cancelled_does_not_hold_the_batch():
    release = threading.Event()

    async def stubborn(prompt, response, record):
        while not release.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return Reward(1.0)

    with RewardRunner(stubborn, attempts=1, timeout_s=LIMIT_S) as runner:
        ((reward,),) = runner.score_batch([prompt()], [["a"]], [record()])
        assert reward.fault == "timeout"
        release.set()


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), StopIteration("x"), asyncio.CancelledError()])
def test_whatever_is_raised_ends_nothing_else(error):
    def sync(prompt, response, record):
        raise error

    async def later(prompt, response, record):
        raise error

    for reward in (sync, later):
        rewards, _ = run(reward, "ab", attempts=1)
        assert [reward.value for reward in rewards] == [None, None]
        assert all(reward.note for reward in rewards)


def test_a_number_that_is_none_is_a_failure_and_not_a_score():
    rewards, _ = run(lambda *item: Reward(float("nan")), attempts=1)
    assert (rewards[0].value, rewards[0].fault) == (None, "error")
    assert "finite" in rewards[0].note


@pytest.mark.parametrize("wrong", [0.5, None, "1"])
def test_a_reward_that_returns_something_else_stops_the_run(wrong):
    with pytest.raises(InputError, match=r"returned (float|NoneType|str) for v/q1.*vrjax.rewards.Reward"):
        run(lambda *item: wrong)


def test_a_function_that_returns_an_awaitable():
    async def later():
        return Reward(0.25)

    rewards, _ = run(lambda *item: later())
    assert rewards[0].value == 0.25


def test_only_the_part_that_failed_is_called_again_and_the_other_parts_are_kept():
    good, flaky, broken = Flaky(1), Flaky(2), Flaky(9)
    rewards, counts = run(CompositeReward({"good": (1, good), "flaky": (1, flaky), "broken": (1, broken)}), attempts=2)
    assert rewards[0].parts == {"good": 1.0, "flaky": 1.0, "broken": None}
    assert (rewards[0].value, rewards[0].fault) == (None, "broken.error")
    assert [reward.calls["a"] for reward in (good, flaky, broken)] == [1, 2, 2]
    assert counts.unscored == {"broken.error": 1}
