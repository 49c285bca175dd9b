import json
import math

import pytest

from tests.rewards.questions import prompt, record
from vrjax.rewards import Reward, RewardPrompt


def test_unscored_is_not_zero():
    reward = Reward.unscored("the judge was away", "timeout")
    assert reward.value is None
    assert (reward.fault, reward.note) == ("timeout", "the judge was away")
    assert Reward(None).fault == "unscored"
    assert Reward(0.0).fault == ""


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", 10**400])
def test_only_finite_numbers_are_rewards(value):
    with pytest.raises(ValueError, match="value must be a finite number"):
        Reward(value)
    with pytest.raises(ValueError, match="part must be a finite number"):
        Reward(1.0, {"part": value})


def test_rewards_survive_json():
    for reward in (Reward(0.25, {"a": 1.0, "b": None}, "note"), Reward.unscored("why", "error", {"a": 0.5})):
        assert Reward.from_row(json.loads(json.dumps(reward.as_row()))) == reward


def test_the_prompt_of_a_record():
    assert RewardPrompt.of(record(number=3)) == prompt(3)
