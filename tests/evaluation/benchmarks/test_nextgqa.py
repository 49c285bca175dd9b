"""NExT-GQA against its authors' rules, written down a second time, and against values that their scorer printed."""

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
from vrjax.evaluation.benchmarks.nextgqa import NextGqa, best_overlaps, overlaps

VAL = NextGqa(split="val")


def by_the_rules(labels: dict, spans: dict, answers: dict | None) -> dict[str, float]:
    """Official grounding values from the raw files: one entry for each labelled question that has a span."""
    ious, iops, joint = [], [], []
    for video, entry in labels.items():
        for question, references in entry["location"].items():
            name = f"{video}_{question}"
            if name not in spans:
                continue
            first, last = spans[name][0], spans[name][-1]
            iou = iop = 0.0
            for begin, end in references:
                shared = min(end, last) - max(begin, first)
                if first == last:
                    iop = max(iop, 1.0 if begin <= first <= end else 0.0)
                elif last > first:
                    iou = max(iou, shared / (max(end, last) - min(begin, first)))
                    iop = max(iop, shared / (last - first))
            ious.append(iou)
            iops.append(iop)
            row = (answers or {}).get(name, {"answer": 0, "prediction": None})
            joint.append(iop >= 0.5 and row["answer"] == row["prediction"])

    def share(hits: list[bool]) -> float:
        return 100 * sum(hits) / len(ious)

    return {
        "Acc@GQA": share(joint),
        "mIoP": 100 * sum(iops) / len(iops),
        "IoP@0.3": share([iop >= 0.3 for iop in iops]),
        "IoP@0.5": share([iop >= 0.5 for iop in iops]),
        "mIoU": 100 * sum(ious) / len(ious),
        "IoU@0.3": share([iou >= 0.3 for iou in ious]),
        "IoU@0.5": share([iou >= 0.5 for iou in ious]),
    }


@pytest.fixture
def submission(tmp_path) -> Path:
    folder = tmp_path / "submission"
    folder.mkdir()
    shutil.copy(FIXTURES / "nextgqa_pred_qa.json", folder / "val-res.json")
    shutil.copy(FIXTURES / "nextgqa_pred_ground.json", folder / "val_ground.json")
    return folder


# By hand: 2–6 against 1.2–5.8 overlaps 3.8 of hull 4.8 and length 4; the point 13 lies in the second reference of 3.
def test_fixture(submission):
    found = score_file(VAL, FIXTURES, submission)
    assert round(found.official["Acc@GQA"], 1) == 50.0
    assert round(found.official["mIoP"], 1) == 97.5
    assert round(found.official["mIoU"], 1) == 39.6
    assert found.official["mIoU"] == pytest.approx(100 * (3.8 / 4.8) / 2, abs=1e-9)
    assert found.official["IoP@0.5"] == 100
    assert found.official["IoU@0.5"] == 50
    assert found.official["Acc@QA"] == 50
    assert found.official["Acc@QA CW"] == 100
    assert found.official["Acc@QA TN"] == 0
    assert found.strict["Acc@GQA"] == 0.5
    assert found.strict["mIoP"] == pytest.approx(0.975)
    assert found.coverage == 1
    assert found.by_type["CW"]["n"] == found.by_type["T"]["n"] == 1
    assert found.by_type["CW"]["Acc@GQA"] == 1
    assert found.by_type["TN"]["Acc@GQA"] == 0
    assert found.intervals["mIoP"].mean == pytest.approx(0.975)
    assert [item.video for item in found.items] == ["1000000001"] * 2


def test_reading():
    first, second = VAL.read(FIXTURES)
    assert (first.id, first.video_file, first.duration) == ("1000000001_1", "0101/1000000001", 34)
    assert first.reference == {"choice": "B", "spans": [(1.2, 5.8)]}
    assert second.reference == {"choice": "A", "spans": [(-0.1, 4.0), (12.1, 17.1), (29.7, 34.4)]}
    assert second.options["C"] == "sang, then sat"
    assert VAL.read(FIXTURES / "nextgqa_val.csv") == [first, second]
    text = VAL.question(second)
    assert "(C) sang, then sat" in text
    assert text.startswith("what did the girl do after lifting the box\n(A) ran off\n")


@pytest.mark.parametrize(
    ("prediction", "iou", "iop"),
    [
        ((12, 15), 0.3, 1.0),
        ((5, 15), 1 / 3, 0.5),
        ((15, 15), 0.0, 1.0),
        ((25, 25), 0.0, 0.0),
        ((15, 12), -0.3, 0.0),
        ((10, 20), 1.0, 1.0),
    ],
)
def test_overlaps_known(prediction, iou, iop):
    assert overlaps((10, 20), prediction) == pytest.approx((iou, iop))
    assert best_overlaps([(10, 20)], prediction) == pytest.approx((max(iou, 0), max(iop, 0)))


