"""ReXTime against its authors' rules, written down a second time, and against values that their scorer printed."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.benchmarks.scoring import (
    FIXTURES,
    REALDATA,
    needs_real_data,
    replies,
    score,
    score_file,
    write,
)
from vrjax.errors import InputError
from vrjax.evaluation.benchmarks.rextime import RexTime, window_iou

REPOSITORY, HUB = FIXTURES / "rextime_val.jsonl", FIXTURES / "rextime_hf_val.json"
SUBMISSION = FIXTURES / "rextime_submission.jsonl"


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_fixture():
    found = score_file(RexTime(), REPOSITORY, SUBMISSION)
    assert found.official["R1@0.3"] == 66.67
    assert found.official["R1@0.5"] == 33.33
    assert found.official["mIoU"] == 38.3
    assert round(found.official["Acc@IoU0.5"], 4) == 0.3333
    assert found.official["Acc"] == 1
    # By hand: 5 of 6 seconds, 12 of 38, and a reference without length.
    assert [item.values["mIoU"] for item in found.items] == pytest.approx([5 / 6, 12 / 38, 0])
    assert found.strict["mIoU"] == pytest.approx((5 / 6 + 12 / 38) / 3)
    assert found.coverage == 1


@pytest.mark.parametrize(
    ("prediction", "reference", "iou"),
    [((0, 15.8), (0, 28), 0.5643), ((30, 40), (5, 8), 0.0), ((5, 5), (5, 5), 0.0), ((8, 5), (5, 8), 0.0)],
)
def test_iou_known(prediction, reference, iou):
    assert window_iou(reference, prediction) == pytest.approx(iou, abs=5e-5)


@given(*(st.integers(0, 30) for _ in range(4)))
def test_iou_by_counting_seconds(a, b, c, d):
    reference, prediction = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    ours, theirs = set(range(*prediction)), set(range(*reference))
    expected = len(ours & theirs) / len(ours | theirs) if ours & theirs else 0
    assert window_iou(reference, prediction) == pytest.approx(expected)


def test_iou_of_parts_of_a_second():
    assert window_iou((0.2, 0.4), (0.3, 0.5)) == pytest.approx(1 / 3)


def test_the_label_of_the_repository_counts_where_there_is_one(tmp_path):
    shutil.copy(HUB, tmp_path / "rextime_val.json")
    changed = rows(REPOSITORY)
    changed[0] |= {"relevant_windows": [[2, 3], [8, 9]], "ans": "C"}
    item = RexTime().read(write(tmp_path / "rextime_val.jsonl", changed).parent)[0]
    assert item.reference == {"choice": "C", "spans": [(2, 3), (8, 9)]}
    del changed[0]["ans"]
    item = RexTime().read(write(tmp_path / "rextime_val.jsonl", changed).parent)[0]
    assert item.reference == {"choice": "A", "spans": [(1, 6)]}


def test_the_best_of_several_windows_counts(tmp_path):
    changed = rows(REPOSITORY)
    changed[0]["relevant_windows"] = [[8, 9], [0, 6], [0, 0]]
    found = score_file(RexTime(), write(tmp_path / "rextime_val.jsonl", changed), SUBMISSION)
    assert found.items[0].values["mIoU"] == 1


def test_both_files_make_one_question(tmp_path):
    shutil.copy(REPOSITORY, tmp_path)
    shutil.copy(HUB, tmp_path / "rextime_val.json")
    items = RexTime().read(tmp_path)
    assert [item.id for item in items] == ["anet_val0", "qvh_val0", "anet_val1"]
    assert items[0].types == ("sequential",)
    assert items[0].options["A"] == "He dropped a hat."
    assert items[0].reference == {"choice": "A", "spans": [(1, 6)]}
    assert "(D) He slept." in RexTime().question(items[0])
    with pytest.raises(InputError, match="qvh_val0 has no options"):
        RexTime().question(items[1])
    assert [item.id for item in RexTime().read(HUB)] == ["anet_val0"]
    assert score_file(RexTime(), tmp_path, SUBMISSION).by_type["sequential"]["n"] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("videos.txt", "v_AAAAAAAAAAA\nZZZZZZZZZZZ\n"),
        ("videos.txt", "AAAAAAAAAAA"),
        ("videos.json", ["AAAAAAAAAAA"]),
        ("train.json", [{"video_id": "v_AAAAAAAAAAA", "questions": []}]),
    ],
)
def test_videos_left_out(tmp_path, name, content):
    """The same YouTube id, as ActivityNet and as QVHighlights write it; a whole submission can still be scored."""
    benchmark = RexTime(leave_out=write(tmp_path / name, content))
    assert [item.id for item in benchmark.read(REPOSITORY)] == ["anet_val1"]
    found = score_file(benchmark, REPOSITORY, SUBMISSION)
    assert found.official["Acc"] == 1
    assert found.official["mIoU"] == 0
    assert len(found.items) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "is empty"), ([], "holds no ids"), ([3], "3 is no id"), ([{"id": "x"}], "None is no id")],
)
def test_a_list_of_videos_that_is_none(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        RexTime(leave_out=write(tmp_path / "videos.json", content)).read(REPOSITORY)


def test_only_the_first_window_counts(tmp_path):
    changed = rows(SUBMISSION)
    changed[0]["pred_relevant_windows"] = [[10, 15], [1, 6]]
    changed[1]["pred_relevant_windows"] = [[78, 108, 0.9], [0, 1]]
    changed[2]["pred_relevant_windows"] = []
    found = score_file(RexTime(), REPOSITORY, write(tmp_path / "s.jsonl", changed))
    assert [item.values["mIoU"] for item in found.items] == [0, 1, 0]
    assert found.failures == {"no span": 1}


def test_reversed_window_is_not_swapped(tmp_path):
    changed = rows(SUBMISSION)
    changed[0]["pred_relevant_windows"] = [[6, 1]]
    found = score_file(RexTime(), REPOSITORY, write(tmp_path / "s.jsonl", changed))
    assert found.items[0].values["mIoU"] == 0
    assert found.failures == {"reversed span": 1}


def test_files_of_one_task(tmp_path):
    windows = [{key: row[key] for key in ("qid", "pred_relevant_windows")} for row in rows(SUBMISSION)]
    found = score_file(RexTime(), REPOSITORY, write(tmp_path / "w.jsonl", windows))
    assert set(found.official) == {"mIoU", "R1@0.3", "R1@0.5"}
    assert found.strict["Acc"] == 0
    assert found.failures == {"no choice": 3}
    answers = [{key: row[key] for key in ("qid", "ans")} for row in rows(SUBMISSION)]
    found = score_file(RexTime(), REPOSITORY, write(tmp_path / "a.jsonl", answers))
    assert found.official == {"Acc": 1}
    assert found.strict["mIoU"] == 0


def test_every_question_must_be_in_the_file(tmp_path):
    path = write(tmp_path / "s.jsonl", rows(SUBMISSION)[:2])
    with pytest.raises(InputError, match="no row for anet_val1"):
        RexTime().read_submission(path, RexTime().read(REPOSITORY))


def test_replies(tmp_path):
    items = RexTime().read(REPOSITORY)
    texts = {"anet_val0": "Answer: A\nTime: 1 to 6", "qvh_val0": "I cannot tell."}
    found = score(RexTime(), items, replies(texts))
    assert found.strict["Acc@IoU0.5"] == pytest.approx(1 / 3)
    assert found.failures == {"no choice and no span": 1, "missing": 1}
    assert found.coverage == pytest.approx(1 / 3)
    path = tmp_path / "s.jsonl"
    RexTime().write_submission(path, items, replies(texts))
    assert rows(path)[1:] == [
        {"qid": "qvh_val0", "pred_relevant_windows": [[0, 0]], "ans": ""},
        {"qid": "anet_val1", "pred_relevant_windows": [[0, 0]], "ans": ""},
    ]
    again = score_file(RexTime(), REPOSITORY, path)
    assert again.official == found.official
    assert again.strict == found.strict


def test_labels_are_needed_to_score_only(tmp_path):
    (row,) = json.loads(HUB.read_text())
    del row["ans"], row["span"]
    items = RexTime(split="test").read(write(tmp_path / "rextime_test.json", [row]).parent)
    RexTime().write_submission(tmp_path / "s.jsonl", items, replies({"anet_val0": "Answer: B\nTime: 0 to 3"}))
    assert rows(tmp_path / "s.jsonl") == [{"qid": "anet_val0", "pred_relevant_windows": [[0, 3]], "ans": "B"}]
    with pytest.raises(InputError, match="1 of 1 questions have no labels"):
        score(RexTime(), items, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vid": None}, "record qvh_val0: vid: "),
        ({"relevant_windows": "[[78, 108]]"}, "record qvh_val0: relevant_windows: "),
        ({"relevant_windows": [[78, "108"]]}, r"record qvh_val0: relevant_windows\.0\.1: "),
        ({"relevant_windows": [[78]]}, r"record qvh_val0: relevant_windows\.0: "),
        ({"duration": float("nan")}, "record qvh_val0: duration: .*finite"),
        ({"ans": "E"}, "record qvh_val0: ans: 'E' is none of A, B, C, D"),
        ({"qid": "anet_val0"}, "qid occurs twice: anet_val0"),
    ],
)
def test_damaged_annotations(tmp_path, change, message):
    changed = rows(REPOSITORY)
    changed[1].update(change)
    with pytest.raises(InputError, match=message):
        RexTime().read(write(tmp_path / "rextime_val.jsonl", changed))


def test_rows_of_another_benchmark(tmp_path):
    mixed = [*rows(REPOSITORY), {"uid": "7", "question": "Which?", "answer": "B"}]
    with pytest.raises(InputError, match=r"record number 3: qid: Field required. Its fields are uid, question, answer"):
        RexTime().read(write(tmp_path / "rextime_val.jsonl", mixed))
    with pytest.raises(InputError, match=r"no rextime_val\.jsonl"):
        RexTime().read(tmp_path / "..")


@needs_real_data
def test_500_random_predictions_over_the_real_annotations(tmp_path):
    draw = random.Random(11)
    chosen = draw.sample(rows(Path(REALDATA or "") / "rextime" / "rextime_val.jsonl"), 500)
    submitted, ious, right = [], [], []
    for row in chosen:
        (begin, end), length = row["relevant_windows"][0], row["duration"]
        free = sorted(draw.uniform(0, length) for _ in range(2))
        near = [begin + draw.uniform(-4, 4), end + draw.uniform(-4, 4)]
        window = draw.choice([free, near, near, [end, begin], [begin, begin]])
        answer = draw.choice("ABCD")
        submitted.append({"qid": row["qid"], "pred_relevant_windows": [window, [begin, end]], "ans": answer})
        shared = min(end, window[1]) - max(begin, window[0])
        ious.append(shared / (max(end, window[1]) - min(begin, window[0])) if shared > 0 else 0.0)
        right.append(answer == row["ans"])
    draw.shuffle(submitted)
    data = write(tmp_path / "rextime_val.jsonl", chosen)
    found = score_file(RexTime(), data, write(tmp_path / "s.jsonl", submitted))
    both = [a and iou >= 0.5 for a, iou in zip(right, ious, strict=True)]
    assert found.official == {
        "mIoU": round(100 * sum(ious) / 500, 2),
        "R1@0.3": round(sum(iou >= 0.3 for iou in ious) / 5, 2),
        "R1@0.5": round(sum(iou >= 0.5 for iou in ious) / 5, 2),
        "Acc": pytest.approx(sum(right) / 500, abs=1e-9),
        "Acc@IoU0.5": pytest.approx(sum(both) / 500, abs=1e-9),
    }
    assert found.strict["mIoU"] == pytest.approx(sum(ious) / 500, abs=1e-9)
