"""The client: concurrency, waits, budget, shared calls, replay, cancellation."""

import asyncio
import pickle
import time

import pytest

from vrjax.errors import InputError
from vrjax.llm import (
    Budget,
    BudgetExceeded,
    ChatClient,
    ChatError,
    ChatReply,
    ChatRequest,
    Message,
    Price,
    ReplyCache,
    Retrying,
    Usage,
)


def request(text: str, **options) -> ChatRequest:
    return ChatRequest(messages=(Message.user(text),), **options)


class Echo:
    """Answers with what it was asked, after the errors that it was given."""

    name = "echo"

    def __init__(self, errors=(), delay: float = 0.0) -> None:
        self.errors, self.delay = list(errors), delay
        self.calls = self.running = self.most_running = 0

    async def complete(self, asked: ChatRequest) -> ChatReply:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay)
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self.running -= 1
        return ChatReply((asked.messages[-1].text,) * asked.samples, Usage(100, 10), "echo")


class Waits(list):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def test_waits_double_and_are_drawn_from_their_upper_half():
    waits = Waits()
    backend = Echo([ChatError("no", "server")] * 5)
    client = ChatClient(backend, attempts=6, sleep=waits, clock=lambda: waits.now)
    assert asyncio.run(client.complete(request("hello"))).text == "hello"
    for wait, bound in zip(waits, [1, 2, 4, 8, 16], strict=True):
        assert bound / 2 <= wait <= bound
    assert client.summary["retries"] == 5
    assert client.summary["faults"] == {"server": 5}
    assert client.summary["failed"] == {}


def test_retry_after_is_kept_to_by_all_requests():
    times = []

    class Timed(Echo):
        async def complete(self, asked):
            times.append(time.monotonic())
            return await super().complete(asked)

    backend = Timed([ChatError("slow down", "rate_limited", retry_after_s=0.3)])
    client = ChatClient(backend, concurrency=1, retrying=Retrying(first_wait_s=0.01))
    replies = asyncio.run(client.complete_all([request("a"), request("b"), request("c")]))
    assert [reply.text for reply in replies] == ["a", "b", "c"]
    assert len(times) == 4
    assert times[1] - times[0] >= 0.3


def test_a_wait_beyond_patience_ends_the_request():
    client = ChatClient(Echo([ChatError("slow down", "rate_limited", retry_after_s=9999.0)] * 2), sleep=Waits())
    with pytest.raises(ChatError, match="too long") as caught:
        asyncio.run(client.complete(request("a")))
    assert caught.value.kind == "rate_limited"
    assert client.counts.numbers["calls"] == 1


@pytest.mark.parametrize("kind", ["unauthorised", "bad_request"])
def test_what_another_try_cannot_mend_is_tried_once(kind):
    backend = Echo([ChatError("no", kind)] * 9)
    client = ChatClient(backend, sleep=Waits())
    with pytest.raises(ChatError):
        asyncio.run(client.complete(request("a")))
    assert backend.calls == 1


def test_attempts_run_out_and_the_error_says_how_many():
    client = ChatClient(Echo([ChatError("broken", "server")] * 9), attempts=3, sleep=Waits())
    with pytest.raises(ChatError, match="gave up after 3 attempts") as caught:
        asyncio.run(client.complete(request("a")))
    assert caught.value.kind == "server"
    assert client.counts.failed == {"server": 1}


@pytest.mark.alone
def test_a_call_past_its_time_is_a_timeout_and_is_tried_again():
    backend = Echo(delay=5)
    client = ChatClient(backend, attempts=2, timeout_s=0.05, sleep=Waits())
    begin = time.monotonic()
    with pytest.raises(ChatError) as caught:
        asyncio.run(client.complete(request("a")))
    assert caught.value.kind == "timeout"
    assert backend.calls == 2
    assert time.monotonic() - begin < 2


def test_no_more_calls_at_once_than_asked_for_and_order_is_kept():
    backend = Echo(delay=0.002)
    client = ChatClient(backend, concurrency=3)
    seen = []
    asked = [request(str(n)) for n in range(50)]
    replies = asyncio.run(client.complete_all(asked, progress=lambda done, total: seen.append((done, total))))
    assert [reply.text for reply in replies] == [str(n) for n in range(50)]
    assert backend.most_running == 3
    assert seen == [(n, 50) for n in range(1, 51)]


def test_one_failure_of_any_sort_does_not_touch_its_neighbours():
    backend = Echo(
        [ZeroDivisionError("oops"), InputError("clip.mp4: cannot be read."), ChatError("no", "unauthorised")]
    )
    replies = asyncio.run(ChatClient(backend, concurrency=1).complete_all([request(str(n)) for n in range(5)]))
    assert [getattr(reply, "kind", None) for reply in replies] == ["backend", "bad_request", "unauthorised", None, None]
    assert "ZeroDivisionError" in str(replies[0])
    assert [reply.text for reply in replies[3:]] == ["3", "4"]