@given(*(st.integers(0, 30) for _ in range(4)))
def test_overlaps_by_counting_seconds(a, b, c, d):
    """Whole seconds counted one by one."""
    reference, prediction = (min(a, b), max(a, b) + 1), (min(c, d), max(c, d) + 1)
    ours, theirs = set(range(*prediction)), set(range(*reference))
    hull = range(min(ours | theirs), max(ours | theirs) + 1)
    assert best_overlaps([reference], prediction) == pytest.approx(
        (len(ours & theirs) / len(hull), len(ours & theirs) / len(ours))
    )


def test_official_leaves_out_questions_without_a_span_and_strict_does_not(tmp_path):
    only = write(tmp_path / "s" / "val_ground.json", {"1000000001_1": [1.2, 5.8]}).parent
    write(only / "val-res.json", {"1000000001_1": {"answer": 1, "prediction": 1}, "1000000001_3": {"prediction": 0}})
    found = score_file(VAL, FIXTURES, only)
    assert found.official["mIoU"] == found.official["Acc@GQA"] == 100
    assert found.strict["mIoU"] == found.strict["Acc@GQA"] == 0.5
    assert found.strict["Acc@QA"] == 1
    assert found.coverage == 0.5
    assert found.failures == {"no span": 1}
    assert any("without a predicted span" in quirk for quirk in found.quirks)


def test_a_span_inside_the_reference_is_grounded_however_short(tmp_path):
    """Acc@GQA asks for IoP, not IoU."""
    write(tmp_path / "val_ground.json", {"1000000001_1": [2.0, 2.5], "1000000001_3": [0.0, 34.0]})
    write(tmp_path / "val-res.json", {"1000000001_1": {"prediction": 1}, "1000000001_3": {"prediction": 0}})
    found = score_file(VAL, FIXTURES, tmp_path)
    assert [item.values["Acc@GQA"] for item in found.items] == [1, 0]
    assert found.official["Acc@GQA"] == 50
    assert found.items[0].values["IoU@0.3"] == 0


def test_before_and_after_are_one_class(tmp_path):
    for file in ("val.csv", "gsub_val.json"):
        shutil.copy(FIXTURES / f"nextgqa_{file}", tmp_path / file)
    write(tmp_path / "val.csv", (tmp_path / "val.csv").read_text().replace(",CW,", ",TP,"))
    assert [item.types for item in VAL.read(tmp_path)] == [("TN", "T")] * 2


def test_official_believes_the_answers_in_the_file(tmp_path):
    spans = write(tmp_path / "s" / "val_ground.json", {"1000000001_1": [2, 5], "1000000001_3": [0, 3]}).parent
    claims = {"1000000001_1": {"answer": 4, "prediction": 4}, "1000000001_3": {"answer": 0, "prediction": 0}}
    write(spans / "val-res.json", claims)
    found = score_file(VAL, FIXTURES, spans)
    assert found.official["Acc@QA"] == found.official["Acc@GQA"] == 100
    assert found.strict["Acc@QA"] == found.strict["Acc@GQA"] == 0.5
    assert found.quirks[-1].endswith("1000000001_1.")


def test_without_a_file_of_options_there_is_no_official_accuracy(tmp_path):
    found = score_file(VAL, FIXTURES, write(tmp_path / "val_ground.json", {"1000000001_1": [2, 5]}))
    assert "Acc@QA" not in found.official
    assert found.official["Acc@GQA"] == 0  # as their scorer prints it
    assert found.official["mIoP"] == 100
    assert found.failures == {"no choice": 1, "missing": 1}


def test_reversed_and_longer_spans(tmp_path):
    path = write(tmp_path / "val_ground.json", {"1000000001_1": [5.8, 1.2], "1000000001_3": [12.1, 99, 17.1]})
    found = score_file(VAL, FIXTURES, path)
    assert [item.values["mIoU"] for item in found.items] == [0, 1]
    assert found.items[0].failure == "no choice"


def test_fractions_of_the_duration(tmp_path):
    path = write(tmp_path / "val_ground_gs.json", {"1000000001_1": [0.1, 0.2], "1000000001_3": [0.5, 0.75]})
    benchmark = NextGqa(split="val", fractions=True)
    found = benchmark.read_submission(path, benchmark.read(FIXTURES))
    assert [one.parsed["spans"] for one in found] == [[(3.4, 6.8)], [(17.0, 25.5)]]


def test_rows_with_options_and_times_together(tmp_path):
    row = {"prediction": 1, "answer": 1, "location": [1.2, 3.0, 5.8]}
    found = score_file(VAL, FIXTURES, write(tmp_path / "test_ground.json", {"1000000001_1": row}))
    assert found.items[0].values["Acc@GQA"] == found.items[0].values["mIoU"] == 1


