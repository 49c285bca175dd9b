"""Means, coverage and classes by hand; what was not scored is no zero."""

from dataclasses import dataclass

import pytest

from vrjax.evaluation.benchmark import ItemScore
from vrjax.evaluation.benchmarks.lvbench import LvBench
from vrjax.evaluation.tally import tally


@dataclass(frozen=True)
class Row:
    video: str
    types: tuple[str, ...]
    answer: float | None
    span: float
    failure: str | None = None


ROWS = [
    Row("v1", ("a", "b"), 1.0, 0.5),
    Row("v1", ("a",), None, 0.25, "judge failed"),
    Row("v2", ("b", "b"), 0.0, 0.0, "no span"),
    Row("v3", (), 0.5, 1.0),
]


def scores(rows=ROWS) -> list[ItemScore]:
    return [
        ItemScore(
            id=str(number),
            video=row.video,
            types=row.types,
            values={"answer": row.answer, "span": row.span},
            failure=row.failure,
        )
        for number, row in enumerate(rows)
    ]


def test_by_hand():
    found = tally(LvBench(), scores(), {"answer": 0.375}, ["a quirk"])
    assert found.strict == {"answer": 0.5, "span": 0.4375}
    assert found.coverage == 0.5
    assert found.failures == {"judge failed": 1, "no span": 1}
    assert found.by_type == {
        "a": {"n": 2, "answer": 1.0, "span": 0.375},
        "b": {"n": 2, "answer": 0.5, "span": 0.25},
    }
    assert found.official == {"answer": 0.375}
    assert found.quirks == ("a quirk",)
    assert found.intervals["answer"].mean == 0.5
    assert found.benchmark == "lvbench"
    assert [item.id for item in found.items] == ["0", "1", "2", "3"]


def test_a_metric_without_any_value_is_left_out():
    found = tally(LvBench(), scores([Row("v", ("a",), None, 1.0)]), {})
    assert found.strict == {"span": 1.0}
    assert found.by_type == {"a": {"n": 1, "span": 1.0}}
    assert found.coverage == 0
    nothing = tally(LvBench(), [ItemScore(id="1", video="v", types=(), values={"x": None})], {})
    assert nothing.strict == nothing.intervals == {}
    with pytest.raises(ValueError, match="nothing to tally"):
        tally(LvBench(), [], {})


def test_questions_of_one_video_are_one_cluster():
    rows = [Row(f"v{n % 5}", (), float(n % 5 < 2), 0.0) for n in range(100)]
    pooled = [Row(f"v{n}", (), row.answer, 0.0) for n, row in enumerate(rows)]
    wide, narrow = (tally(LvBench(), scores(each), {}).intervals["answer"] for each in (rows, pooled))
    assert wide.mean == narrow.mean == 0.4
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
