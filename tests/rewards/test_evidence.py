import numpy as np
import pytest

from tests.rewards.questions import prompt, record, response
from vrjax.errors import InputError
from vrjax.evidence import TokenSimilarity
from vrjax.rewards import EvidenceReward, RewardItem


class Table:
    """Golden `egf1_A`: references a, b against predictions c, d, e."""

    name = "table"
    values = np.array([[0.9, 0.3, 0.2], [0.4, 0.8, 0.1]])

    def __init__(self):
        self.announced = []

    def prepare(self, texts):
        self.announced.append(sorted(texts))

    def pairs(self, references, predictions):
        return self.values[np.ix_(["ab".index(text) for text in references], ["cde".index(t) for t in predictions])]


def score(reward, text=None, of=None):
    return reward(prompt(), response() if text is None else text, of or record())


# soft: product weights .385455, mean weights .564242; hard (.3, .5): 2·2/(2 + 3) = .8, at .5 and .75: 2·1/5 = .4.
@pytest.mark.parametrize(
    ("options", "soft", "hard", "value"),
    [
        ({}, 0.385455, 0.8, 0.5927275),
        ({"variant": "released"}, 0.564242, 0.8, 0.682121),
        ({"soft": False}, 0.385455, 0.8, 0.8),
        ({"soft": False, "variant": "released"}, 0.564242, 0.8, 0.8),
        ({"soft_weight": 0.0}, 0.385455, 0.8, 0.4),
        ({"hard_weight": 0.0, "soft_weight": 1.0}, 0.385455, 0.8, 0.385455),
        ({"soft_weight": 0.2, "hard_weight": 0.6}, 0.385455, 0.8, 0.557091),
        ({"soft_weight": 0.2, "hard_weight": 0.6, "soft": False}, 0.385455, 0.8, 0.64),
        ({"iou_threshold": 0.5, "similarity_threshold": 0.75}, 0.385455, 0.4, 0.3927275),
        ({"iou_threshold": 0.5, "variant": "released"}, 0.564242, 0.4, 0.482121),
    ],
)
def test_golden_values_of_each_variant_weight_and_switch(options, soft, hard, value):
    reward = score(EvidenceReward(Table(), **options))
    assert reward.parts == {"soft": pytest.approx(soft, abs=5e-7), "hard": pytest.approx(hard)}
    assert reward.value == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("line", ["Time:00:40-00:30, Des: x\n", "somewhere, x\n", "Time:soon, Des: x\n"])
def test_lines_that_cannot_be_read_cost_precision(line):
    of = record(evidence=((0, 10, "rope"),))
    reward = score(EvidenceReward(TokenSimilarity()), response(lines=((0, 10, "rope"),), extra=line), of)
    assert reward.value == pytest.approx(2 / 3)  # one hit of one reference and two predictions, soft and hard alike
    assert reward.note


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_empty_sides_are_worth_nothing(variant):
    reward = EvidenceReward(TokenSimilarity(), variant)
    empty = record(evidence=())
    assert score(reward, of=empty).value == 0
    assert score(reward, response(lines=()), empty).value == 0  # nothing to find and nothing claimed: 0 all the same
    assert score(reward, response(lines=())).value == 0
    assert score(reward, "no tags at all").value == 0


def test_a_batch_is_announced_at_once_and_without_lines_that_cannot_be_read():
    table = Table()
    items = [
        RewardItem(prompt(), response(lines=((1, 2, "c"),), extra="nothing\n"), record()),
        RewardItem(prompt(2), response(lines=((3, 4, "d"),)), record(number=2)),
    ]
    EvidenceReward(table).prepare(items)
    assert table.announced == [["a", "a", "b", "b", "c", "d"]]


@pytest.mark.parametrize(
    "options", [{"variant": "other"}, {"soft_weight": -0.1}, {"soft_weight": 0.0, "hard_weight": 0.0},
                {"hard_weight": float("nan")}, {"hard_weight": float("inf")}],
)  # fmt: skip
def test_options_that_make_no_sense(options):
    with pytest.raises(InputError):
        EvidenceReward(TokenSimilarity(), **options)
