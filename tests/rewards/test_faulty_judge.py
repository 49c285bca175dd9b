"""400 responses and a judge that fails on 45% of them: 30% errors, 10% garbage, 5% after the time limit.

Which response meets which fault is drawn once, so that all counts are exact.
"""

import asyncio
import json
import re
from collections import Counter

import numpy as np
import pytest

from tests.rewards.questions import prompt, record, response
from vrjax.errors import RunError
from vrjax.evidence import TokenSimilarity
from vrjax.llm import AnswerJudge, Budget, ChatClient, ChatError, ChatReply, ChatRequest, Retrying, Usage
from vrjax.rewards import JudgedAnswer, RewardRunner, eg_reasoner_reward

GROUPS, GROUP = 50, 8
LIMIT_S = 1.0
LABELS = {"fully": 1.0, "partially": 0.5, "incorrect": 0.0}
GARBAGE = ("", "0", "Score: 0", "I would rather not say.", "<html><body>502</body></html>", '{"label": NaN}',
           '{"label": "excellent"}', '{"label": null}', "[]", '{"labe')  # fmt: skip
ERRORS = (
    ChatError("500", "server"),
    ChatError("429", "rate_limited", retry_after_s=0.001),
    ChatError("cut", "connection"),
    ChatError("no", "refused"),
    RuntimeError("a fault in the backend"),
)
FATES = np.random.default_rng(0).permutation(["error"] * 120 + ["garbage"] * 40 + ["late"] * 20 + ["good"] * 220)


def label_of(number):
    return tuple(LABELS)[number % 3]


class FaultyChat:
    """Fails on a response's first `bad_calls` calls as its fate says; else gives the label that its number stands for.

    It finds the response's number in the request, so that a label that reached another response would show.
    """

    name = "faulty"

    def __init__(self, bad_calls):
        self.bad_calls, self.calls = bad_calls, Counter()

    async def complete(self, request: ChatRequest) -> ChatReply:
        number = int(re.search(r'"response": "boat ([0-9]+)"', request.messages[1].text)[1])  # type: ignore[index]
        call = self.calls[number]
        self.calls[number] += 1
        await asyncio.sleep(0.001)
        text = json.dumps({"reason": "so", "label": label_of(number)})
        if call < self.bad_calls:
            if FATES[number] == "error":
                raise ERRORS[number % len(ERRORS)]
            if FATES[number] == "garbage":
                text = GARBAGE[number % len(GARBAGE)]
            if FATES[number] == "late":
                await asyncio.sleep(60)
        return ChatReply((text,), Usage(10, 5), self.name, finish_reasons=("stop",))


def score(chat, judge_attempts, **options):
    reward = eg_reasoner_reward(JudgedAnswer(AnswerJudge(chat, attempts=judge_attempts)), TokenSimilarity())
    prompts = [prompt(b) for b in range(GROUPS)]
    records = [record(evidence=((10, 20, "rope"), (30, 50, "boat")), number=b) for b in range(GROUPS)]
    texts = [[response(f"boat {GROUP * b + g}", ((10, 20, "rope"),)) for g in range(GROUP)] for b in range(GROUPS)]
    with RewardRunner(reward, concurrency=64, backoff_s=0.001, **options) as runner:
        rewards = runner.score_batch(prompts, texts, records)
        return [one for group in rewards for one in group], runner.counts


def check(rewards, fates_unscored):
    """Each response has its own label's reward or none, and none where its judge failed."""
    # One of two references met exactly: soft and hard evidence are both 2·1/(2 + 1).
    for number, reward in enumerate(rewards):
        assert reward.parts["format"] == 1
        assert reward.parts["evidence"] == pytest.approx(2 / 3)
        if FATES[number] in fates_unscored:
            assert reward.value is None
            assert reward.parts["answer"] is None
            assert reward.fault.startswith("answer.")
            assert reward.note
        else:
            want = LABELS[label_of(number)]
            assert reward.parts["answer"] == want
            assert reward.value == pytest.approx(0.1 + 0.6 * want + 0.3 * 2 / 3)


def client(chat, attempts, **options):
    return ChatClient(
        chat, concurrency=64, timeout_s=LIMIT_S, retrying=Retrying(attempts=attempts, first_wait_s=0.001), **options
    )


def test_without_retries_every_fault_leaves_one_sample_unscored():
    rewards, counts = score(FaultyChat(1), 1, attempts=1, timeout_s=LIMIT_S)
    check(rewards, {"error", "garbage", "late"})
    assert (counts.scored, counts.retries) == (220, 0)
    assert counts.unscored_share == 0.45
    by_kind = Counter(counts.unscored)
    assert by_kind["answer.bad_reply"] == 40
    assert by_kind["answer.timeout"] == counts.abandoned == 20
    assert by_kind.total() - 60 == 120
    assert set(by_kind) == {f"answer.{kind}" for kind in (
        "bad_reply", "timeout", "server", "rate_limited", "connection", "refused", "error")}  # fmt: skip


def test_with_retries_faults_that_pass_cost_no_sample():
    chat = client(FaultyChat(1), attempts=4)
    rewards, counts = score(chat, 3, attempts=3, timeout_s=60)
    # A fault in the backend's own code is not tried again by the client.
    lost = {n for n in range(400) if FATES[n] == "error" and isinstance(ERRORS[n % len(ERRORS)], RuntimeError)}
    assert {n for n, reward in enumerate(rewards) if reward.value is None} == lost
    assert counts.unscored == {"answer.backend": len(lost)}
    for number, reward in enumerate(rewards):
        assert number in lost or reward.parts["answer"] == LABELS[label_of(number)]
    assert chat.counts.faults["timeout"] == 20


def test_with_retries_faults_that_last_are_unscored_all_the_same():
    chat = client(FaultyChat(10**6), attempts=2)
    rewards, counts = score(chat, 2, attempts=2, timeout_s=60)
    check(rewards, {"error", "garbage", "late"})
    assert counts.unscored_share == 0.45


def test_the_runners_own_retries_serve_a_judge_without_a_client():
    """It sees what the judge lets through: calls out of time, and errors that are not the interface's."""
    rewards, counts = score(FaultyChat(1), 3, attempts=2, timeout_s=LIMIT_S)
    lost = {n for n in range(400) if FATES[n] == "error" and isinstance(ERRORS[n % len(ERRORS)], ChatError)}
    assert {n for n, reward in enumerate(rewards) if reward.value is None} == lost
    assert counts.failures["timeout"] == 20


def test_a_spent_budget_stops_the_run_and_scores_nothing():
    chat = client(FaultyChat(0), attempts=4, budget=Budget(max_tokens=600))
    with pytest.raises(RunError, match=r"answer\.budget [0-9]+.*more than the share of 0.5"):
        score(chat, 1)
    assert chat.backend.calls.total() < 64 + 40 + 1
