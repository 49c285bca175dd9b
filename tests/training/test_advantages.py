"""Group-relative advantages against values computed by hand and by the published code's formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from vrjax.training.advantages import group_advantages, varied_groups

NAN = float("nan")


@pytest.mark.parametrize(
    ("rewards", "epsilon", "wanted"),
    [
        ([1, 0, 0, 1], 1e-4, [0.8659, -0.8659, -0.8659, 0.8659]),
        ([1, 0, 0, 0, 0, 0, 0, 0], 1e-4, [2.4742] + [-0.3535] * 7),
        ([1, 1, 1, 0.999], 1e-4, [0.4167, 0.4167, 0.4167, -1.25]),
        ([1, 1, 1, 0.999], 1e-6, [0.499, 0.499, 0.499, -1.497]),
    ],
)
def test_published_values(rewards, epsilon, wanted) -> None:
    np.testing.assert_allclose(group_advantages(np.array([rewards]), epsilon=epsilon)[0], wanted, atol=1e-4)


def test_default_epsilon_by_the_table() -> None:
    rewards = np.array([[1.0, 0.5, 0.5, 0.0, 0.1, 1.0, 0.0, 0.5]])
    wanted = [1.362882, 0.123898, 0.123898, -1.115085, -0.867288, 1.362882, -1.115085, 0.123898]
    np.testing.assert_allclose(group_advantages(rewards)[0], wanted, atol=1e-5)


def test_without_the_division() -> None:
    np.testing.assert_allclose(group_advantages(np.array([[1.0, 0, 0, 0]]), scale_by_std=False)[0],
                               [0.75, -0.25, -0.25, -0.25])  # fmt: skip


def test_an_unscored_response_is_left_out_and_is_no_zero() -> None:
    found = group_advantages(np.array([[1.0, 0.0, NAN, 1.0, 0.0]]))
    same = group_advantages(np.array([[1.0, 0.0, 1.0, 0.0]]))
    np.testing.assert_allclose(found[0, [0, 1, 3, 4]], same[0])
    assert found[0, 2] == 0.0


@pytest.mark.parametrize("row", [[0.3, 0.3, 0.3], [0.3, NAN, NAN], [NAN, NAN, NAN], [0.1 + 0.2, 0.1 + 0.2, NAN]])
def test_groups_that_teach_nothing_get_exactly_zero(row) -> None:
    rewards = np.array([row, [0.0, 1.0, 0.5]])
    found = group_advantages(rewards)
    assert found[0].tolist() == [0.0, 0.0, 0.0]
    assert found[1, 1] > 0
    assert varied_groups(rewards).tolist() == [False, True]


def test_wrong_input() -> None:
    with pytest.raises(ValueError, match=r"\[prompts, group\]"):
        group_advantages(np.zeros(4))
    with pytest.raises(ValueError, match="finite"):
        group_advantages(np.array([[np.inf, 0.0]]))


@given(arrays.arrays(np.float64, (3, 6), elements=st.one_of(st.floats(-5, 5), st.just(NAN))), st.permutations(range(6)))
def test_groups_keep_to_themselves(rewards, order) -> None:
    found = group_advantages(rewards)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(1), 0, atol=1e-6)
    np.testing.assert_allclose(group_advantages(rewards[:, order]), found[:, order], atol=1e-9)
    for row, alone in zip(found, rewards, strict=True):  # no other group enters
        np.testing.assert_array_equal(group_advantages(alone[None])[0], row)
