"""ActivityNet-RTL against its authors' rules, written down a second time."""

import json
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.benchmarks.scoring import FIXTURES, replies, score, score_file, write
from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Prediction
from vrjax.evaluation.benchmarks.activitynet_rtl import ActivityNetRtl, union_iou

RTL = ActivityNetRtl()
VAL, TRAIN = FIXTURES / "activitynet_rtl_annot_val.json", FIXTURES / "activitynet_rtl_train.json"


def by_the_rules(rows: list[dict], texts: dict[str, str]) -> dict[str, float]:
    """Seconds between angle brackets, digits alone; the whole video where there are not two; means of video means."""

    def span(text: str, duration: float) -> tuple[float, float]:
        times = [float(one) for one in re.findall(r"<([0-9]+\.?|[0-9]*\.[0-9]+)>", text)][:2]
        clamped = [min(max(one, 0), duration) for one in times]
        return (min(clamped), max(clamped)) if len(clamped) == 2 else (0, duration)

    videos: dict[str, list[float]] = {}
    for row in rows:
        (a, b), (c, d) = (span(text, row["duration"]) for text in (texts[row["question_id"]], row["answer"]))
        shared = max(min(b, d) - max(a, c), 0)
        total = (b - a) + (d - c) - shared
        videos.setdefault(row["vid"], []).append(shared / total if total else 0.0)
    flat = [iou for ious in videos.values() for iou in ious]
    return {
        "mIoU": float(np.mean([np.mean(ious) for ious in videos.values()])),
        "P@0.5": float(np.mean([np.mean([iou >= 0.5 for iou in ious]) for ious in videos.values()])),
        "mIoU items": float(np.mean(flat)),
        "P@0.5 items": float(np.mean([iou >= 0.5 for iou in flat])),
    }


@pytest.mark.parametrize(
    ("text", "official", "strict"),
    [
        ("<10.0> <20> The man jumps", 0.6, 0.6),
        ("The man jumps", 0.1, 0),
        ("<10> <999> x", 0.12, 0.12),
        ("<-5> <10> x", 0.1, 0),
        ("<10.5s> <20> x", 0.1, 0),
        ("<20> <10> x", 0.6, 0.6),
        ("From 10 to 20 seconds.", 0.1, 0.6),
    ],
)
def test_one_question(tmp_path, text, official, strict):
    row = {"question_id": "v_0", "vid": "v", "duration": 60, "question": "When?", "answer": "<12> <18> He jumps."}
    items = RTL.read(write(tmp_path / "q.json", [row]))
    found = score(RTL, items, replies({"v_0": text}))
    assert found.official["mIoU"] == pytest.approx(official)
    assert found.strict["mIoU"] == pytest.approx(strict)
    assert found.coverage == float(strict > 0)


def test_fixture_means():
    """Two questions about one video, one about another: the official mean weighs videos, ours questions."""
    texts = {"AAAAAAAAAAA_0": "<12.5> <20>", "AAAAAAAAAAA_1": "<0> <10>", "BBBBBBBBBBB_0": "no idea"}
    found = score(RTL, RTL.read(VAL), replies(texts))
    whole = 5.25 / 30
    assert found.official["mIoU"] == pytest.approx(((1 + 0) / 2 + whole) / 2)
    assert found.official["mIoU items"] == pytest.approx((1 + 0 + whole) / 3)
    assert found.official["P@0.5"] == pytest.approx(0.25)
    assert found.official["P@0.5 items"] == pytest.approx(1 / 3)
    assert found.strict == pytest.approx({"mIoU": 1 / 3, "P@0.5": 1 / 3})
    assert found.failures == {"no span": 1}


@given(*(st.integers(0, 30) for _ in range(4)))
def test_iou_by_counting_seconds(a, b, c, d):
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    ours, theirs = set(range(*first)), set(range(*second))
    assert union_iou(first, second) == pytest.approx(len(ours & theirs) / len(ours | theirs) if ours | theirs else 0)