def test_identical_requests_under_way_share_one_call():
    backend = Echo(delay=0.02)
    client = ChatClient(backend)
    replies = asyncio.run(client.complete_all([request("same")] * 5 + [request("other"), request("same", seed=1)]))
    assert backend.calls == 3
    assert [reply.text for reply in replies] == ["same"] * 5 + ["other", "same"]
    assert client.counts.numbers["shared"] == 4


def test_one_of_those_who_share_a_call_may_leave():
    backend = Echo(delay=0.05)
    client = ChatClient(backend)

    async def leave():
        first, second = (asyncio.create_task(client.complete(request("same"))) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        assert (await second).text == "same"
        # The last one takes the call along.
        third = asyncio.create_task(client.complete(request("else")))
        await asyncio.sleep(0.01)
        third.cancel()
        await asyncio.sleep(0.01)
        assert backend.running == 0

    asyncio.run(leave())
    assert backend.calls == 2


def test_a_client_serves_one_event_loop_after_another():
    client = ChatClient(Echo(), concurrency=2)
    for round_ in range(3):
        replies = asyncio.run(client.complete_all([request(f"{round_} {n}") for n in range(10)]))
        assert len(replies) == 10


def test_a_budget_lets_running_calls_finish_and_refuses_new_ones():
    backend = Echo(delay=0.001)
    budget = Budget(max_tokens=1000)  # a call is 110
    client = ChatClient(backend, concurrency=2, budget=budget)
    replies = asyncio.run(client.complete_all([request(str(n)) for n in range(40)]))
    answered = [reply for reply in replies if isinstance(reply, ChatReply)]
    refused = [reply for reply in replies if isinstance(reply, BudgetExceeded)]
    assert 10 <= len(answered) <= 11
    assert len(answered) + len(refused) == 40
    assert backend.calls == len(answered)
    assert {error.kind for error in refused} == {"budget"}
    assert client.counts.failed == {"budget": len(refused)}


def test_money_is_counted_by_the_price_of_each_kind_of_token():
    budget = Budget(max_cost=1.0, prices=Price(2.0, 8.0))
    client = ChatClient(Echo(), budget=budget)
    asyncio.run(client.complete_all([request(str(n)) for n in range(3)]))
    # 3 calls of 100 and 10 tokens: 300 · 2 / 10⁶ + 30 · 8 / 10⁶
    assert budget.cost == pytest.approx(0.00084)
    assert client.summary["cost"] == pytest.approx(0.00084)
    with pytest.raises(InputError, match="prices"):
        Budget(max_cost=1.0)


def test_refused_calls_cost_what_they_used():
    budget = Budget(max_tokens=10**6)
    backend = Echo([ChatError("no", "refused", usage=Usage(50, 1))] * 2)
    client = ChatClient(backend, budget=budget, sleep=Waits(), retrying=Retrying(refusal_attempts=2))
    with pytest.raises(ChatError):
        asyncio.run(client.complete(request("a")))
    assert budget.spent == Usage(100, 2)


def test_the_cache_answers_first_and_costs_nothing(tmp_path):
    backend, budget = Echo(), Budget(max_tokens=110)
    client = ChatClient(backend, cache=ReplyCache(tmp_path), budget=budget)
    first = asyncio.run(client.complete(request("a")))
    second = asyncio.run(client.complete(request("a")))  # the budget is used up by now
    assert (first.cached, second.cached) == (False, True)
    assert second.text == "a"
    assert backend.calls == 1
    with pytest.raises(BudgetExceeded):
        asyncio.run(client.complete(request("b")))
    asyncio.run(client.forget(request("a")))
    with pytest.raises(BudgetExceeded):
        asyncio.run(client.complete(request("a")))


def test_replay_asks_nobody(tmp_path):
    backend = Echo()
    asyncio.run(ChatClient(backend, cache=ReplyCache(tmp_path)).complete(request("a")))
    replay = ChatClient(backend, cache=ReplyCache(tmp_path), replay=True)
    replies = asyncio.run(replay.complete_all([request("a"), request("b")]))
    assert replies[0].text == "a"
    assert replies[1].kind == "replay_miss"
    assert backend.calls == 1
    with pytest.raises(InputError, match="replay"):
        ChatClient(backend, replay=True)


def test_a_backend_that_gives_too_few_samples_is_not_believed():
    class Short(Echo):
        async def complete(self, asked):
            return ChatReply(("one",), Usage(1, 1), "short")

    with pytest.raises(ChatError, match="1 of 3 samples") as caught:
        asyncio.run(ChatClient(Short(), attempts=1).complete(request("a", samples=3)))
    assert caught.value.kind == "bad_reply"


def test_errors_keep_what_they_know_between_processes():
    error = BudgetExceeded("used up", "budget", text="t", usage=Usage(1, 2))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is BudgetExceeded
    assert (str(back), back.kind, back.retryable, back.text, back.usage) == (
        "used up",
        "budget",
        False,
        "t",
        Usage(1, 2),
    )


@pytest.mark.parametrize(
    "options", [{"samples": 0}, {"max_tokens": 0}, {"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}]
)
def test_impossible_requests_are_refused(options):
    with pytest.raises(InputError):
        request("a", **options)
