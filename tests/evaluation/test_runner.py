"""Evaluations against a local server and a small model: going on, refusing, shards, bad videos, bad input."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from flax import nnx

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from experiments.shapes_sft import FRAMES, make_tokenizer, model_config
from tests.evaluation.chat_server import chat_server
from vrjax.cli import main
from vrjax.errors import InputError, RunError
from vrjax.evaluation.benchmark import Tools
from vrjax.evaluation.benchmarks.eg_vqa import EgVqa
from vrjax.evaluation.endpoint_subject import EndpointSubject
from vrjax.evaluation.native_subject import NativeSubject
from vrjax.evaluation.result_files import load_scored_run
from vrjax.evaluation.runner import EvaluationOptions, run
from vrjax.evaluation.shards import Shard
from vrjax.evidence import TokenSimilarity
from vrjax.generation.prompts import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.generation.sampling import SamplingOptions
from vrjax.llm import ChatClient, ChatError, OpenAIEndpoint, Retrying
from vrjax.loading import LoadedModel, abstract_model, load, save
from vrjax.models.qwen2_5_vl import Qwen2_5VL
from vrjax.records import load_records
from vrjax.video import FrameOptions

TOOLS = Tools(similarity=TokenSimilarity())
BLIND = EgVqa(condition="question_only")  # nothing to read, where frames are not what is tested
SMALL = FrameOptions(frames=4, min_pixels=3136, max_pixels=3136)
GREEN = (
    "<evidence>\nTime:00:02-00:04, Des: the red circle turns green\n</evidence>\n<think>t</think>\n"
    "<answer>green</answer>"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Six clips with 24 questions, and a small random model."""
    folder = tmp_path_factory.mktemp("world")
    make_dataset(folder, DatasetOptions(train=3, val=0, test=6))
    rows = json.loads((folder / "test.json").read_text())
    for number, row in enumerate(rows):
        for question in row["questions"]:
            question["question"] += f" ({number})"
    (folder / "unique.json").write_text(json.dumps(rows))
    tokenizer, vocabulary = make_tokenizer(folder)
    config = model_config(vocabulary)
    graph, _ = abstract_model(config)
    params = jax.jit(lambda: nnx.split(Qwen2_5VL(config, nnx.Rngs(0)))[1])()
    save(LoadedModel(config, graph, params, ChatTokenizer.load(tokenizer)), folder / "model")
    PromptRecipe(FRAMES, instruction="").write(folder / "model")
    return folder


def options(world: Path, out: Path, **changes) -> EvaluationOptions:
    return replace(EvaluationOptions(data=world / "test.json", out=out, report_frames=0, progress=False), **changes)


def blind(world: Path, out: Path, **changes) -> EvaluationOptions:
    """No two questions are the same, so that no two share a call where there is no video to tell them apart."""
    return options(world, out, **{"data": world / "unique.json", **changes})


def endpoint(url: str, model: str = "tiny", key: str | None = None, attempts: int = 1, **more) -> EndpointSubject:
    waits = Retrying(attempts=attempts, first_wait_s=0.01)
    client = ChatClient(OpenAIEndpoint(model, url, key), concurrency=4, retrying=waits)
    return EndpointSubject(client, f"openai:{model}", EgVqa(), frames=SMALL, max_tokens=64, **more)


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------- an endpoint