def test_random_replies(tmp_path):
    draw = random.Random(3)
    rows, texts = [], {}
    for video in range(60):
        duration = round(draw.uniform(10, 200), 2)
        for number in range(draw.randrange(1, 6)):
            begin, end = sorted(draw.uniform(0, duration) for _ in range(2))
            name = f"v{video}_{number}"
            rows.append({"question_id": name, "vid": f"v{video}", "duration": duration, "question": "When?",
                         "answer": f"<{begin:.1f}> <{end:.1f}> because"})  # fmt: skip
            one, two = draw.uniform(0, duration * 1.2), draw.uniform(0, duration * 1.2)
            texts[name] = draw.choice(
                [f"<{one:.1f}> <{two:.2f}> x", f"<{one:.0f}.> to <.5> <7>", "", f"<{one:.1f}s> <{two:.1f}>",
                 f"{one:.1f} to {two:.1f}", f"x<{begin:.1f}>y<{end:.1f}>"]
            )  # fmt: skip
    items = RTL.read(write(tmp_path / "annot_val.json", rows))
    found = score(RTL, items, replies(texts))
    assert found.official == pytest.approx(by_the_rules(rows, texts), abs=1e-9)


def test_reading(tmp_path):
    items = RTL.read(VAL)
    assert [item.id for item in items] == ["AAAAAAAAAAA_0", "AAAAAAAAAAA_1", "BBBBBBBBBBB_0"]
    assert items[0].video_file == "v_AAAAAAAAAAA"
    assert items[2].reference == {"spans": [(0, 5.25)], "explanation": "It lies on the mat."}
    assert RTL.read(FIXTURES) == items
    (train,) = RTL.read(TRAIN)
    assert (train.id, train.video, train.video_file) == ("CCCCCCCCCCC_0", "CCCCCCCCCCC", "v_CCCCCCCCCCC")
    asked = ActivityNetRtl(localisation_only=False).read(TRAIN)
    assert [item.reference is None for item in asked] == [False, True]
    assert RTL.question(items[1]).startswith("When would one need a towel?\n")


def test_submission(tmp_path):
    texts = {
        "AAAAAAAAAAA_0": "<12.5> <20> She talks.",
        "AAAAAAAAAAA_1": "From 70 to 80.5 s.",
        "BBBBBBBBBBB_0": "I do not know.",
    }
    items = RTL.read(VAL)
    found = score(RTL, items, replies(texts))
    path = tmp_path / "answers.json"
    RTL.write_submission(path, items, replies(texts))
    rows = json.loads(path.read_text())
    assert set(rows[0]) == {"question_id", "prompt", "text_out", "text_gnd", "answer_id", "model_id", "metadata"}
    assert rows[0]["text_out"] == "She talks."
    assert rows[0]["metadata"] == {"timestamps": [12.5, 20]}
    assert rows[0]["text_gnd"] == "She talks to the camera with her hands still."
    again = score_file(RTL, VAL, path)
    assert again.official == found.official
    assert again.strict == found.strict
    assert again.failures == found.failures
    for row in rows:
        row["metadata"] = {}
        row["text_out"] = "She talks."
    with pytest.raises(InputError, match="no answer has times"):
        RTL.read_submission(write(path, rows), items)


def test_times_without_a_reply_are_official_times():
    """As an agent gives them: numbers, no text."""
    found = score(RTL, RTL.read(VAL), [Prediction(id="AAAAAAAAAAA_0", parsed={"spans": [[20, 12.5]]})])
    assert found.items[0].values["mIoU"] == 1
    assert found.official["P@0.5"] == 0.25
    assert found.failures == {"missing": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"duration": "80"}, "record AAAAAAAAAAA_1: duration: "),
        ({"duration": float("inf")}, "record AAAAAAAAAAA_1: duration: "),
        ({"answer": "<12> and so on"}, "record AAAAAAAAAAA_1: answer: fewer than two <seconds>"),
        ({"question_id": "AAAAAAAAAAA_0"}, "question_id occurs twice: AAAAAAAAAAA_0"),
    ],
)
def test_damaged_annotations(tmp_path, change, message):
    rows = json.loads(VAL.read_text())
    rows[1].update(change)
    with pytest.raises(InputError, match=message):
        RTL.read(write(tmp_path / "annot_val.json", rows))


def test_labels_are_needed_to_score_only(tmp_path):
    rows = json.loads(VAL.read_text())
    for row in rows:
        del row["answer"]
    items = RTL.read(write(tmp_path / "annot_val.json", rows))
    RTL.write_submission(tmp_path / "a.json", items, replies({"AAAAAAAAAAA_0": "<1> <2> x"}))
    assert json.loads((tmp_path / "a.json").read_text())[0]["text_gnd"] == ""
    with pytest.raises(InputError, match="3 of 3 questions have no labels"):
        score(RTL, items, [])
