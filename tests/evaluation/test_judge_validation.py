"""Agreement of labels: against the paper's figures and scikit-learn's κ."""

import json

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from vrjax.errors import InputError
from vrjax.evaluation.judge_validation import ANSWER_LABELS, agreement, load_answer_labels, validate_judge


@pytest.mark.parametrize("raised", range(8))
def test_the_papers_figures(raised):
    """EG-VQA, appendix D.2: 96, 54 and 50 labels by people, seven disagreements, all between fully and partially."""
    human = ["fully"] * 96 + ["partially"] * 54 + ["incorrect"] * 50
    judge = list(human)
    lowered = 7 - raised
    judge[:lowered] = ["partially"] * lowered
    judge[96 : 96 + raised] = ["fully"] * raised
    found = agreement(human, judge, ANSWER_LABELS)
    assert found.exact == pytest.approx(193 / 200)
    assert round(found.kappa or 0, 3) in (0.944, 0.945)
    assert found.matrix == ((96 - lowered, lowered, 0), (raised, 54 - raised, 0), (0, 0, 50))


def test_kappa_and_matrix_are_scikit_learns():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first = rng.choice(["a", "b", "c", "d"], 60, p=[0.5, 0.3, 0.15, 0.05]).tolist()
        second = [one if rng.random() < 0.6 else str(rng.choice(["a", "b", "c", "d"])) for one in first]
        found = agreement(first, second)
        assert found.kappa == pytest.approx(cohen_kappa_score(first, second))
        np.testing.assert_array_equal(found.matrix, confusion_matrix(first, second, labels=list(found.labels)))


def test_chance_alone_has_no_kappa():
    assert agreement(["a", "a"], ["a", "a"]).kappa is None
    assert agreement(["a", "b"], ["b", "a"]).kappa == pytest.approx(-1)


def test_wrong_lists_are_refused():
    for first, second in (([], []), (["a"], ["a", "b"])):
        with pytest.raises(ValueError, match="one of each"):
            agreement(first, second)
    with pytest.raises(ValueError, match=r"\['c'\] are not among"):
        agreement(["a"], ["c"], ["a", "b"])


def test_a_verdict_that_is_not_there_is_counted_and_not_compared():
    human = {"1": "fully", "2": "partially", "3": "incorrect"}
    found = validate_judge(human, {"1": "fully", "2": None, "3": "incorrect", "4": "fully"}, "h.json")
    assert (found["n"], found["exact"], found["unjudged"]) == (2, 1.0, 1)
    with pytest.raises(InputError, match=r"h\.json: '3' is not among"):
        validate_judge(human, {"1": "fully", "2": "fully"}, "h.json")
    with pytest.raises(InputError, match="labelled none of these 3"):
        validate_judge(human, dict.fromkeys("123"), "h.json")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"q1": "Fully Correct", "q2": 0.5, "q3": "0"})),
        ("a.json", json.dumps([{"question_id": f"q{n}", "label": label} for n, label in
                               ((1, 1), (2, "partially_correct"), (3, "incorrect"))])),
        ("a.jsonl", '{"id": "q1", "label": 1}\n\n{"id": "q2", "label": "partially"}\n{"id": "q3", "label": 0.0}\n'),
        ("a.csv", "id,label\nq1,fully\nq2,.5\nq3,Incorrect\n"),
    ],
)  # fmt: skip
def test_label_files(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert load_answer_labels(tmp_path / name) == {"q1": "fully", "q2": "partially", "q3": "incorrect"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{}", "holds no labels"),
        ("a.json", '{"q1": "correct"}', r'q1: the label "correct" is none of'),
        ("a.json", '{"q1": NaN}', r"q1: the label NaN is none of"),
        ("a.json", '[{"id": "q1", "label": 1}, {"id": "q1", "label": 0}]', "'q1' is labelled twice"),
        ("a.json", '[{"label": 1}]', "entry 0 has no id"),
        ("a.json", '["fully"]', "expected"),
        ("a.csv", "name,label\nq1,1\n", "entry 0 has no id"),
        ("b.csv", None, "cannot be read"),
    ],
)
def test_bad_label_files_are_named(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        load_answer_labels(tmp_path / name)
