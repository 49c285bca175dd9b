import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.evidence import Span, iou, iou_matrix

seconds = st.floats(0, 1e5)
spans = st.tuples(seconds, seconds).map(lambda pair: Span(min(pair), max(pair)))


# By hand, overlap over hull; the last three are the published ReXTime rule (golden `rextime_iou`).
@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        ((10, 20), (12, 22), 8 / 12),
        ((30, 50), (28, 40), 10 / 22),
        ((10, 20), (20, 30), 0.0),
        ((10, 20), (40, 50), 0.0),
        ((0, 15.8), (0, 28), 0.5643),
        ((30, 40), (5, 8), 0.0),
        ((5, 5), (5, 5), 0.0),
    ],
)
def test_iou_is_overlap_over_hull(first, second, want):
    assert iou(Span(*first), Span(*second)) == pytest.approx(want, abs=5e-5)


@given(spans, spans)
def test_iou_is_symmetric_and_bounded(first, second):
    value = iou(first, second)
    assert 0 <= value <= 1
    assert value == iou(second, first)
    assert iou(first, first) == (1.0 if first.length > 0 else 0.0)


def test_unusable_spans_are_rows_and_columns_of_zeros():
    span = Span(0, 10)
    assert iou_matrix([span, None], [None, span]).tolist() == [[0, 1], [0, 0]]
    assert iou_matrix([], [span]).shape == (0, 1)


@pytest.mark.parametrize("times", [(2, 1), (0, math.inf), (math.nan, 1)])
def test_a_span_refuses_times_that_are_none(times):
    with pytest.raises(ValueError, match="span"):
        Span(*times)
