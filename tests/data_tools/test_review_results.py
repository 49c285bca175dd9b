"""Agreement against public implementations and hand values; files for the next stages; forms and readers."""

import json
import random
import shlex
from pathlib import Path

import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import aggregate_raters
from statsmodels.stats.inter_rater import fleiss_kappa as public_fleiss

from data_tools.cli import main
from data_tools.review.agreement import panel_agreement
from data_tools.review.forms import check_answer
from data_tools.review.items import find_video, read_items
from data_tools.review.results import markdown, results, verified
from data_tools.review.store import Item, ReviewStore
from tests.data_tools.review_rows import EVIL, pair_item, question_item, queue_row, rated, segments
from vrjax.errors import InputError
from vrjax.evaluation.judge_validation import fleiss_kappa
from vrjax.records import load_json, load_records

# Fleiss (1971) as it is usually told: 10 subjects, 14 raters, 5 categories; κ = .210.
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


def test_fleiss_kappa_is_the_published_and_statsmodels():
    assert round(fleiss_kappa(FLEISS) or 0, 3) == 0.210
    rng = random.Random(0)
    for _ in range(20):
        labels = [[rng.choice([1, 2, 3, 3, 4, 5]) for _ in range(3)] for _ in range(12)]
        counts = [[row.count(value) for value in range(1, 6)] for row in labels]
        assert fleiss_kappa(counts) == pytest.approx(public_fleiss(aggregate_raters(labels)[0]))
    assert fleiss_kappa([[2, 0], [2, 0]]) is None
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([[2, 0], [3, 0]])


def test_a_panel_by_hand():
    """Things 1-4 by ann and bob: 3 of 4 equal. Thing 5 by ann and cy, thing 6 by ann alone."""
    labelled = [
        {"ann": "4", "bob": "4"}, {"ann": "5", "bob": "5"}, {"ann": "4", "bob": "5"}, {"ann": "5", "bob": "5"},
        {"ann": "1", "cy": "3"}, {"ann": "2"},
    ]  # fmt: skip
    found = panel_agreement(labelled, ("1", "2", "3", "4", "5"))
    assert (found.things, found.fleiss_things, found.pairs_of_raters, found.without_cohen) == (5, 5, 2, 0)
    assert found.exact == pytest.approx(3 / 5)
    assert found.within_one == pytest.approx(4 / 5)
    # ann and bob: po 3/4, pe = (2·1 + 2·3)/16 = 1/2, κ = 1/2. ann and cy: po 0, pe 0, κ = 0. Weights 4 and 1.
    assert found.cohen == pytest.approx((4 * 0.5 + 1 * 0) / 5)
    # Shares of 10 labels: 4 three times, 5 five times, 1 and 3 once: pe = .09 + .25 + .01 + .01 = .36.
    assert found.fleiss == pytest.approx((3 / 5 - 0.36) / (1 - 0.36))


def test_two_raters_cohen_is_scikit_learns():
    rng = random.Random(1)
    first = [rng.choice("12345") for _ in range(40)]
    second = [one if rng.random() < 0.6 else rng.choice("12345") for one in first]
    found = panel_agreement([{"a": a, "b": b} for a, b in zip(first, second, strict=True)], tuple("12345"))
    assert found.cohen == pytest.approx(cohen_kappa_score(first, second))
    assert panel_agreement([], ("a",)).exact is None
    assert panel_agreement([{"a": "x", "b": "x"}], ("x", "y")).cohen is None


def fill(path, kind, count, answers, raters=2) -> ReviewStore:
    """answers: for each item, rater → body."""
    store = ReviewStore(path / "review.sqlite")
    task = "verify" if kind is pair_item else "adjudicate"
    store.add(task, [kind(n) for n in range(count)], raters)
    for item, given in zip(store.items(task), answers, strict=True):
        for rater, body in given.items():
            store.save(item.id, rater, check_answer(item, body))
    return store


def test_the_table_has_table_s1s_form_and_the_means_of_all_ratings(tmp_path):
    answers = [{"a": rated(4), "b": rated(5, answers_depth=2)}, {"a": rated(3), "b": rated(3)}, {"a": rated(1)}]
    found = results(fill(tmp_path, pair_item, 3, answers))
    assert found["means"]["clarity"]["questions"] == pytest.approx((4 + 5 + 3 + 3 + 1) / 5)
    assert found["means"]["depth"]["answers"] == pytest.approx((4 + 2 + 3 + 3 + 1) / 5)
    assert found["means"]["accuracy"] == {"captions": None, "questions": None, "answers": None}
    assert found["agreement"]["clarity"]["questions"]["exact"] == 0.5
    assert found["kept"] == {"waiting": 1, "kept": 1}
    lines = markdown(found).splitlines()
    assert lines[2] == (
        "| Metric | Captions | Questions | Answers | Captions (paper) | Questions (paper) | Answers (paper) |"
    )
    assert lines[4].startswith("| Accuracy | – | – | – | 3.9 | – | – |")
    assert lines[5].startswith("| Clarity | – | 3.2 | 3.2 | 4.0 | 4.3 | 4.3 |")