def test_an_endpoint_sees_frames_and_the_benchmarks_words(world, tmp_path):
    with chat_server(lambda text, pictures: GREEN) as server:
        done = run(EgVqa(), endpoint(server.url), options(world, tmp_path), TOOLS)
    assert done.score is not None
    assert done.score.coverage == 1
    assert 0 < done.score.strict["answer_strict"] < 1
    assert set(server.pictures.values()) == {4}
    assert all(text.endswith("</answer>") and "Time:MM:SS-MM:SS, Des:" in text for text in server.asked)
    assert len(lines(tmp_path)) == 24
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"answers.jsonl", "config.json", "environment.json", "scores.json", "items.jsonl", "report.html",
                       "eg_vqa_result.json"}  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["prompt"]["version"] == 1
    assert config["frames"]["frames"] == 4
    # The official file scores the same.
    again = EgVqa().read_submission(tmp_path / "eg_vqa_result.json", items := EgVqa().read(world / "test.json"))
    assert asyncio.run(EgVqa().score(items, again, TOOLS)).strict == done.score.strict
    read = load_scored_run(tmp_path)
    assert read.scores["strict"] == done.score.strict
    assert [row["id"] for row in read.rows] == [item.id for item in items]


def test_question_only_shows_no_picture_and_mismatched_another_video(world, tmp_path):
    with chat_server(lambda text, pictures: GREEN) as server:
        for condition, pictures in (("question_only", {0}), ("mismatched", {4})):
            benchmark = EgVqa(condition=condition)
            done = run(benchmark, endpoint(server.url), options(world, tmp_path / condition), TOOLS)
            assert set(server.pictures.values()) == pictures
            assert done.score is not None
            assert done.score.details["condition"] == condition


def test_it_goes_on_where_it_was_and_asks_nothing_twice(world, tmp_path):
    def flaky(text: str, pictures: int) -> str | int:
        return GREEN if len(server.asked) <= 10 else 500

    with chat_server(lambda text, pictures: flaky(text, pictures)) as server:
        first = run(BLIND, endpoint(server.url), blind(world, tmp_path, max_failed_share=1), TOOLS)
        failed = [row["id"] for row in lines(tmp_path) if "error" in row]
        assert 10 <= len(failed) <= 14
        assert first.score is not None
        assert first.score.failures["server"] == len(failed)
        assert any("start again to ask them" in note for note in first.notes)
        server.asked.clear()
        server.answer = lambda text, pictures: GREEN
        # the address may change meanwhile
        second = run(BLIND, endpoint(server.url + "/"), blind(world, tmp_path), TOOLS)
        assert sum(server.asked.values()) == len(failed)
    with chat_server(lambda text, pictures: GREEN) as server:
        whole = run(BLIND, endpoint(server.url), blind(world, tmp_path / "whole"), TOOLS)
    assert whole.score is not None
    assert second.score is not None
    assert second.score.strict == whole.score.strict
    assert (tmp_path / "items.jsonl").read_text() == (tmp_path / "whole/items.jsonl").read_text()


def test_other_settings_are_refused_in_a_plain_sentence(world, tmp_path):
    with chat_server(lambda text, pictures: GREEN) as server:
        run(BLIND, endpoint(server.url), blind(world, tmp_path, limit=3), TOOLS)
        for benchmark, subject, message in (
            (BLIND, endpoint(server.url, model="other"), 'whose model is "openai:tiny", not "openai:other"'),
            (BLIND, endpoint(server.url, temperature=0.5), "whose sampling is"),
            (EgVqa(), endpoint(server.url), "whose options is"),
        ):
            with pytest.raises(InputError, match=message):
                run(benchmark, subject, blind(world, tmp_path), TOOLS)
        other = tmp_path / "other.json"
        rows = json.loads((world / "unique.json").read_text())
        rows[0]["questions"][0]["question"] = "What else?"
        other.write_text(json.dumps(rows))
        with pytest.raises(InputError, match="whose questions is"):
            run(BLIND, endpoint(server.url), blind(world, tmp_path, data=other, videos=world), TOOLS)
        # More questions of the same data are no other settings.
        done = run(BLIND, endpoint(server.url), blind(world, tmp_path, limit=5), TOOLS)
        assert done.score is not None
        assert len(lines(tmp_path)) == len(done.score.items) == 5


