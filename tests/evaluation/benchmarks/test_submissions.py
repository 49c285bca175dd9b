"""What holds for each benchmark's submissions: damaged files are named, and what is written reads back the same."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.benchmarks.scoring import FIXTURES, replies, score, score_file, write
from vrjax.errors import InputError, RunError
from vrjax.evaluation.benchmark import Benchmark, Prediction
from vrjax.evaluation.benchmarks import BENCHMARKS, load_benchmark
from vrjax.evaluation.benchmarks.activitynet_rtl import ActivityNetRtl
from vrjax.evaluation.benchmarks.egoschema import EgoSchema
from vrjax.evaluation.benchmarks.lvbench import LvBench
from vrjax.evaluation.benchmarks.neptune import Neptune
from vrjax.evaluation.benchmarks.nextgqa import NextGqa
from vrjax.evaluation.benchmarks.rextime import RexTime

UID = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class Case:
    """A benchmark over the fixtures: its first question's id, and its file of predictions with that value in it."""

    benchmark: Benchmark
    id: str
    file: str
    form: Callable[[str, Any], Any]
    value: Any
    reply: str = "Answer: B\nTime: 3 to 5"
    damaged: tuple[tuple[Any, str], ...] = ()


def mapping(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def windows(name: str, value: Any) -> list[dict[str, Any]]:
    others = [{"qid": other, "pred_relevant_windows": [[0, 1]]} for other in ("qvh_val0", "anet_val1")]
    return [{"qid": name, "pred_relevant_windows": value}, *others]


def timestamps(name: str, value: Any) -> list[dict[str, Any]]:
    return [{"question_id": name, "text_out": "x", "metadata": {"timestamps": value}}]


SPANS_AS_TEXT = (("[1, 2]", ": "), (["1", "2"], r"\.0: .*number"), ([float("nan"), 2], r"\.0: .*finite"), ([1], ": "))
CASES = {
    "nextgqa": Case(
        NextGqa(split="val"), "1000000001_1", "val_ground.json", mapping, [1.2, 5.8],
        damaged=tuple((value, "span" + where) for value, where in SPANS_AS_TEXT),
    ),
    "rextime": Case(
        RexTime(), "anet_val0", "s.jsonl", windows, [[1, 6]],
        damaged=(("[[1, 6]]", "pred_relevant_windows: "),
                 *(([value], rf"pred_relevant_windows\.0{where}") for value, where in SPANS_AS_TEXT)),
    ),
    "activitynet_rtl": Case(
        ActivityNetRtl(), "AAAAAAAAAAA_0", "s.json", timestamps, [12.5, 20], "<12.5> <20>",
        damaged=tuple((value, rf"metadata\.timestamps{where}") for value, where in SPANS_AS_TEXT),
    ),
    "lvbench": Case(LvBench(), "7", "s.json", mapping, "B", damaged=((1, "answer: "), (["B"], "answer: "))),
    "neptune": Case(
        Neptune(), "AAAAAAAAAAA/1", "s.json", mapping, 1, damaged=(("1", "answer_id: "), (1.5, "answer_id: ")),
    ),
    "egoschema": Case(EgoSchema(), UID, "s.json", mapping, 3, "D", damaged=(("D", "answer: "), (True, "answer: "))),
}  # fmt: skip
DAMAGED = [(name, value, where) for name, case in CASES.items() for value, where in case.damaged]


@pytest.mark.parametrize("name", CASES)
def test_a_right_value_reads_as_right(tmp_path, name):
    case = CASES[name]
    found = score_file(case.benchmark, FIXTURES, write(tmp_path / case.file, case.form(case.id, case.value)))
    first = next(item for item in found.items if item.id == case.id)
    metric = {"nextgqa": "mIoU", "rextime": "mIoU", "activitynet_rtl": "mIoU"}.get(name, "accuracy")
    assert first.values[metric] == 1
    assert found.benchmark == name
    assert case.benchmark.headline in found.strict
    assert set(found.strict) == set(found.intervals)


@pytest.mark.parametrize(("name", "value", "where"), DAMAGED)
def test_values_of_another_type_name_record_and_field(tmp_path, name, value, where):
    case = CASES[name]
    path = write(tmp_path / case.file, case.form(case.id, value))
    with pytest.raises(InputError, match=f"{path}: record {case.id}: {where}"):
        case.benchmark.read_submission(path, case.benchmark.read(FIXTURES))


@pytest.mark.parametrize("name", CASES)
def test_unknown_ids(tmp_path, name):
    case = CASES[name]
    path = write(tmp_path / case.file, case.form("elsewhere_1", case.value))
    with pytest.raises(InputError, match="not among the questions: elsewhere_1"):
        case.benchmark.read_submission(path, case.benchmark.read(FIXTURES))


@pytest.mark.parametrize("name", CASES)
def test_ids_that_occur_twice(tmp_path, name):
    case = CASES[name]
    content = case.form(case.id, case.value)
    if isinstance(content, list):
        path = write(tmp_path / case.file, [*content, content[0]])
    else:  # a key twice, of which Python's reader keeps the last one without a word
        row = json.dumps(content)[1:-1]
        path = write(tmp_path / case.file, "{" + row + ", " + row + "}")
    with pytest.raises(InputError, match=f"{case.id}.*occurs twice|occurs twice: {case.id}"):
        case.benchmark.read_submission(path, case.benchmark.read(FIXTURES))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("other", CASES)
def test_predictions_of_another_benchmark(tmp_path, name, other):
    """Wholly, and mixed into one file."""
    if name == other:
        return
    mine, theirs = (case.form(case.id, case.value) for case in (CASES[name], CASES[other]))
    items = CASES[name].benchmark.read(FIXTURES)
    suffix = Path(CASES[name].file).name
    contents = [theirs]
    if isinstance(mine, type(theirs)):
        contents.append([*mine, *theirs] if isinstance(mine, list) else {**mine, **theirs})
    for content in contents:
        if suffix.endswith(".jsonl") and isinstance(content, dict):
            content = [content]
        path = write(tmp_path / suffix, content)
        with pytest.raises(InputError, match=r"not among the questions|is it of another benchmark|expected"):
            CASES[name].benchmark.read_submission(path, items)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("text", ["", "\n", "{}", "[]", "3", "{", "null"])
def test_files_that_hold_no_predictions(tmp_path, name, text):
    case = CASES[name]
    (tmp_path / case.file).write_text(text)
    with pytest.raises(InputError, match=f"{case.file}: "):
        case.benchmark.read_submission(tmp_path / case.file, case.benchmark.read(FIXTURES))


@pytest.mark.parametrize("name", CASES)
def test_files_that_are_not_there(tmp_path, name):
    case = CASES[name]
    with pytest.raises(InputError, match="nowhere"):
        case.benchmark.read_submission(tmp_path / "nowhere.json", case.benchmark.read(FIXTURES))
    with pytest.raises(InputError, match=f"{tmp_path}"):
        case.benchmark.read(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_scores_the_same(tmp_path, name):
    case = CASES[name]
    items = case.benchmark.read(FIXTURES)
    said = [*replies({case.id: case.reply}), *(Prediction(id=item.id, error="unreadable: x") for item in items[1:])]
    found = score(case.benchmark, items, said)
    path = tmp_path / case.benchmark.submission
    case.benchmark.write_submission(path, items, said)
    again = score_file(case.benchmark, FIXTURES, path)
    assert again.official == found.official
    assert again.strict == found.strict
    assert again.coverage == found.coverage == 1 / len(items)
    assert found.failures.get("error: unreadable", 0) == len(items) - 1
    assert not list(tmp_path.glob("**/.*.partial"))


@pytest.mark.parametrize("name", CASES)
def test_a_submission_that_cannot_be_written_leaves_nothing(tmp_path, name):
    case = CASES[name]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        case.benchmark.write_submission(tmp_path / "file" / "s.json", case.benchmark.read(FIXTURES), [])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", CASES)
def test_predictions_must_be_of_the_questions_once(name):
    case = CASES[name]
    items = case.benchmark.read(FIXTURES)
    with pytest.raises(InputError, match="predictions of unknown questions: elsewhere"):
        score(case.benchmark, items, replies({"elsewhere": "B"}))
    with pytest.raises(InputError, match=f"several predictions of one question: {case.id}"):
        score(case.benchmark, items, replies({case.id: "B"}) * 2)
    with pytest.raises(InputError, match="there are no questions to score"):
        score(case.benchmark, [], [])


@pytest.mark.parametrize("name", CASES)
def test_without_predictions_everything_is_missing(name):
    case = CASES[name]
    found = score(case.benchmark, case.benchmark.read(FIXTURES), [])
    assert set(found.strict.values()) == {0}
    assert found.coverage == 0
    assert set(found.failures) == {"missing"}


def test_names():
    for name in CASES:
        assert isinstance(CASES[name].benchmark, load_benchmark(name))
        assert load_benchmark(name).name == name
    assert set(CASES) < set(BENCHMARKS)
    with pytest.raises(InputError, match=r"'tvqa' is no benchmark\. Choose one of: eg_vqa, nextgqa"):
        load_benchmark("tvqa")


def test_prompts_are_named_and_take_the_question_in():
    for case in CASES.values():
        prompt = case.benchmark.prompt
        assert prompt.name
        assert prompt.version >= 1
        assert "{question}" in prompt.template


@pytest.mark.alone
def test_scoring_takes_seconds(tmp_path):
    """5,553 questions about 990 videos, as many as NExT-GQA's test split has."""
    header = (FIXTURES / "nextgqa_val.csv").read_text().splitlines()[0]
    rows = [f"{n % 990},900,640,480,why,yes,{n // 990},CW,no,yes,a,b,c" for n in range(5553)]
    write(tmp_path / "test.csv", "\n".join([header, *rows]) + "\n")
    labels: dict[str, Any] = {str(v): {"duration": 40, "fps": 30, "location": {}} for v in range(990)}
    for n in range(5553):
        labels[str(n % 990)]["location"][str(n // 990)] = [[n % 20, n % 20 + 5.5], [30, 35]]
    write(tmp_path / "gsub_test.json", labels)
    names = [f"{n % 990}_{n // 990}" for n in range(5553)]
    write(tmp_path / "s" / "test_ground.json", {name: [n % 23, n % 23 + 6.5] for n, name in enumerate(names)})
    write(tmp_path / "s" / "test-res.json", {name: {"answer": 1, "prediction": n % 5} for n, name in enumerate(names)})
    times = []
    for _ in range(3):
        started = time.perf_counter()
        found = score_file(NextGqa(), tmp_path, tmp_path / "s")
        times.append(time.perf_counter() - started)
    assert len(found.items) == 5553
    assert min(times) < 3