def test_several_raters_decide_by_more_than_half(tmp_path):
    accept, reject = {"decision": "accept"}, {"decision": "reject"}
    answers = [
        {"a": accept, "b": {**accept, "question": "Edited by b?"}, "c": reject}, {"a": accept, "b": reject},
        {"a": reject, "b": reject, "c": reject},
    ]  # fmt: skip
    fill(tmp_path, question_item, 3, answers, raters=3)
    assert main(["review", "export", "--database", str(tmp_path / "review.sqlite"), "--out", str(tmp_path)]) == 0
    decided = load_json(tmp_path / "decisions.jsonl")
    assert [(row["question_id"], row["decision"], row["votes"]) for row in decided] == [
        ("q000", "accept", 2), ("q002", "reject", 3),
    ]  # fmt: skip
    assert [row["why"] for row in load_json(tmp_path / "undecided.jsonl")] == ["2 of 3 answers"]


def test_edited_evidence_goes_through_assembly(tmp_path):
    record = {"video_id": "video-0", "video_path": "v.mp4", "duration": 60.0, "data_source": "HiREST",
              "metadata": {"segments": segments()}}  # fmt: skip
    (tmp_path / "records.jsonl").write_text(json.dumps(record) + "\n")
    row = queue_row(0)
    (tmp_path / "screened.jsonl").write_text(json.dumps(row) + "\n")
    moved = [{"timestamp": [12.5, 19.0], "description": "step 1"}]
    fill(tmp_path, question_item, 1, [{"a": {"decision": "accept", "evidence": moved}}], raters=1)
    assert main(["review", "export", "--database", str(tmp_path / "review.sqlite"), "--out", str(tmp_path)]) == 0
    words = ["eg-vqa", "assemble", "--work", str(tmp_path), "--decisions", str(tmp_path / "decisions.jsonl")]
    assert main(words) == 0
    (found,) = load_records(tmp_path / "dataset.jsonl")
    assert [list(one.timestamp) for one in found.questions[0].evidence] == [[12.5, 19.0]]
    spans = [list(one.timestamp) for one in found.metadata.segments]
    assert spans == [[0.0, 8.0], [10.0, 18.0], [12.5, 19.0], [20.0, 28.0], [30.0, 38.0]]


def test_removed_pairs_stay_out_of_moviecore(tmp_path):
    pairs = [{"question": f"Why {n}?", "answer": "So.", "classification": "causal"} for n in range(2)]
    row = {"clip": "c0", "split": "test", "single_pass": pairs, "refined": pairs, "caption": "A film."}
    (tmp_path / "annotations.jsonl").write_text(json.dumps(row) + "\n")
    items = read_items("verify", tmp_path / "annotations.jsonl")
    assert [name for name, _ in items] == ["c0.mp4/1", "c0.mp4/2", "c0.mp4/caption"]
    store = ReviewStore(tmp_path / "review.sqlite")
    store.add("verify", items, raters=1)
    store.save(store.items()[1].id, "a", rated(1))
    meta = store.next_item("meta", "b")
    assert meta is not None
    store.save(meta.id, "b", {"decision": "remove", "reason": "vague"})
    assert [one["kept"] for one in verified(store)] == [False]
    assert main(["review", "export", "--database", str(store.path), "--out", str(tmp_path)]) == 0
    words = ["moviecore", "export", "--work", str(tmp_path), "--verdicts", str(tmp_path / "verified.jsonl")]
    assert main(words) == 0
    assert load_json(tmp_path / "test.json") == {"c0.mp4": pairs[:1]}
    row["refined"] = pairs[::-1]
    (tmp_path / "annotations.jsonl").write_text(json.dumps(row) + "\n")
    assert main(words) == 2  # the second pair is another question by now