def test_shards_beside_each_other_are_one_evaluation(world, tmp_path):
    with chat_server(lambda text, pictures: GREEN) as server:
        for index in (2, 1):
            done = run(BLIND, endpoint(server.url), blind(world, tmp_path, shard=Shard(index, 3)), TOOLS)
            assert done.score is None
            assert "other shards" in done.notes[0]
        with pytest.raises(InputError, match="8 of 24 questions have no answer yet"):
            run(BLIND, None, blind(world, tmp_path), TOOLS)
        last = run(BLIND, endpoint(server.url), blind(world, tmp_path, shard=Shard(3, 3)), TOOLS)
        assert (len(server.asked), set(server.asked.values())) == (24, {1})
        merged = run(BLIND, None, blind(world, tmp_path), TOOLS)
        whole = run(BLIND, endpoint(server.url), blind(world, tmp_path / "whole"), TOOLS)
        # More shares than videos: some have nothing to do.
        empty = run(BLIND, endpoint(server.url), blind(world, tmp_path / "many", shard=Shard(9, 10)), TOOLS)
    assert (empty.score, empty.waiting) == (None, 24)
    assert last.score is not None
    assert last.score.strict == merged.score.strict == whole.score.strict  # type: ignore[union-attr]
    assert sorted(path.name for path in tmp_path.glob("answers*")) == [
        "answers.1-of-3.jsonl", "answers.2-of-3.jsonl", "answers.3-of-3.jsonl",
    ]  # fmt: skip


