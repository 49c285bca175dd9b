"""EgoSchema: the public answers, both forms of submission, and the questions that only the server can score."""

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.evaluation.benchmarks.scoring import FIXTURES, REALDATA, needs_real_data, replies, score, score_file, write
from vrjax.errors import InputError
from vrjax.evaluation.benchmarks.egoschema import EgoSchema

FIRST = "00000000-0000-4000-8000-000000000001"
SECOND = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("questions.json", "subset_answers.json", "uid_to_ego4d.json"):
        shutil.copy(FIXTURES / f"egoschema_{name}", folder / name)
    rows = json.loads((folder / "questions.json").read_text())
    write(folder / "questions.json", [*rows, {**rows[0], "q_uid": SECOND}])
    return folder


def test_reading(data):
    (item,) = EgoSchema().read(data)
    assert (item.id, item.video_file, item.duration) == (FIRST, FIRST, 180)
    assert item.video == "00000000-0000-4000-8000-0000000000aa"
    assert item.options["D"] == "Mend a net."
    assert item.reference == {"choice": "D"}
    assert EgoSchema().read(data / "questions.json") == [item]
    both = EgoSchema(split="full").read(data)
    assert [one.reference for one in both] == [{"choice": "D"}, None]
    assert EgoSchema().parse(item, "C mends a net.").failure == "no choice"


def test_without_the_questions_they_can_be_scored_and_not_put(data):
    (data / "questions.json").unlink()
    (data / "uid_to_ego4d.json").unlink()
    (item,) = EgoSchema().read(data)
    assert score(EgoSchema(), [item], replies({FIRST: "D"})).strict["accuracy"] == 1
    with pytest.raises(InputError, match="has no options in the data"):
        EgoSchema().question(item)
    with pytest.raises(InputError, match=r"no questions\.json there"):
        EgoSchema(split="full").read(data)


def test_submission_forms(data, tmp_path):
    items = EgoSchema(split="full").read(data)
    said = replies({FIRST: "(D)", SECOND: "hard to tell"})
    EgoSchema().write_submission(tmp_path / "s.json", items, said)
    EgoSchema().write_submission(tmp_path / "s.csv", items, said)
    assert json.loads((tmp_path / "s.json").read_text()) == {FIRST: 3, SECOND: -1}
    assert (tmp_path / "s.csv").read_text() == f"q_uid,answer\n{FIRST},3\n{SECOND},-1\n"
    forms = [EgoSchema().read_submission(tmp_path / name, items) for name in ("s.json", "s.csv")]
    assert forms[0] == forms[1]
    assert forms[0][0].parsed == {"choice": "D"}
    with pytest.raises(InputError, match=f"1 of 2 questions have no labels here .{SECOND}"):
        score(EgoSchema(), items, forms[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"q_uid,answer\n{FIRST},3\n{FIRST},2\n", "q_uid occurs twice"),
        (f"q_uid,answer\n{FIRST},D\n", f"record {FIRST}: answer: "),
        (f"q_uid,label\n{FIRST},3\n", "record line 2: answer: Field required"),
        ("q_uid,answer\n", "no rows below its header"),
        ("q_uid,answer\nother,3\n", "not among the questions: other"),
    ],
)
def test_damaged_tables(data, tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        EgoSchema().read_submission(write(tmp_path / "s.csv", text), EgoSchema().read(data))


def test_damaged_annotations(data):
    write(data / "subset_answers.json", {FIRST: 5})
    with pytest.raises(InputError, match=f"record {FIRST}: answer: 5 is none of 0 to 4"):
        EgoSchema().read(data)
    write(data / "subset_answers.json", {"other": 1})
    with pytest.raises(InputError, match=r"subset_answers.json: not in questions.json: other"):
        EgoSchema().read(data)
    rows = json.loads((data / "questions.json").read_text())
    del rows[1]["option 3"]
    write(data / "questions.json", rows)
    with pytest.raises(InputError, match=f"record {SECOND}: option 3: Field required"):
        EgoSchema().read(data)


@needs_real_data
def test_random_predictions_over_the_real_answers(tmp_path):
    data = Path(REALDATA or "") / "egoschema"
    answers = json.loads((data / "subset_answers.json").read_text())
    draw = random.Random(2)
    given = {name: draw.choice([right, draw.randrange(5), -1]) for name, right in answers.items()}
    found = score_file(EgoSchema(), data, write(tmp_path / "s.json", given))
    right = sum(given[name] == answers[name] for name in answers)
    assert len(found.items) == 500
    assert found.official["accuracy"] == found.strict["accuracy"] == pytest.approx(right / 500, abs=1e-9)
    assert found.coverage == 1 - sum(number == -1 for number in given.values()) / 500
