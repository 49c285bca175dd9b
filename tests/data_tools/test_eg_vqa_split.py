"""The split for any records, and the audit sample, against brute force and hand values."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_tools.eg_vqa.audit import audit_result, balanced, draw_audit
from data_tools.eg_vqa.split import Split, check_split, split_records
from data_tools.eg_vqa.strata import Edges, Strata
from vrjax.errors import InputError, RunError
from vrjax.records import VideoRecord


def record(number: int, source: str, duration: float, pieces: int, questions: int = 1, video: str = "") -> VideoRecord:
    piece = {"timestamp": [0, 1], "description": "x"}
    video = video or f"video{number}"
    return VideoRecord.model_validate({
        "video_id": video, "video_path": "v.mp4", "duration": duration, "data_source": source,
        "questions": [{"question_id": f"{video}_q{n}", "question": "?", "evidence": [piece] * pieces,
                       "type": "causal" if n % 2 else "temporal"} for n in range(questions)],
    })  # fmt: skip


records = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(1, 1000), st.integers(0, 5)), min_size=2, max_size=400
).map(lambda rows: [record(number, *row) for number, row in enumerate(rows)])


@settings(max_examples=60, deadline=None)
@given(records, st.floats(0.01, 0.99), st.integers(0, 3))
def test_no_video_on_both_sides_and_every_stratum_within_a_video_of_its_share(videos, share, seed):
    wanted = min(max(1, round(share * len(videos))), len(videos) - 1)
    split = split_records(videos, wanted, seed)
    balance = check_split(split)
    test, train = {one.video_id for one in split.test}, {one.video_id for one in split.train}
    assert len(test) == wanted
    assert not test & train
    assert test | train == {one.video_id for one in videos}
    for table in ("source", "all three"):
        for row in balance["shares"][table].values():
            expected = row["all"] * wanted
            assert abs(row["test"] * wanted - expected) < 1 + 1e-9
    assert [one.video_id for one in split_records(videos, wanted, seed).test] == [one.video_id for one in split.test]


def test_2000_records_keep_each_share_within_a_point():
    videos = [
        record(
            n, ("ActivityNet Captions", "YouCook2", "HiREST")[(n % 17 > 9) + (n % 17 > 12)], 10 + 37 * n % 590, n % 6
        )
        for n in range(2000)
    ]
    found = check_split(split_records(videos, 325))
    assert max(found["largest_difference"].values()) < 1
    assert len(found["shares"]["all three"]) >= 20


def test_records_of_one_video_stay_together():
    videos = [record(n, "a", 10, 1) for n in range(20)]
    twice = [record(0, "a", 10, 1, video="AAAAAAAAAAA"), record(1, "b", 90, 1, video="v_AAAAAAAAAAA")]
    for seed in range(20):
        split = split_records([*videos, *twice], 10, seed)
        sides = [
            {one.video_id for one in side} & {"AAAAAAAAAAA", "v_AAAAAAAAAAA"} for side in (split.train, split.test)
        ]
        assert sorted(map(len, sides)) == [0, 2]
    with pytest.raises(RunError, match="AAAAAAAAAAA"):
        check_split(Split([twice[0]], [twice[1]], Strata.of(twice)))


@pytest.mark.parametrize("wanted", [0, 20, -1])
def test_a_split_that_cannot_be_is_refused(wanted):
    with pytest.raises(InputError, match="cannot be drawn"):
        split_records([record(n, "a", 10, 1) for n in range(20)], wanted)


def test_thirds_of_hand_values():
    edges = Edges.thirds([1, 2, 3, 4, 5, 6])
    assert [edges.bin(value) for value in (1, 2, 3, 4, 5, 6)] == ["low"] * 2 + ["middle"] * 2 + ["high"] * 2
    assert Edges.thirds([7, 7, 7]).bin(7) == "low"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(0, 200))
def test_a_balanced_draw_is_as_equal_as_sizes_allow(sizes, count):
    shares = balanced(sizes, count)
    assert sum(shares) == min(count, sum(sizes))
    assert all(share <= size for share, size in zip(shares, sizes, strict=True))
    short = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    if short:
        assert max(shares) - min(short) <= 1


def test_margins_of_an_audit_by_hand():
    videos = [record(n, "a", 10, 1, questions=4) for n in range(100)]  # one stratum a type: 200 questions each
    drawn, plan = draw_audit(videos, 50)
    assert len({one.question.question_id for one in drawn}) == 50
    assert [row["drawn"] for row in plan["strata"]] == [25, 25]
    one = 0.25 * (1 - 25 / 200) * 0.5 * 0.5 / 24
    assert plan["largest_margin"] == pytest.approx(100 * 1.959964 * math.sqrt(2 * one))
    strata = [tuple(row["stratum"]) for row in plan["strata"]]
    result = audit_result(plan, {strata[0]: [True] * 24 + [False], strata[1]: [True] * 20 + [False] * 5})
    assert result["share_valid"] == pytest.approx(0.5 * 0.96 + 0.5 * 0.8)
    parts = [0.25 * 0.875 * p * (1 - p) / 24 for p in (0.96, 0.8)]
    assert result["margin"] == pytest.approx(100 * 1.959964 * math.sqrt(sum(parts)))
    assert (result["audited"], result["valid"], result["without_verdict"]) == (50, 44, [])
    assert audit_result(plan, {strata[0]: [True]})["without_verdict"] == [list(strata[1])]