def test_a_refused_key_ends_the_run_at_once(world, tmp_path):
    with chat_server(lambda text, pictures: 401) as server:
        with pytest.raises(ChatError, match="401"):
            run(BLIND, endpoint(server.url, key="sk-secret"), blind(world, tmp_path), TOOLS)
        assert sum(server.asked.values()) <= 4
    assert lines(tmp_path) == []
    assert not any("sk-secret" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_a_server_that_is_not_there_ends_the_run_after_a_few(world, tmp_path):
    with pytest.raises(RunError, match=r"none of the first 20 questions got an answer; the last: .*connection failed"):
        run(BLIND, endpoint("http://127.0.0.1:9/v1"), blind(world, tmp_path, max_failed_share=1), TOOLS)


def test_too_many_failures_end_the_run(world, tmp_path):
    def answer(text: str, pictures: int) -> str | int:
        return GREEN if sum(server.asked.values()) < 8 else 500

    with chat_server(answer) as server, pytest.raises(RunError, match=r"11 of 24 questions have no answer.*0\.1"):
        run(BLIND, endpoint(server.url), blind(world, tmp_path, max_failed_share=0.1), TOOLS)


# ---------------------------------------------------------------- videos


def test_a_bad_video_is_one_unscored_item(world, tmp_path):
    records = load_records(world / "test.json")
    videos = tmp_path / "videos"
    videos.mkdir()
    for number, record in enumerate(records):
        content = (world / record.video_path).read_bytes()
        # Another ending, no folder: found all the same.
        (videos / Path(record.video_path).with_suffix(".mkv" if number == 2 else ".mp4").name).write_bytes(
            content[:400] if number == 1 else content
        )
    with chat_server(lambda text, pictures: GREEN) as server:
        done = run(EgVqa(), endpoint(server.url), options(world, tmp_path / "out", videos=videos), TOOLS)
    bad = [row for row in lines(tmp_path / "out") if "error" in row]
    assert {row["id"] for row in bad} == {question.question_id for question in records[1].questions}
    assert {row["kind"] for row in bad} == {"video"}
    assert all(Path(records[1].video_path).name in row["error"] for row in bad)
    assert done.score is not None
    assert done.score.failures["video"] == 4
    assert done.score.coverage == pytest.approx(20 / 24)
    assert done.notes == ()  # asking again would not mend it


def test_a_folder_without_the_videos_is_noticed_before_anything_is_asked(world, tmp_path):
    (tmp_path / "empty").mkdir()
    with chat_server(lambda text, pictures: GREEN) as server:
        with pytest.raises(InputError, match=r"empty: no video for 24 of 24 questions \(shapes"):
            run(EgVqa(), endpoint(server.url), options(world, tmp_path / "o", videos=tmp_path / "empty"), TOOLS)
        with pytest.raises(InputError, match="no such folder of videos"):
            run(EgVqa(), endpoint(server.url), options(world, tmp_path / "o", videos=tmp_path / "nowhere"), TOOLS)
        assert not server.asked
    assert lines(tmp_path / "o") == []


def test_two_files_for_one_video_are_refused(world, tmp_path):
    record = load_records(world / "test.json")[0]
    name = Path(record.video_path).stem
    for ending in (".webm", ".avi"):
        (tmp_path / f"{name}{ending}").write_bytes(b"x")
    with (
        chat_server(lambda text, pictures: GREEN) as server,
        pytest.raises(InputError, match=f"could be {name}.avi or {name}.webm"),
    ):
        run(EgVqa(), endpoint(server.url), options(world, tmp_path / "o", videos=tmp_path), TOOLS)


# ---------------------------------------------------------------- a model of our own


@pytest.fixture(scope="module")
def native(world):
    return load(world / "model")


def subject(native, **changes) -> NativeSubject:
    sampling = SamplingOptions(max_tokens=12, temperature=0)
    return NativeSubject(native, "tiny", EgVqa(), wording="checkpoint", sampling=sampling, videos_at_once=2, **changes)


@pytest.mark.slow
def test_a_native_model_cut_off_and_sharded_answers_as_in_one_go(world, tmp_path, native):
    whole = run(EgVqa(), subject(native), options(world, tmp_path / "whole"), TOOLS)
    # As a kill would leave it: some answers, the last one half-written.
    text = (tmp_path / "whole/answers.jsonl").read_text()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "config.json").write_text((tmp_path / "whole/config.json").read_text())
    (cut / "answers.jsonl").write_text(text[: len(text) // 3])
    run(EgVqa(), subject(native), options(world, cut), TOOLS)
    for index in (1, 2):
        run(EgVqa(), subject(native), options(world, tmp_path / "shards", shard=Shard(index, 2)), TOOLS)
    assert whole.score is not None
    assert sorted((cut / "answers.jsonl").read_text().splitlines()) == sorted(text.splitlines())
    for other in (cut, tmp_path / "shards"):
        assert (other / "items.jsonl").read_text() == (tmp_path / "whole/items.jsonl").read_text()
        assert (other / "scores.json").read_text() == (tmp_path / "whole/scores.json").read_text()


@pytest.mark.alone
@pytest.mark.slow
def test_processes_of_jax_share_an_evaluation(world, tmp_path, native):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "tests.evaluation.evaluation_process", str(world), str(tmp_path / "two"), str(port)]
    processes = [
        subprocess.Popen([*words, str(n), "2"], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
        for n in range(2)
    ]
    said = [process.communicate(timeout=900)[0].splitlines()[-1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert said == ["scored", "the first process scores"]
    files = {path.name: path for path in (tmp_path / "two").glob("answers*")}
    assert set(files) == {"answers.1-of-2.jsonl", "answers.2-of-2.jsonl"}
    assert [len(path.read_text().splitlines()) for path in files.values()] == [12, 12]
    run(EgVqa(), subject(native), options(world, tmp_path / "one"), TOOLS)
    assert (tmp_path / "two/items.jsonl").read_text() == (tmp_path / "one/items.jsonl").read_text()


def test_other_weights_are_other_settings(world, tmp_path, native):
    run(EgVqa(), subject(native), options(world, tmp_path, limit=1), TOOLS)
    params = jax.tree.map(lambda leaf: leaf * 1.5, native.params)
    with pytest.raises(InputError, match="whose weights is"):
        run(EgVqa(), subject(replace(native, params=params)), options(world, tmp_path, limit=1), TOOLS)


def test_questions_that_cannot_be_put_are_named(world, tmp_path, native):
    records = load_records(world / "test.json")
    data = tmp_path / "odd.json"
    rows = json.loads((world / "test.json").read_text())
    rows[0]["questions"][0]["question"] = "What is <|video_pad|>?"
    data.write_text(json.dumps(rows))
    done = run(EgVqa(), subject(native), options(world, tmp_path / "o", data=data, videos=world), TOOLS)
    (bad,) = [row for row in lines(tmp_path / "o") if "error" in row]
    assert (bad["id"], bad["kind"]) == (records[0].questions[0].question_id, "prompt")
    assert done.score is not None
    assert done.score.failures["prompt"] == 1


# ---------------------------------------------------------------- the command line


def command(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *words])
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def test_the_command_evaluates_a_model(world, tmp_path, capsys):
    code, out, err = command(
        capsys, "eg_vqa", "--data", str(world / "test.json"), "--model", str(world / "model"), "--out", str(tmp_path),
        "--similarity", "tokens", "--max-tokens", "8", "--limit", "4", "--no-progress", "--json",
        "--benchmark.condition", "question_only", "--benchmark.rule", "exact",
    )  # fmt: skip
    assert code == 0, err
    summary = json.loads(out)
    assert summary["n"] == 4
    assert summary["details"]["condition"] == "question_only"
    assert summary["details"]["answers"] == {"by": "rule", "rule": "exact"}
    assert "--wording checkpoint" in err


def test_files_are_scored_without_a_model(world, tmp_path, capsys):
    items = EgVqa().read(world / "test.json")
    for name, answer in (("anna", "green"), ("ben", "red"), ("cem", "red")):
        rows = [{"question_id": item.id, "model_response_raw": GREEN.replace("green</a", f"{answer}</a")}
                for item in items]  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    words = ["eg_vqa", "--data", str(world / "test.json"), "--similarity", "tokens", "--no-progress", "--json"]
    one = {}
    for name in ("anna", "ben", "cem"):
        code, out, err = command(capsys, *words, "--predictions", str(tmp_path / f"{name}.json"))
        assert code == 0, err
        one[name] = json.loads(out)
    code, out, err = command(
        capsys, *words, "--predictions", *(str(tmp_path / f"{name}.json") for name in one), "--out", str(tmp_path / "o")
    )
    assert code == 0, err
    mean = json.loads(out)
    for key in ("answer_strict", "soft_eg_f1", "gas"):
        for kind in ("official", "strict"):
            wanted = sum(found[kind][key] for found in one.values()) / 3
            assert mean[kind][key] == pytest.approx(wanted), key
    assert mean["intervals"]["answer_strict"]["mean"] == pytest.approx(mean["strict"]["answer_strict"])
    assert set(mean["details"]["annotators"]) == {"anna", "ben", "cem"}
    assert load_scored_run(tmp_path / "o/annotators/ben").scores["strict"] == one["ben"]["strict"]
    row = load_scored_run(tmp_path / "o").rows[0]
    assert row["parsed"]["answer"] == "anna: green; ben: red; cem: red"


def test_a_judge_behind_an_endpoint_is_validated_against_people(world, tmp_path, capsys, monkeypatch):
    def verdict(text: str, pictures: int) -> str | int:
        asked = json.loads(text)
        return json.dumps({"reason": "so", "label": "fully" if asked["reference_answer"] == "green" else "incorrect"})

    items = EgVqa().read(world / "test.json")
    (tmp_path / "p.json").write_text(
        json.dumps([{"question_id": item.id, "model_response_raw": GREEN} for item in items])
    )
    right = [item.reference is not None and item.reference["answer"] == "green" for item in items]
    labels = {item.id: "fully" if one else "incorrect" for item, one in zip(items, right, strict=True)}
    labels[items[0].id] = "partially"
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    monkeypatch.setenv("JUDGE_KEY", "sk-judge")
    with chat_server(verdict) as server:
        words = ["eg_vqa", "--data", str(world / "test.json"), "--similarity", "tokens", "--no-progress", "--json",
                 "--predictions", str(tmp_path / "p.json"), "--out", str(tmp_path / "o"), "--judge", "openai:judge",
                 "--judge-base-url", server.url, "--judge-api-key-env", "JUDGE_KEY",
                 "--human-labels", str(tmp_path / "labels.json")]  # fmt: skip
        code, out, err = command(capsys, *words)
        assert code == 0, err
        asked = sum(server.asked.values())
        assert server.keys == {"Bearer sk-judge"}
        again, same, _ = command(capsys, *words)
        assert (again, json.loads(same)) == (0, json.loads(out))
        assert sum(server.asked.values()) == asked  # verdicts are kept
    found = json.loads(out)
    assert found["official"]["answer_strict"] == pytest.approx(100 * sum(right) / 24)
    validation = found["judge_validation"]
    assert (validation["n"], validation["exact"]) == (24, pytest.approx(23 / 24))
    assert sum(validation["matrix"][1]) == 1
    assert not any("sk-judge" in path.read_text() for path in (tmp_path / "o").rglob("*") if path.is_file())


OWN = """
from dataclasses import dataclass
import json
from vrjax.evaluation.benchmark import *
from vrjax.evaluation.intervals import clustered_intervals
from collections import Counter

@dataclass(frozen=True)
class Colours(Benchmark):
    wanted: str = "green"
    name = "colours"
    headline = "right"
    prompt = PromptForm(name="plain", version=1, template="{question}")

    def read(self, data):
        return [Item(id=row["id"], video=row["video"], question=row["ask"], reference={"answer": self.wanted})
                for row in json.loads(data.read_text())]

    def question(self, item):
        return item.question

    def parse(self, item, text):
        found = self.wanted in text
        return Parsed(values={"answer": self.wanted} if found else {}, failure=None if found else "no colour")

    def read_submission(self, path, items):
        return [Prediction(id=name, text=text) for name, text in json.loads(path.read_text()).items()]

    def write_submission(self, path, items, predictions):
        path.write_text(json.dumps({one.id: one.text for one in predictions}))

    async def score(self, items, predictions, tools):
        said = {one.id: one.text for one in predictions}
        scores = [ItemScore(id=item.id, video=item.video, types=(),
                            values={"right": float(self.wanted in (said.get(item.id) or ""))}) for item in items]
        found = clustered_intervals({"right": [one.values["right"] for one in scores]}, [one.video for one in scores])
        mean = found["right"].mean
        return BenchmarkScore(benchmark=self.name, official={"right": 100 * mean}, strict={"right": mean},
                              intervals=found, coverage=1.0, by_type={}, failures=Counter(), items=scores)
"""


def test_a_benchmark_of_ones_own_in_one_file(world, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(OWN)
    record = load_records(world / "test.json")[0]
    questions = [{"id": str(n), "video": Path(record.video_path).stem, "ask": f"Colour {n}?"} for n in range(4)]
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    videos = str((world / record.video_path).parent)
    with chat_server(lambda text, pictures: "it is green" if text in ("Colour 1?", "Colour 2?") else "red") as server:
        code, out, err = command(
            capsys, str(tmp_path / "mine.py"), "--data", str(tmp_path / "questions.json"), "--videos", videos, "--llm",
            "openai:tiny", "--base-url", server.url, "--out", str(tmp_path / "o"), "--no-progress", "--json",
            "--frames.frames", "2", "--frames.min-pixels", "3136", "--frames.max-pixels", "3136",
        )  # fmt: skip
        assert code == 0, err
        assert json.loads(out)["strict"] == {"right": 0.5}
        assert json.loads((tmp_path / "o/submission.json").read_text())["1"] == "it is green"
    code, out, err = command(
        capsys, str(tmp_path / "mine.py"), "--data", str(tmp_path / "questions.json"), "--predictions",
        str(tmp_path / "o/submission.json"), "--json", "--benchmark.wanted", "red",
    )  # fmt: skip
    assert (code, json.loads(out)["strict"]) == (0, {"right": 0.5})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "must define one subclass of Benchmark, defines none"),
        ("from vrjax.evaluation.benchmark import Benchmark\nclass A(Benchmark): pass", "A lacks parse, question, read"),
        ("1/0", r"fails when run, line 1 \(ZeroDivisionError"),
        ("def :", r"fails when run, line 1 \(SyntaxError"),
    ],
)
def test_files_that_define_no_benchmark_are_named(tmp_path, capsys, text, message):
    (tmp_path / "mine.py").write_text(text)
    code, _, err = command(capsys, str(tmp_path / "mine.py"), "--data", "x", "--out", str(tmp_path / "o"))
    assert code == 2
    assert re.search(message, err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such"], "'no_such' is no benchmark"),
        (["absent.py"], "absent.py: no such file"),
        (["eg_vqa", "--model", "m", "--llm", "openai:x"], "--model and --llm are given"),
        (["eg_vqa", "--shard", "1/2"], "--shard is for --model and --llm"),
        (["eg_vqa", "--model", "m", "--metric", "gas"], "--metric is what --watch"),
        (["eg_vqa", "--llm", "openai:x", "--shard", "3/2"], "the shard 3/2 is none"),
        (["eg_vqa", "--limit", "0"], "--limit 0"),
        (["eg_vqa"], "holds no evaluation"),
        (["eg_vqa", "--model", "nowhere/at all"], "no such model directory"),
    ],
)
def test_bad_usage(world, tmp_path, capsys, words, message):
    rest = ["--data", str(world / "test.json"), "--out", str(tmp_path / "o"), "--similarity", "tokens"]
    code, _, err = command(capsys, words[0], *rest, *words[1:])
    assert (code, "Traceback" in err) == (2, False)
    assert message in err


