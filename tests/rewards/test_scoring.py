import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewards.questions import prompt, record, response
from tests.rewards.test_evidence import Table
from vrjax.errors import InputError, RunError
from vrjax.evidence import TokenSimilarity
from vrjax.rewards import CompositeReward, EvidenceReward, Reward, RewardRunner, RuleAnswer, eg_reasoner_reward


def numbered(count, group, start=1):
    """B prompts, [B][G] responses `<prompt>.<sample>`, B records."""
    numbers = range(start, start + count)
    texts = [[f"{number}.{sample}" for sample in range(group)] for number in numbers]
    return [prompt(n) for n in numbers], texts, [record(number=n) for n in numbers]


def echo(prompt, response, record):
    """A value that only the right prompt, response and record make."""
    number, sample = response.split(".")
    assert prompt.question == record.question.question == f"What happens ({number})?"
    return Reward(int(number) + int(sample) / 100)


async def slow_echo(prompt, response, record):
    # The first samples finish last.
    await asyncio.sleep(0.03 / (1 + int(response.split(".")[0])))
    return echo(prompt, response, record)


WANT = [[number + sample / 100 for sample in range(3)] for number in range(1, 6)]


def values(rewards):
    return [[reward.value for reward in group] for group in rewards]


@pytest.mark.parametrize("reward", [echo, slow_echo, CompositeReward({"only": (1, slow_echo)})])
def test_each_reward_meets_its_own_prompt(reward):
    """More prompts than samples in a group, which is where rewards that are repeated in the wrong order show."""
    with RewardRunner(reward, concurrency=4) as runner:
        assert values(runner.score_batch(*numbered(5, 3))) == WANT
        assert values(asyncio.run(runner.score_batch_async(*numbered(5, 3)))) == WANT
        assert runner.score_batch([], [], []) == []
        assert values(runner.score_batch([prompt(1), prompt(2)], [[], ["2.1"]], [record(), record(number=2)])) == [
            [],
            [2.01],
        ]
        assert runner.counts.scored == 31
        assert runner.counts.unscored_share == 0


def test_groups_handed_in_one_by_one_and_out_of_order():
    with RewardRunner(slow_echo) as runner:
        batch = runner.open()
        groups = list(zip(*numbered(5, 3), strict=True))
        for index in (3, 0, 4, 1, 2):
            batch.submit(index, *groups[index])
        assert values(batch.result()) == WANT
        assert batch.done
        assert batch.result() is batch.result()
        with pytest.raises(ValueError, match="results were taken"):
            batch.submit(5, *groups[0])
    assert runner.counts.scored == 15


def test_groups_that_do_not_fit_are_refused():
    prompts, texts, records = numbered(2, 2)
    with RewardRunner(echo) as runner:
        with pytest.raises(ValueError, match=r"'v/q1' was given the record of 'v/q2'"):
            runner.start(prompts, texts, records[::-1])
        with pytest.raises(ValueError, match="1 groups of responses"):
            runner.start(prompts, texts[:1], records)
        with pytest.raises(ValueError, match="found one text"):
            runner.start(prompts, ["one", "two"], records)
        batch = runner.open()
        batch.submit(2, prompts[0], texts[0], records[0])
        with pytest.raises(ValueError, match="submitted twice"):
            batch.submit(2, prompts[0], texts[0], records[0])
        with pytest.raises(ValueError, match=r"never submitted: \[0, 1\]"):
            batch.result()
    with pytest.raises(ValueError, match="closed"):
        runner.start(prompts, texts, records)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.randoms(use_true_random=False))
def test_permuting_samples_permutes_rewards(order, random):
    prompts, _, records = numbered(6, 4)
    texts = [[response(random.choice(["No.", "The boat is pulled ashore."]),
                       [(random.randrange(20), random.randrange(20, 40), random.choice("cde"))]) for _ in range(4)]
             for _ in prompts]  # fmt: skip
    within = [random.sample(range(4), 4) for _ in prompts]
    with RewardRunner(eg_reasoner_reward(RuleAnswer(), Table())) as runner:
        plain = np.array(values(runner.score_batch(prompts, texts, records)))
        moved = runner.score_batch(
            [prompts[i] for i in order],
            [[texts[i][j] for j in within[i]] for i in order],
            [records[i] for i in order],
        )
    assert values(moved) == [[plain[i, j] for j in within[i]] for i in order]


@pytest.mark.alone
def test_async_rewards_run_together_while_the_caller_goes_on():
    async def judge(prompt, response, record):
        await asyncio.sleep(0.3)
        return Reward(1.0)

    with RewardRunner(judge, concurrency=40) as runner:
        began = time.perf_counter()
        batch = runner.start(*numbered(10, 4))
        assert time.perf_counter() - began < 0.29
        assert not batch.done
        batch.result()
        assert time.perf_counter() - began < 6  # one after another: 12 s
        assert 0.29 <= runner.counts.seconds < 6
        assert 0 < runner.counts.waited_s < 6


def test_two_batches_overlap():
    """The next batch may be sampled, and handed in, while the judges still read this one."""
    gate = threading.Event()

    def wait_for_second(prompt, response, record):
        if prompt.name == "v/q9":
            gate.set()
        return Reward(float(gate.wait(5)))

    with RewardRunner(wait_for_second) as runner:
        first, second = runner.start(*numbered(2, 2)), runner.start(*numbered(1, 1, start=9))
        assert values(second.result()) == [[1.0]]
        assert values(first.result()) == [[1.0, 1.0], [1.0, 1.0]]


