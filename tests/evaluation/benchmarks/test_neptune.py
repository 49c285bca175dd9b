"""Neptune: as many options as a record has, and accuracy."""

import json

import pytest

from tests.evaluation.benchmarks.scoring import FIXTURES, replies, score, score_file, write
from vrjax.errors import InputError
from vrjax.evaluation.benchmarks.neptune import Neptune

FULL = FIXTURES / "neptune_full.json"


def record(**changes) -> dict:
    (row,) = json.loads(FULL.read_text())
    row.update(changes)
    return {key: value for key, value in row.items() if value is not ...}


def test_reading(tmp_path):
    (item,) = Neptune().read(FIXTURES)
    assert (item.id, item.video, item.types) == ("AAAAAAAAAAA/1", "AAAAAAAAAAA", ("Temporal Ordering",))
    assert item.options["E"] == "Saw only."
    assert item.reference == {"choice": "B"}
    rows = [
        record(answer_choice_4=...),
        record(key="x/2", answer_choice_4=None, video_id="https://youtu.be/AAAAAAAAAAA"),
    ]
    four, link = Neptune(subset="mmh").read(write(tmp_path / "neptune_mmh.json", rows).parent)
    assert list(four.options) == list(link.options) == ["A", "B", "C", "D"]
    assert link.video == "AAAAAAAAAAA"
    assert Neptune().parse(four, "Answer: E").failure == "no choice"
    assert Neptune().parse(item, "Answer: E").values == {"choice": "E"}


def test_scoring(tmp_path):
    rows = [record(key=f"v/{n}", answer_id=n % 5, video_id=f"v{n // 2}") for n in range(10)]
    data = write(tmp_path / "neptune_full.json", rows)
    answers = {f"v/{n}": n % 3 for n in range(8)} | {"v/8": 7}
    found = score_file(Neptune(), data, write(tmp_path / "a.json", answers))
    right = sum(n % 3 == n % 5 for n in range(8))
    assert found.official["accuracy"] == found.strict["accuracy"] == right / 10
    assert found.coverage == 0.8
    assert found.failures == {"missing": 1, "not an option": 1}
    assert found.by_type["Temporal Ordering"] == {"n": 10, "accuracy": right / 10}


def test_submission(tmp_path):
    items = Neptune().read(FULL)
    Neptune().write_submission(tmp_path / "a.json", items, replies({"AAAAAAAAAAA/1": "(B) Saw, then file."}))
    assert json.loads((tmp_path / "a.json").read_text()) == {"AAAAAAAAAAA/1": 1}
    assert score_file(Neptune(), FULL, tmp_path / "a.json").strict["accuracy"] == 1


def test_labels_are_needed_to_score_only(tmp_path):
    items = Neptune().read(write(tmp_path / "n.json", [record(answer_id=...)]))
    with pytest.raises(InputError, match="neptune: cannot be scored"):
        score(Neptune(), items, replies({items[0].id: "B"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer_choice_1": ...}, r"answer_choice_0, answer_choice_1, …: expected texts without a gap"),
        ({"answer_choice_1": 3}, "answer_choice_0, answer_choice_1, …: expected texts"),
        ({"answer_id": 5}, "answer_id: 5 is none of its 5 options"),
        ({"answer_id": "1"}, "record AAAAAAAAAAA/1: answer_id: "),
        ({"question": ...}, "record AAAAAAAAAAA/1: question: Field required"),
    ],
)
def test_damaged_annotations(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        Neptune().read(write(tmp_path / "n.json", [record(**changes)]))
