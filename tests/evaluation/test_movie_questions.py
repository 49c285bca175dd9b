"""Questions about movie clips in each form that they come in."""

import json
import os
from pathlib import Path

import pytest

from vrjax.errors import InputError
from vrjax.evaluation.movie_questions import clip_name, load_movie_folder, load_movie_questions, match_questions

FIXTURES = Path(__file__).parent.parent / "fixtures"


def written(folder, value, name="questions.json"):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_moviecore():
    first, second, third = load_movie_questions(FIXTURES / "moviecore_predictions.json")
    assert [one.id for one in (first, second, third)] == ["clip-a_1", "clip-a_2", "clip-b_1"]
    assert (first.video, first.video_file) == ("clip-a", "clip-a.mp4")
    assert first.classes == ("Causal", "Character")
    assert first.pred == "He wants to keep the peace.</s>"
    assert second.answer == "The gale grows as the voices do, and both stop when the lamp fails."
    assert (third.pred, third.answer) == ("", "The two crews would have met sooner.")


def test_moviechat_as_hermes_has_it():
    first, second = load_movie_questions(FIXTURES / "hermes_moviechat_annotation.json")
    assert (first.id, first.video, first.answer, first.duration) == ("clip-a_1", "clip-a", "Yes.", 480)
    assert (second.id, second.duration, second.classes) == ("clip-a_2", 480, ("Made-up Film",))
    assert first.pred is None


def test_a_clip_of_moviechat():
    *asked, moment = load_movie_questions(FIXTURES / "moviechat_1k_clip-a.json")
    assert [(one.id, one.question, one.time) for one in asked] == [
        ("clip-a_1", "Is it set by the sea?", None),
        ("clip-a_2", "Day or night?", None),
        ("clip-a_3", "How many keepers are there?", None),
    ]
    assert (moment.id, moment.time, moment.duration) == ("clip-a_breakpoint_1", 60, 480)  # frame 1500 of 25 a second


def test_a_list_and_questions_by_id_are_the_same_questions(tmp_path):
    rows = [
        {"video": "a.mp4", "question": "One?", "answer": "1", "classification": "X"},
        {"video_id": "b", "question": "Two?", "answer": "2"},
        {"video": "clips/a.mp4", "question": "Three?", "answer": "3", "question_id": "mine"},
    ]
    listed = load_movie_questions(written(tmp_path, rows))
    assert [(one.id, one.video, one.question) for one in listed] == [
        ("a_1", "a", "One?"), ("b_1", "b", "Two?"), ("mine", "a", "Three?"),
    ]  # fmt: skip
    by_id = load_movie_questions(written(tmp_path, dict(zip(["x", "y", "mine"], rows, strict=True))))
    assert [(one.id, one.video) for one in by_id] == [("x", "a"), ("y", "b"), ("mine", "a")]
    lines = load_movie_questions(written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "rows.jsonl"))
    assert lines == listed


def test_a_folder_of_clips_or_of_splits(tmp_path):
    clip = json.loads((FIXTURES / "moviechat_1k_clip-a.json").read_text())
    for name in ("clip-b", "clip-a"):
        written(tmp_path, {**clip, "info": {**clip["info"], "video_path": f"{name}.mp4"}}, f"{name}.json")
    assert [one.id for one in load_movie_folder(tmp_path, "test")][::4] == ["clip-a_1", "clip-b_1"]
    written(tmp_path, {"c.mp4": [{"question": "Q?", "answer": "A"}]}, "test.json")
    assert [one.id for one in load_movie_folder(tmp_path, "test")] == ["c_1"]
    with pytest.raises(InputError, match=r"no test\.json"):
        load_movie_folder(tmp_path / "nowhere", "test")


def test_names_of_clips():
    assert [clip_name(name) for name in ("a.mp4", "x/a.b.MKV", "AWD-3", "1.5", "a.mp4.mp4")] == [
        "a", "a.b", "AWD-3", "1.5", "a.mp4",
    ]  # fmt: skip