def test_replies(tmp_path):
    items = VAL.read(FIXTURES)
    texts = {"1000000001_1": "Answer: B\nTime: 1.2 to 5.8", "1000000001_3": "He ran off, from 0 to 4 seconds."}
    found = score(VAL, items, replies(texts))
    assert found.items[0].values["Acc@GQA"] == 1
    assert found.items[1].values["mIoU"] == pytest.approx(4 / 4.1)
    assert found.failures == {"no choice": 1}
    VAL.write_submission(tmp_path / "s", items, replies(texts))
    answers = json.loads((tmp_path / "s" / "val-res.json").read_text())
    assert answers == {
        "1000000001_1": {"answer": 1, "prediction": 1},
        "1000000001_3": {"answer": 0, "prediction": -1},
    }
    again = score_file(VAL, FIXTURES, tmp_path / "s")
    assert again.official == found.official
    assert again.strict == found.strict


def test_labels_are_needed_to_score_only(tmp_path):
    shutil.copy(FIXTURES / "nextgqa_val.csv", tmp_path / "val.csv")
    items = VAL.read(tmp_path)
    VAL.write_submission(tmp_path / "s", items, replies({items[0].id: "Answer: C\nTime: 1 to 2"}))
    assert json.loads((tmp_path / "s" / "val-res.json").read_text())[items[0].id] == {"prediction": 2}
    with pytest.raises(InputError, match="2 of 2 questions have no labels"):
        score(VAL, items, [])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("val.csv", "video_id,question,qid\n1,why,2\n", "record line 2: type"),
        ("val.csv", "video_id,qid,question,type,answer,a0,a1,a2,a3,a4\n", "no rows below its header"),
        ("gsub_val.json", {"1000000001": {"duration": 34, "location": {"1": ["1.2", 5.8]}}}, r"location\.1\.0"),
        ("gsub_val.json", {"1000000001": {"duration": 34, "location": {"1": [[1.2, None]]}}}, r"location\.1\.0\.1"),
        ("gsub_val.json", {"1000000001": {"location": {}}}, "record 1000000001: duration: Field required"),
    ],
)
def test_damaged_annotations(tmp_path, name, content, message):
    for file in ("val.csv", "gsub_val.json"):
        shutil.copy(FIXTURES / f"nextgqa_{file}", tmp_path / file)
    write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        VAL.read(tmp_path)


def test_an_answer_that_is_no_option(tmp_path):
    for file in ("val.csv", "gsub_val.json"):
        shutil.copy(FIXTURES / f"nextgqa_{file}", tmp_path / file)
    text = (tmp_path / "val.csv").read_text()
    write(tmp_path / "val.csv", text.replace(",look under it,1", ",look over it,1"))
    with pytest.raises(InputError, match="record 1000000001_1: answer: 'look over it' is none of a0 to a4"):
        VAL.read(tmp_path)
    write(tmp_path / "val.csv", text + text.splitlines()[1] + "\n")
    with pytest.raises(InputError, match="occurs twice: 1000000001_1"):
        VAL.read(tmp_path)


def test_two_files_of_one_kind(submission):
    shutil.copy(submission / "val_ground.json", submission / "val_ground_ada.json")
    with pytest.raises(InputError, match="record 1000000001_1: spans stands in two files"):
        VAL.read_submission(submission, VAL.read(FIXTURES))


@needs_real_data
@pytest.mark.parametrize("split", ["val", "test"])
def test_500_random_predictions_over_the_real_annotations(tmp_path, split):
    data = Path(REALDATA or "") / "nextgqa"
    labels = json.loads((data / f"gsub_{split}.json").read_text())
    draw = random.Random(7)
    every = [(video, question) for video, entry in labels.items() for question in entry["location"]]
    spans, answers = {}, {}
    for video, question in every:
        answers[f"{video}_{question}"] = {"answer": draw.randrange(5), "prediction": draw.randrange(-1, 6)}
    for video, question in draw.sample(every, 500):
        begin, end = draw.choice(labels[video]["location"][question])
        shift = [draw.uniform(-5, 5), draw.uniform(-5, 5)]
        near = [round(begin + shift[0], 1), round(end + shift[1], 1)]
        spans[f"{video}_{question}"] = draw.choice([near, near, [end, begin], [begin, begin], [begin, end]])
    write(tmp_path / f"{split}_ground.json", spans)
    write(tmp_path / f"{split}-res.json", answers)
    found = score_file(NextGqa(split=split), data, tmp_path)
    for name, value in by_the_rules(labels, spans, answers).items():
        assert found.official[name] == pytest.approx(value, abs=1e-9), name
    agreeing = [row["answer"] == row["prediction"] for row in answers.values()]
    assert found.official["Acc@QA"] == pytest.approx(100 * sum(agreeing) / len(agreeing), abs=1e-9)
    share = len(spans) / len(every)
    assert found.strict["mIoU"] == pytest.approx(found.official["mIoU"] / 100 * share)
    assert found.intervals["mIoU"].low < found.strict["mIoU"] < found.intervals["mIoU"].high
    assert sum(found.by_type[kind]["n"] for kind in ("C", "T")) == len(every)
