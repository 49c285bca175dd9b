"""LVBench against its authors' rules, written down a second time."""

import json
import random

import pytest

from tests.evaluation.benchmarks.scoring import FIXTURES, replies, score, score_file, write
from vrjax.errors import InputError
from vrjax.evaluation.benchmarks.lvbench import LvBench, split_options

META, ANSWERS = FIXTURES / "lvbench_video_info.meta.jsonl", FIXTURES / "lvbench_answers.json"


def test_fixture():
    found = score_file(LvBench(), FIXTURES, ANSWERS)
    assert found.official == {
        "accuracy": 0.5,
        "entity recognition": 1,
        "event understanding": 1,
        "key information retrieval": 0,
    }
    assert found.strict == {"accuracy": 0.5}
    assert found.by_type["event understanding"] == {"n": 1, "accuracy": 1}
    assert found.coverage == 1


def test_reading():
    first, second = LvBench().read(META)
    assert (first.id, first.video, first.types) == ("7", "AAAAAAAAAAA", ("entity recognition", "event understanding"))
    assert first.question == "Which animal opens the gate?"
    assert first.options == {"A": "a goat", "B": "a heron", "C": "a dog", "D": "a mule"}
    assert first.duration == pytest.approx(61.2 * 60)
    assert first.reference == {"choice": "B", "spans": [(725, 751)]}
    assert second.reference == {"choice": "D", "spans": [(3520, 3602)]}
    assert (
        LvBench()
        .question(first)
        .startswith("Which animal opens the gate?\n(A) a goat\n(B) a heron\n(C) a dog\n(D) a mule\n")
    )


def test_options_that_are_no_list():
    assert split_options("Which?\n(A) a\nb\n(B)c")[1] == {"A": "a\nb", "B": "c"}
    for odd in ("Which? (A) a (B) b", "Which?\n(A) a\n(C) c", "Which?"):
        assert split_options(odd) == (odd, {"A": "", "B": "", "C": "", "D": ""})


def test_a_question_whose_options_cannot_be_split_is_put_whole(tmp_path):
    video = json.loads(META.read_text())
    video["qa"][0]["question"] = "Which one? A: a goat B: a heron"
    first, _ = LvBench().read(write(tmp_path / "video_info.meta.jsonl", [video]))
    assert LvBench().question(first).startswith("Which one? A: a goat B: a heron\n")
    assert LvBench().parse(first, "Answer: B").values == {"choice": "B"}


def test_a_run_with_a_transcript_is_refused():
    LvBench().admit()
    with pytest.raises(InputError, match="lvbench: its rules allow neither audio nor transcripts"):
        LvBench().admit(transcript=True)


def test_random_answers(tmp_path):
    draw = random.Random(5)
    kinds = ["entity recognition", "event understanding", "reasoning", "summarization"]
    videos, answers = [], {}
    hits: dict[str, list[bool]] = {}
    strict = []
    for number in range(30):
        qa = []
        for place in range(draw.randrange(1, 9)):
            uid = 100 * number + place
            entry = {
                "uid": uid,
                "question": "Which?\n(A) a\n(B) b\n(C) c\n(D) d",
                "answer": draw.choice("ABCD"),
                "question_type": draw.sample(kinds, draw.randrange(1, 4)),
                "time_reference": "00:15-00:19",
            }
            qa.append(entry)
            given = draw.choice(["A", "B", "C", "D", "b", "", None])
            strict.append(given == entry["answer"])
            if given is not None:
                answers[str(uid)] = given
                for kind in ["accuracy", *entry["question_type"]]:
                    hits.setdefault(kind, []).append(given == entry["answer"])
        videos.append({"key": f"v{number}", "qa": qa})
    data = write(tmp_path / "video_info.meta.jsonl", videos)
    found = score_file(LvBench(), data, write(tmp_path / "a.json", answers))
    assert found.official == pytest.approx({kind: sum(hit) / len(hit) for kind, hit in hits.items()}, abs=1e-9)
    assert found.strict["accuracy"] == pytest.approx(sum(strict) / len(strict), abs=1e-9)
    assert found.official["accuracy"] > found.strict["accuracy"]
    assert sum(found.failures.values()) == round((1 - found.coverage) * len(strict))
    assert set(found.failures) == {"missing", "no choice", "not an option"}


def test_held_out_questions(tmp_path):
    benchmark = LvBench(held_out=write(tmp_path / "held_out.txt", "7\n"))
    found = score_file(benchmark, META, ANSWERS)
    assert [item.id for item in found.items] == ["8"]
    assert found.official["accuracy"] == 0


def test_replies(tmp_path):
    items = LvBench().read(META)
    texts = {"7": "The heron, so (B).", "8": "Many lanterns."}
    found = score(LvBench(), items, replies(texts))
    assert found.official["accuracy"] == 1
    assert found.strict["accuracy"] == found.coverage == 0.5
    assert found.failures == {"no choice": 1}
    LvBench().write_submission(tmp_path / "a.json", items, replies(texts))
    assert json.loads((tmp_path / "a.json").read_text()) == {"7": "B"}
    assert score_file(LvBench(), META, tmp_path / "a.json").official == found.official


def test_labels_are_needed_to_score_only(tmp_path):
    video = json.loads(META.read_text())
    del video["qa"][1]["answer"]
    items = LvBench().read(write(tmp_path / "video_info.meta.jsonl", [video]))
    LvBench().write_submission(tmp_path / "a.json", items, replies({"8": "D"}))
    assert json.loads((tmp_path / "a.json").read_text()) == {"8": "D"}
    with pytest.raises(InputError, match=r"1 of 2 questions have no labels here \(8\)"):
        score(LvBench(), items, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question_type": "reasoning"}, r"record AAAAAAAAAAA: qa\.1\.question_type: "),
        ({"answer": "E"}, "record 8: answer: 'E' is none of A, B, C, D"),
        ({"uid": 7}, "uid occurs twice: 7"),
    ],
)
def test_damaged_annotations(tmp_path, change, message):
    video = json.loads(META.read_text())
    video["qa"][1].update(change)
    with pytest.raises(InputError, match=message):
        LvBench().read(write(tmp_path / "video_info.meta.jsonl", [video]))
