import asyncio
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rewards.questions import prompt, record, response
from tests.rewards.test_evidence import Table
from vrjax.errors import InputError
from vrjax.evidence import TokenSimilarity
from vrjax.rewards import CompositeReward, Reward, RewardItem, RuleAnswer, eg_reasoner_reward


def always(value, **parts):
    return lambda prompt, response, record: Reward(value, parts)


def missing(prompt, response, record):
    return Reward.unscored("no verdict", "judge_failed")


async def later(prompt, response, record):
    await asyncio.sleep(0)
    return Reward(0.5, {"inner": 0.25}, "slow")


def score(reward, text="", of=None):
    return reward(prompt(), text, of or record())


# Evidence as in golden `egf1_A`: paper .5·.385455 + .5·.8 = .5927275, released .682121, hard only .8.
@pytest.mark.parametrize(
    ("options", "text", "want"),
    [
        ({}, response(), 0.1 + 0.6 + 0.3 * 0.5927275),
        ({}, response("Nothing."), 0.1 + 0.3 * 0.5927275),
        ({}, "Well. " + response("Nothing."), 0.3 * 0.5927275),
        ({}, "", 0.0),
        ({"variant": "released"}, response(), 0.7 + 0.3 * 0.682121),
        ({"soft": False}, response(), 0.7 + 0.3 * 0.8),
        ({"evidence_weight": 0.0}, response(), 0.7),
        ({"format_weight": 0.0, "answer_weight": 0.0, "evidence_weight": 2.0}, response(), 2 * 0.5927275),
        ({"format_weight": 0.5, "answer_weight": 0.25}, response("Nothing."), 0.5 + 0.3 * 0.5927275),
    ],
)
def test_eg_reasoner_by_hand(options, text, want):
    reward = score(eg_reasoner_reward(RuleAnswer(), Table(), **options), text)
    assert reward.value == pytest.approx(want, abs=5e-7)


def test_parts_are_kept_by_name():
    reward = score(eg_reasoner_reward(RuleAnswer(), Table(), evidence_weight=0.0), response())
    assert reward.parts == pytest.approx(
        {"format": 1, "answer": 1, "evidence": 0.592727, "evidence.soft": 0.385455, "evidence.hard": 0.8}, abs=1e-6
    )


def test_one_unscored_part_leaves_the_sample_unscored_and_the_others_known():
    reward = score(CompositeReward({"format": (0.1, always(1.0)), "answer": (0.9, missing)}))
    assert (reward.value, reward.fault, reward.note) == (None, "answer.judge_failed", "answer: no verdict")
    assert reward.parts == {"format": 1.0, "answer": None}
    both = CompositeReward({"a": (1, missing), "b": (1, missing)})
    assert score(both).fault == "a.judge_failed+b.judge_failed"


def test_an_unscored_part_of_weight_zero_does_not_matter():
    reward = score(CompositeReward({"format": (0.1, always(1.0)), "answer": (0, missing)}))
    assert (reward.value, reward.parts) == (pytest.approx(0.1), {"format": 1.0, "answer": None})


def test_async_parts_make_it_awaitable():
    result = score(CompositeReward({"a": (2, later), "b": (1, always(1.0)), "c": (0.5, later)}))
    assert inspect.isawaitable(result)

    async def wait():
        return await result

    reward = asyncio.run(wait())
    assert reward.value == pytest.approx(2 * 0.5 + 1 + 0.5 * 0.5)
    assert reward.parts == {"a": 0.5, "a.inner": 0.25, "b": 1.0, "c": 0.5, "c.inner": 0.25}
    assert reward.note == "a: slow; c: slow"


def test_a_part_that_raises_does_not_leave_others_unawaited(recwarn):
    def broken(prompt, response, record):
        raise KeyError("k")

    with pytest.raises(KeyError):
        score(CompositeReward({"a": (1, later), "b": (1, broken)}))
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


def test_nested_composites():
    inner = CompositeReward({"x": (0.5, always(1.0)), "y": (0.5, always(0.0))})
    reward = score(CompositeReward({"inner": (2, inner), "z": (1, always(1.0))}))
    assert reward.value == pytest.approx(2.0)
    assert reward.parts == {"inner": 0.5, "inner.x": 1.0, "inner.y": 0.0, "z": 1.0}


def test_preparing_reaches_every_part():
    table = Table()
    item = RewardItem(prompt(), response(lines=((1, 2, "c"),)), record())
    CompositeReward({"all": (1, eg_reasoner_reward(RuleAnswer(), table))}).prepare([item])
    assert table.announced == [["a", "b", "c"]]


@pytest.mark.parametrize(
    "parts",
    [{}, {"a": (0, missing)}, {"a": (-1, missing)}, {"a": (float("nan"), missing)}, {"a": (float("inf"), missing)},
     {"a.b": (1, missing)}, {"": (1, missing)}],
)  # fmt: skip
def test_weights_and_names_that_make_no_sense(parts):
    with pytest.raises(InputError):
        CompositeReward(parts)


words = st.sampled_from(["a rope", "red boat", "", "two dogs sleep"])
spans = st.tuples(st.integers(0, 59), st.integers(0, 59), words)
texts = st.one_of(
    st.builds(response, st.sampled_from(["The boat is pulled ashore.", "No boat.", ""]), st.lists(spans, max_size=6)),
    st.text(max_size=30),
)
weights = st.floats(0.01, 5)


@given(texts, weights, weights, weights, st.sampled_from(["paper", "released"]), st.booleans(),
       st.lists(spans, max_size=4))  # fmt: skip
def test_the_value_lies_between_zero_and_the_sum_of_weights(text, first, second, third, variant, soft, references):
    reward = eg_reasoner_reward(
        RuleAnswer("token_f1"),
        TokenSimilarity(),
        format_weight=first,
        answer_weight=second,
        evidence_weight=third,
        variant=variant,
        soft=soft,
    )
    value = score(reward, text, record(evidence=tuple(references))).value
    assert value is not None
    assert 0 <= value <= (first + second + third) * (1 + 1e-12)