def item(kind=question_item, task="adjudicate") -> Item:
    name, payload = kind(0)
    return Item(1, task, name, 1, payload)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"decision": "maybe"}, "decision"),
        ({"decision": "accept", "question": "  "}, "question"),
        ({"decision": "accept", "evidence": []}, "no evidence is left"),
        ({"decision": "accept", "evidence": [{"timestamp": [9, 3], "description": "step 1"}]}, "The start comes first"),
        (
            {"decision": "accept", "evidence": [{"timestamp": [1, 99], "description": "step 1"}]},
            "after the video's end",
        ),
        ({"decision": "accept", "evidence": [{"timestamp": [1, 2], "description": "new"}]}, "words of no segment"),
        ({"decision": "accept", "evidence": [{"timestamp": [1, float("nan")], "description": "x"}]}, "finite"),
        ({"decision": "accept", "evidence": [segments()[0]] * 2}, "is there twice"),
        ({"decision": "accept", "rater": "me"}, "rater"),
        ([], "dictionary"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(raw, said):
    with pytest.raises(InputError, match=said):
        check_answer(item(), raw)


def test_an_audit_changes_nothing():
    audit = item(task="audit")
    assert check_answer(audit, {"decision": "accept"}) == {"decision": "accept", "comment": ""}
    with pytest.raises(InputError, match="as it is"):
        check_answer(audit, {"decision": "accept", "answer": "Another."})


def test_ratings_are_whole_and_complete():
    part = {"ratings": {"questions": rated(3)["ratings"]["questions"]}}
    text = json.dumps(rated(3))
    for raw in (rated(6), rated(0), part, *(json.loads(text.replace("3", one, 1)) for one in ('"3"', "3.5", "null"))):
        with pytest.raises(InputError):
            check_answer(item(pair_item, "verify"), raw)
    with pytest.raises(InputError, match="reason"):
        check_answer(item(pair_item, "meta"), {"decision": "keep", "reason": " "})


def test_what_is_as_it_was_is_no_edit():
    question = item().payload["question"]
    answer = {"decision": "accept", "question": f" {question['question']} ", "evidence": question["evidence"][::-1]}
    assert check_answer(item(), answer) == {"decision": "accept", "comment": ""}
    segment_item = Item(1, "segments", "v", 1, {"kind": "segments", "segments": segments(),
                                                 "video": {"id": "v", "path": "", "duration": 60.0}})  # fmt: skip
    same = {"segment": 0, "timestamp": [0.0, 8.0], "description": "step 0 "}
    assert check_answer(segment_item, {"edits": [same]})["edits"] == []
    with pytest.raises(InputError, match="no segment 9"):
        check_answer(segment_item, {"edits": [{"segment": 9}]})


def test_files_that_hold_nothing_or_something_else_are_named(tmp_path, capsys):
    database = str(tmp_path / "review.sqlite")

    def add(task: str, text: str, name: str = "x.jsonl") -> str:
        (tmp_path / name).write_text(text)
        code = main(["review", "add", "--database", database, "--task", task, "--files", str(tmp_path / name)])
        assert code == 2
        return capsys.readouterr().err

    assert "holds nothing to judge" in add("adjudicate", "")
    assert "line 1: question_id" in add("adjudicate", '{"question": {"question": "?"}, "video_id": "v"}\n')
    assert "has no video_id" in add("audit", json.dumps({"question": queue_row(0)["question"]}) + "\n")
    assert "pair 1 needs a question and an answer" in add("verify", '{"c.mp4": [{"question": "?"}]}', "x.json")
    assert "expected a list of videos" in add("segments", "{}", "x.json")
    for step in (["export", "--out", str(tmp_path / "o")], ["table"], ["serve"]):
        assert main(["review", step[0], "--database", str(tmp_path / "none.sqlite"), *step[1:]]) == 2
        assert "is not there" in capsys.readouterr().err
    ReviewStore(tmp_path / "empty.sqlite")
    assert main(["review", "serve", "--database", str(tmp_path / "empty.sqlite")]) == 2
    assert "holds no items" in capsys.readouterr().err
    assert main(["review", "serve", "--database", str(tmp_path / "empty.sqlite"), "--host", "0.0.0.0"]) == 2
    assert "Set a password in the variable REVIEW_PASSWORD" in capsys.readouterr().err


def test_names_of_a_dataset_do_not_lead_out_of_the_videos_folder(tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "secret.mp4").write_bytes(b"x")
    (tmp_path / "videos" / "a.webm").write_bytes(b"x")
    (tmp_path / "videos" / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    for path, name in (
        ("../secret.mp4", "s"),
        (str(tmp_path / "secret.mp4"), ".."),
        ("link.mp4", "link"),
        ("\x00", EVIL),
    ):
        assert find_video(tmp_path / "videos", {"id": name, "path": path}) is None
    assert find_video(tmp_path / "videos", {"id": "a", "path": ""}) == tmp_path / "videos" / "a.webm"
    assert find_video(None, {"id": "a", "path": ""}) is None


def test_the_review_commands_of_readme_and_docs_run(tmp_path, monkeypatch):
    root = Path(__file__).parents[2]
    record = {"video_id": "v", "video_path": "v.mp4", "duration": 60.0, "metadata": {"segments": segments()}}
    pairs = [{"question": "Why?", "answer": "So.", "classification": "causal"}]
    files = {
        "eg/raw.jsonl": record, "eg/queue.jsonl": queue_row(0), "eg/audit.jsonl": queue_row(1),
        "mc/annotations.jsonl": {"clip": "c", "refined": pairs, "caption": "A film."},
    }  # fmt: skip
    for name, row in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    monkeypatch.chdir(tmp_path)
    ran = []
    for page in ("README.md", "docs/datasets.md"):
        for line in (root / page).read_text().splitlines():
            words = shlex.split(line.split("#")[0]) if line.startswith("vrjax-data review") else []
            if words and words[2] != "serve":  # tests/data_tools/test_review_page.py serves
                assert main(words[1:]) == 0, line
                ran.append(words[2])
    assert set(ran) == {"add", "export", "table"}
    assert len(ReviewStore(tmp_path / "eg.sqlite").items()) == 3
