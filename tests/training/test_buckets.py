import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.training.buckets import RowSize, choose_bucket, fit_buckets, padding_share


def row(length: int, frames: int = 1, patches: int = 16) -> RowSize:
    return RowSize(length, 1, frames, patches, 1)


sizes = st.lists(
    st.builds(
        RowSize,
        st.integers(1, 3000),
        st.integers(1, 300),
        st.integers(1, 64),
        st.sampled_from([16, 64, 256]),
        st.integers(1, 9),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=60,
)


@given(sizes, st.integers(1, 8))
def test_every_row_fits_and_programs_are_bounded(rows: list[RowSize], programs: int) -> None:
    buckets = fit_buckets(rows, programs)
    assert 1 <= len(buckets) <= programs
    for size in rows:
        assert buckets[choose_bucket(size, buckets)].holds(size)


@given(sizes)
def test_padding_is_held_where_programs_allow(rows: list[RowSize]) -> None:
    buckets = fit_buckets(rows, 100, 0.2, multiple=1)
    share = padding_share(rows, [buckets[choose_bucket(size, buckets)] for size in rows])
    assert share <= 0.2 + 1e-9


def test_two_lengths_need_two_buckets_only_where_the_padding_is_too_much() -> None:
    rows = [row(100)] * 10 + [row(200)] * 10
    # One bucket: 20 x (200 + 16) computed, 10 x 116 + 10 x 216 needed: 1,000 / 4,320 = 23% padding.
    assert [bucket.length for bucket in fit_buckets(rows, 8, 0.24)] == [200]
    assert [bucket.length for bucket in fit_buckets(rows, 8, 0.20)] == [104, 200]


def test_the_cheaper_join_is_taken() -> None:
    # 2 rows of 104 to 400 cost 592 tokens, 100 rows of 96 to 104 cost 800; with 3 rows of 104 it is 888 to 800.
    assert [b.length for b in fit_buckets([row(96)] * 100 + [row(104)] * 2 + [row(400)] * 10, 2)] == [96, 400]
    assert [b.length for b in fit_buckets([row(96)] * 100 + [row(104)] * 3 + [row(400)] * 10, 2)] == [104, 400]


def test_padding_share_by_hand() -> None:
    # 84 + 16 needed of 184 + 16; an empty row is all padding.
    assert padding_share([row(84), None], [row(184), row(184)]) == pytest.approx(1 - 100 / 400)


def test_no_rows_is_an_error() -> None:
    with pytest.raises(InputError, match="no rows"):
        fit_buckets([], 4)