def test_out_may_be_missing_only_for_files(world, capsys):
    code, _, err = command(capsys, "eg_vqa", "--data", str(world / "test.json"), "--llm", "openai:x")
    assert (code, "--out is missing" in err) == (2, True)


def test_questions_without_labels_are_answered_but_not_scored(world, tmp_path, capsys):
    rows = json.loads((world / "test.json").read_text())
    for row in rows:
        for question in row["questions"]:
            del question["answer"], question["evidence"]
    (tmp_path / "unlabelled.json").write_text(json.dumps(rows))
    rest = ["--data", str(tmp_path / "unlabelled.json"), "--similarity", "tokens"]
    with chat_server(lambda text, pictures: GREEN) as server:
        code, _, err = command(
            capsys, "eg_vqa", *rest, "--videos", str(world), "--llm", "openai:tiny", "--base-url", server.url, "--out",
            str(tmp_path / "o"), "--no-progress", "--frames.frames", "2", "--frames.max-pixels", "100352",
        )  # fmt: skip
    assert code == 0, err
    assert "have no labels, so nothing can be scored" in err
    assert not (tmp_path / "o/scores.json").exists()
    submission = tmp_path / "o/eg_vqa_result.json"
    assert len(json.loads(submission.read_text())) == 24
    code, _, err = command(capsys, "eg_vqa", *rest, "--predictions", str(submission))
    assert code == 2
    assert "have no labels" in err


def test_asking_an_endpoint_loads_no_jax(world, tmp_path):
    script = (
        "import sys\nfrom vrjax.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit as end: print(end.code, 'jax' in sys.modules)"
    )
    with chat_server(lambda text, pictures: GREEN) as server:
        words = ["evaluate", "eg_vqa", "--data", str(world / "test.json"), "--out", str(tmp_path), "--llm",
                 "openai:tiny", "--base-url", server.url, "--similarity", "tokens", "--limit", "1", "--json",
                 "--frames.frames", "2", "--frames.max-pixels", "100352"]  # fmt: skip
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr
