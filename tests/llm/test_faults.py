"""A thousand structured requests through a server that fails in every way it can."""

import asyncio
from collections import Counter

import pytest
from pydantic import BaseModel

from tests.llm.faulty_server import FAULTS, fault_of, faulty_server, right_value
from vrjax.llm import ChatClient, ChatError, ChatRequest, Message, OpenAIEndpoint, ReplyCache, ask

ITEMS = 1000


class Item(BaseModel):
    item: int
    value: int


class Clock:
    """Waits cost nothing, but time passes by them."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def run(url: str, cache, replay: bool = False, count: int = ITEMS, timeout_s: float = 1.0):
    clock = Clock()

    async def everything():
        client = ChatClient(
            OpenAIEndpoint("judge-1", url, "sk-very-secret-key", timeout_s=20), concurrency=16, attempts=8,
            timeout_s=timeout_s, cache=ReplyCache(cache), replay=replay, sleep=clock.sleep, clock=lambda: clock.now,
        )  # fmt: skip
        requests = [ChatRequest(messages=(Message.user(f"Give the value of item {n}."),)) for n in range(count)]
        asked = (ask(client, request, Item) for request in requests)
        results = await asyncio.gather(*asked, return_exceptions=True)
        await client.aclose()
        return results, client

    return *asyncio.run(everything()), clock


def test_a_thousand_items_none_lost_none_swapped_and_again_from_the_cache(tmp_path, caplog):
    caplog.set_level("DEBUG")
    with faulty_server(slow_s=3.0) as server:
        results, client, clock = run(server.url, tmp_path)
        assert [getattr(result, "value", result) for result in results] == [
            Item(item=n, value=right_value(n)) for n in range(ITEMS)
        ]
        # Each fault was met, named and mended.
        met = client.counts.faults
        in_each = ITEMS // len(FAULTS)
        assert met["rate_limited"] >= in_each
        assert met["server"] >= 2 * in_each  # 500, and an error in a 200
        assert met["connection"] >= 2 * in_each
        assert met["timeout"] >= in_each
        assert met["bad_reply"] >= 4 * in_each
        assert met["refused"] >= 2 * in_each
        assert set(met) == {"rate_limited", "server", "connection", "timeout", "bad_reply", "refused"}
        assert not client.counts.failed
        assert max(clock.waits) >= 1.0  # Retry-After: 1
        repairs = {fault: Counter() for fault in FAULTS}
        for number, result in enumerate(results):
            repairs[fault_of(number)].update(result.repairs)
        assert repairs[None] == repairs["rate_limit"] == Counter()
        for fault in ("nan", "two_values", "wrong_type", "cut_json"):
            assert repairs[fault]["asked_again"] >= in_each
        assert repairs["trailing_comma"]["trailing_comma"] >= in_each
        assert repairs["single_quotes"]["python_literal"] >= in_each
        assert repairs["text_before"]["text_around"] >= in_each

        calls = server.calls
        again, client, _ = run(server.url, tmp_path)
        assert server.calls == calls
        assert [one.value for one in again] == [one.value for one in results]
        assert client.counts.numbers["calls"] == 0
    # No server any more: replay gives the same.
    replayed, _, _ = run(server.url, tmp_path, replay=True)
    assert [one.value for one in replayed] == [one.value for one in results]
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"very-secret" not in file.read_bytes()
    assert "very-secret" not in caplog.text


@pytest.mark.parametrize(
    ("always", "kind", "calls"),
    [("refusal", "refused", 2), ("web_page", "bad_reply", 8), ("nan", "bad_reply", 3), ("quota", "rate_limited", 1)],
)
def test_items_that_never_succeed_keep_their_place_and_have_no_value(tmp_path, always, kind, calls):
    with faulty_server(always=always) as server:
        results, _, _ = run(server.url, tmp_path, count=10, timeout_s=20)
        assert [type(one) for one in results] == [ChatError] * 10
        assert {one.kind for one in results} == {kind}
        assert server.calls == 10 * calls
        if always == "nan":  # the last text, verbatim
            assert [one.text for one in results] == [f'{{"item": {n}, "value": NaN}}' for n in range(10)]
        # A failure is not remembered: a later run asks anew.
        run(server.url, tmp_path, count=10, timeout_s=20)
        assert server.calls == 20 * calls
