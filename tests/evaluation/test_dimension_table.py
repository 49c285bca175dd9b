"""Several systems on MovieCORE side by side, and one system on MovieCORE and MovieChat-1K (tables 2 and 5)."""

import asyncio

import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Prediction, Tools
from vrjax.evaluation.benchmarks.moviechat import MovieChat
from vrjax.evaluation.benchmarks.moviecore import AVERAGE, MovieCore
from vrjax.evaluation.dimension_judge import DIMENSIONS
from vrjax.evaluation.dimension_table import dimension_table, system_gap
from vrjax.evaluation.intervals import clustered_interval
from vrjax.evaluation.movie_benchmark import MovieItem

CLIPS, ASKED = 40, 3


def items(count=CLIPS, asked=ASKED):
    return [
        MovieItem(id=f"v{clip}_{n}", video=f"v{clip}", question=f"Q{n}?", types=("X",), classification="X",
                  reference={"answer": "A"})
        for clip in range(count) for n in range(asked)
    ]  # fmt: skip


def core_score(ratings, left_out=()):
    """ratings [N, 5]; NaN: without a verdict."""
    asked = items()
    predictions = []
    for item, row in zip(asked, ratings, strict=True):
        verdict = {name: {"score": value} for name, value in zip(DIMENSIONS, row, strict=True) if not np.isnan(value)}
        if item.id not in left_out:
            predictions.append(Prediction(id=item.id, text="x", judged={"j": verdict}))
    return asyncio.run(MovieCore(text_metrics=()).score(asked, predictions, Tools()))


def chat_score(right):
    asked = items()
    predictions = [
        Prediction(id=item.id, text="x", judged={"j": {"correct": bool(one), "score": 5.0 if one else 0.0}})
        for item, one in zip(asked, right, strict=True)
    ]
    return asyncio.run(MovieChat().score(asked, predictions, Tools()))


def test_gains_are_paired():
    rng = np.random.default_rng(0)
    base = rng.integers(0, 5, size=(CLIPS * ASKED, 5)).astype(float)
    better = base + (rng.random(base.shape) < 0.3)
    first, second = dimension_table({"base": core_score(base), "better": core_score(better)})
    assert (first.gains, first.paired) == (None, 0)
    assert second.paired == CLIPS * ASKED
    videos = [item.video for item in items()]
    for n, name in enumerate(DIMENSIONS):
        expected = clustered_interval((better - base)[:, n].tolist(), videos)
        found = second.gains[name]
        assert (found.mean, found.low, found.high) == pytest.approx((expected.mean, expected.low, expected.high))
        assert first.means[name].mean == pytest.approx(base[:, n].mean())
    assert second.gains[AVERAGE].mean == pytest.approx((better - base).mean())
    gain, mean = second.gains[AVERAGE], second.means[AVERAGE]
    assert gain.high - gain.low < (mean.high - mean.low) / 2


def test_questions_without_a_whole_verdict_are_no_pairs():
    base, other = np.full((CLIPS * ASKED, 5), 2.0), np.full((CLIPS * ASKED, 5), 3.0)
    base[0, 2] = np.nan
    other[5, 0] = np.nan
    _, second = dimension_table({"base": core_score(base), "other": core_score(other)})
    assert second.paired == CLIPS * ASKED - 2
    assert second.gains["depth"].mean == 1
    assert second.coverage == pytest.approx(1 - 1 / (CLIPS * ASKED))


def test_a_question_left_out_counts_0_against_the_system():
    ratings = np.full((CLIPS * ASKED, 5), 4.0)
    _, second = dimension_table({"base": core_score(ratings), "lazy": core_score(ratings, left_out=("v0_0",))})
    assert second.paired == CLIPS * ASKED
    assert second.gains["accuracy"].mean == pytest.approx(-4 / (CLIPS * ASKED))
    assert second.official["accuracy"].mean == 4


def test_other_questions_are_refused():
    score = core_score(np.ones((CLIPS * ASKED, 5)))
    other = asyncio.run(
        MovieCore(text_metrics=()).score(
            items(2),
            [Prediction(id="v0_0", text="x", judged={"j": {"accuracy": {"score": 1.0}}})],
            Tools(),
        )
    )
    with pytest.raises(InputError, match="other questions than a"):
        dimension_table({"a": score, "b": other})


def test_system_1_against_system_2():
    """75 % right is 3.75 of 5."""
    ratings = np.full((CLIPS * ASKED, 5), 3.0)
    right = np.arange(CLIPS * ASKED) % 4 > 0
    gap = system_gap(core_score(ratings), chat_score(right))
    assert gap.accuracy == pytest.approx(0.75)
    assert gap.system_1.mean == pytest.approx(3.75)
    assert gap.system_2.mean == 3
    assert gap.gap.mean == pytest.approx(0.75)
    expected = clustered_interval((5 * right).tolist(), [item.video for item in items()])
    assert (gap.gap.low, gap.gap.high) == pytest.approx((expected.low - 3, expected.high - 3))
    assert gap.clips == CLIPS


def test_system_gap_takes_the_questions_about_a_clip_together():
    """Clips that are hard in both ways make the gap narrower than two separate draws would."""
    hard = np.repeat(np.arange(CLIPS) % 2, ASKED).astype(bool)
    gap = system_gap(core_score(np.repeat(np.where(hard, 0.0, 5.0)[:, None], 5, axis=1)), chat_score(~hard))
    assert gap.system_1.high - gap.system_1.low > 1
    assert (gap.gap.low, gap.gap.high) == (0, 0)


def test_nothing_judged_is_no_gap():
    nothing = core_score(np.full((CLIPS * ASKED, 5), np.nan))
    with pytest.raises(InputError, match="no judged question"):
        system_gap(nothing, chat_score(np.ones(CLIPS * ASKED)))