def test_no_more_calls_at_once_than_asked_for():
    now, most = 0, 0

    async def count(prompt, response, record):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return Reward(0.0)

    with RewardRunner(count, concurrency=3) as runner:
        runner.score_batch(*numbered(10, 3))
    assert most == 3


def test_a_batch_is_prepared_once_and_parts_without_preparation_do_not_wait():
    """Judges start while descriptions are still embedded."""
    table, asked = Table(), threading.Event()
    prepare = table.prepare

    def waits(texts):
        assert asked.wait(5)
        prepare(texts)

    table.prepare = waits

    async def judge(prompt, response, record):
        asked.set()
        return Reward(1.0)

    prompts, _, records = numbered(3, 2)
    reward = CompositeReward({"evidence": (1, EvidenceReward(table)), "answer": (1, judge)})
    with RewardRunner(reward) as runner:
        got = runner.score_batch(prompts, [[response()] * 2] * 3, records)
        assert len(table.announced) == 1
        assert len(table.announced[0]) == 6 * 5
        assert values(got) == [[pytest.approx(1.5927275, abs=5e-7)] * 2] * 3


def test_preparation_that_fails_is_counted_and_one_that_cannot_work_stops():
    class Once(TokenSimilarity):
        def __init__(self, error):
            self.error = error

        def prepare(self, texts):
            raise self.error

    prompts, _, records = numbered(2, 1)
    with RewardRunner(EvidenceReward(Once(MemoryError("full")))) as runner:
        assert values(runner.score_batch(prompts, [[response()]] * 2, records)) == [[0.0], [0.0]]
        assert runner.counts.failures == {"prepare": 1}
    with (
        RewardRunner(EvidenceReward(Once(InputError("no model")))) as runner,
        pytest.raises(InputError, match="no model"),
    ):
        runner.score_batch(prompts, [[response()]] * 2, records)


def test_a_run_stops_past_the_share_of_unscored_samples_and_not_before():
    def every(n):
        seen = Counter()

        def reward(prompt, response, record):
            seen["calls"] += 1
            return Reward.unscored("the judge is away", "judge_failed") if seen["calls"] % n == 0 else Reward(1.0)

        return reward

    with RewardRunner(every(1), max_unscored_share=0.5) as runner:
        assert values(runner.score_batch(*numbered(9, 7))) == [[None] * 7] * 9  # 63 samples say too little
        with pytest.raises(RunError, match=r"64 of the latest 64.*judge_failed 64.*share of 0.5.*the judge is away"):
            runner.score_batch(*numbered(1, 1))
        assert runner.counts.unscored == {"judge_failed": 64}
        assert runner.counts.unscored_share == 1
    with RewardRunner(every(2), max_unscored_share=0.5) as runner:
        runner.score_batch(*numbered(10, 10))
        assert runner.counts.as_row()["unscored_share"] == 0.5
    with RewardRunner(every(1), max_unscored_share=1) as runner:
        runner.score_batch(*numbered(10, 10))


def test_a_judge_that_goes_away_late_shows_soon():
    away = False

    def reward(prompt, response, record):
        return Reward.unscored("away") if away else Reward(1.0)

    with RewardRunner(reward, max_unscored_share=0.5) as runner:
        for _ in range(10):
            runner.score_batch(*numbered(16, 8))
        away = True
        runner.score_batch(*numbered(16, 8))
        runner.score_batch(*numbered(16, 8))
        with pytest.raises(RunError, match="384 of the latest 512"):
            runner.score_batch(*numbered(16, 8))


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"attempts": 0}, {"timeout_s": 0}, {"timeout_s": float("nan")}, {"backoff_s": -1},
     {"max_unscored_share": 1.1}],
)  # fmt: skip
def test_options_that_make_no_sense(options):
    with pytest.raises(InputError):
        RewardRunner(echo, **options)


@pytest.mark.alone
def test_closing_gives_up_what_runs(recwarn):
    async def never(prompt, response, record):
        await asyncio.sleep(100)

    runner = RewardRunner(never)
    batch = runner.start(*numbered(2, 2))
    began = time.perf_counter()
    runner.close()
    runner.close()
    assert time.perf_counter() - began < 2
    assert batch.done
    gc.collect()
    assert not [warning for warning in recwarn if "never" in str(warning.message)]


def test_threads_are_used_again_and_end_with_the_runner():
    before = set(threading.enumerate())

    def fresh():
        return [t for t in set(threading.enumerate()) - before if t.name.startswith("vrjax-reward")]

    release = threading.Event()

    def sometimes_stuck(prompt, response, record):
        if response == "1.0":
            release.wait(10)
        return Reward(1.0)

    with RewardRunner(sometimes_stuck, concurrency=4, timeout_s=0.2, attempts=1) as runner:
        for _ in range(3):
            runner.score_batch(*numbered(5, 4, start=2))
        assert len(fresh()) <= 1 + 4
        assert values(runner.score_batch(*numbered(1, 2))) == [[None, 1.0]]
    release.set()
    for _ in range(100):
        if not fresh():
            break
        time.sleep(0.05)
    assert not fresh()


def test_a_reward_that_hangs_does_not_keep_the_process(tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text(
        "import threading\n"
        "from tests.rewards.questions import prompt, record\n"
        "from vrjax.rewards import RewardRunner\n"
        "runner = RewardRunner(lambda *item: threading.Event().wait(), timeout_s=.1)\n"
        "print(runner.score_batch([prompt()], [['a']], [record()])[0][0].fault)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.strip() == "timeout"