QUESTION = {"question": "Q?", "answer": "A", "classification": "X"}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, "holds no questions"),
        ([], "holds no questions"),
        ("7", "is in no form"),
        ({"a.mp4": [QUESTION], "b": QUESTION}, "is in no form"),
        ({"a.mp4": "text"}, "is in no form"),
        ({"a.mp4": ["text"]}, r"a\.mp4 number 1: is str, not an object"),
        ({"a.mp4": [QUESTION, {"answer": "A"}]}, r"a\.mp4 number 2: question: Field required"),
        ({"a.mp4": [{**QUESTION, "question": " "}]}, r"a\.mp4 number 1: question: "),
        ({"a.mp4": [{**QUESTION, "answer": ["A"]}]}, r"a\.mp4 number 1: answer: "),
        ({"a.mp4": [{**QUESTION, "pred": 5}]}, r"a\.mp4 number 1: pred: "),
        ({"a.mp4": [{**QUESTION, "classification": ["X"]}]}, r"classification: "),
        ({"a.mp4": [{**QUESTION, "enhanced_answer": [{"role": "user"}]}]}, r"enhanced_answer.*content"),
        ([QUESTION], "number 1: video: is missing"),
        ([{**QUESTION, "video": "a", "id": "x"}] * 2, "ids occur twice: x"),
        ({"x": {**QUESTION, "video": "a", "question_id": "y"}}, "record x: question_id: is 'y'"),
        ('{"a.mp4": [], "a.mp4": []}', "the key 'a.mp4' occurs twice"),
        ({"x": {**QUESTION, "video": "a", "fps": 0, "frame_length": 5}}, "record x: fps: "),
        ({"info": {"fps": 25}, "global": []}, "video_path"),
        ({"info": {"video_path": "a.mp4", "fps": 25}, "breakpoint": [QUESTION]}, "breakpoint 1: time: is missing"),
        ({"info": {"video_path": "a.mp4"}, "breakpoint": [{**QUESTION, "time": 5}]}, "info.fps: is missing"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_record_and_field(tmp_path, value, sentence):
    path = written(tmp_path, value)
    with pytest.raises(InputError, match=sentence) as raised:
        load_movie_questions(path)
    assert str(path) in str(raised.value)


def test_answers_are_found_by_wording_though_one_was_left_out(tmp_path):
    """The n-th row of a file need not be the n-th question (VLMEvalKit's mistake)."""
    known = [("a_1", "a", "One?"), ("a_2", "a", "Two?"), ("a_3", "a", "Same?"), ("a_4", "a", "Same?")]
    rows = load_movie_questions(
        written(tmp_path, {"a.mp4": [{"question": "Two?", "pred": "2"}, {"question": " Same? ", "pred": "3"},
                                     {"question": "Same?", "pred": "4"}]})
    )  # fmt: skip
    found = match_questions(rows, known, "file")
    assert {name: row.pred for name, row in found.items()} == {"a_2": "2", "a_3": "3", "a_4": "4"}
    with pytest.raises(InputError, match="answered more than once: a_2, a_3"):
        match_questions(rows, known[:3], "file")
    with pytest.raises(InputError, match="no such questions: a_1"):
        match_questions(rows, known[2:], "file")


@pytest.mark.skipif("VRJAX_REALDATA" not in os.environ, reason="VRJAX_REALDATA is not set")
@pytest.mark.parametrize(("split", "questions", "videos"), [("train", 4080, 816), ("test", 510, 170)])
def test_moviechat_as_released(split, questions, videos):
    found = load_movie_folder(Path(os.environ["VRJAX_REALDATA"]) / "moviechat", split)
    assert (len(found), len({one.video for one in found})) == (questions, videos)
    assert all(one.answer and one.duration and one.classes for one in found)
