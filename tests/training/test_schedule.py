from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.training.buckets import RowSize
from vrjax.training.schedule import EMPTY, Schedule

BUCKETS = (RowSize(100, 10, 4, 16, 1), RowSize(200, 20, 8, 16, 1))
SHORT, LONG = RowSize(90, 5, 4, 16, 1), RowSize(150, 5, 4, 16, 1)


def schedule(short: int, long: int, batch: int, seed: int = 0, shuffle: bool = True) -> Schedule:
    return Schedule([SHORT] * short + [LONG] * long, [short + long], [1.0], BUCKETS, batch, seed, shuffle)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 30), st.integers(1, 30), st.integers(1, 8), st.integers(0, 5))
def test_each_row_once_per_epoch_in_a_bucket_that_holds_it(short: int, long: int, batch: int, block: int) -> None:
    plan = schedule(short, long, batch)
    batches = plan.block(block)
    rows = [row for scheduled in batches for row in scheduled.rows if row != EMPTY]
    assert sorted(rows) == list(range(short + long))
    assert all(len(scheduled.rows) == batch for scheduled in batches)
    assert sum(EMPTY in scheduled.rows for scheduled in batches) <= 1
    for scheduled in batches:
        assert all(row < short or scheduled.bucket == 1 for row in scheduled.rows if row != EMPTY)


def test_every_epoch_has_its_own_order_and_a_fresh_schedule_repeats_it() -> None:
    first, again = schedule(20, 20, 4), schedule(20, 20, 4)
    orders = [tuple(batch.rows for batch in first.block(block)) for block in range(4)]
    assert len(set(orders)) == 4
    # Asked for in another order, as after a restart in the third epoch (transformers#40691).
    assert tuple(batch.rows for batch in again.block(3)) == orders[3]
    assert tuple(batch.rows for batch in again.block(1)) == orders[1]
    number = again.batches_in(2) + 3
    assert again.batch(number) == first.block(2)[3]
    assert again.epoch_of(number) == 2


def test_other_seeds_other_orders() -> None:
    assert schedule(20, 20, 4, seed=0).block(0) != schedule(20, 20, 4, seed=1).block(0)


def test_unshuffled_order_is_that_of_the_rows() -> None:
    assert [batch.rows for batch in schedule(0, 6, 3, shuffle=False).block(0)] == [(0, 1, 2), (3, 4, 5)]


def test_datasets_are_mixed_by_weight() -> None:
    mixed = Schedule([LONG] * 40, [30, 10], [1.0, 3.0], BUCKETS, 4, 0)
    rows = Counter(row >= 30 for block in range(5) for batch in mixed.block(block) for row in batch.rows)
    assert rows[True] == pytest.approx(3 * rows[False], rel=0.05)
    # The small dataset is passed over 15 times in 5 blocks: each of its rows 15 times.
    counts = Counter(row for block in range(5) for batch in mixed.block(block) for row in batch.rows)
    assert {counts[row] for row in range(30, 40)} == {15}


@pytest.mark.parametrize(
    ("counts", "weights", "batch", "message"),
    [([2], [1.0], 0, "batch_size"), ([2], [0.0], 1, "above 0"), ([0, 2], [1.0, 1.0], 1, "needs rows")],
)
def test_bad_settings_are_named(counts: list[int], weights: list[float], batch: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Schedule([SHORT] * sum(counts), counts, weights, BUCKETS, batch, 0)
