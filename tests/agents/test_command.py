"""`vrjax agent` from end to end, the page that it writes, and an experiment's run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments import caviar_neptune
from experiments.caviar import Options
from experiments.caviar_lvbench import LvBench
from experiments.caviar_lvbench import main as lvbench
from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import ShapesScript
from vrjax.agents import read_traces
from vrjax.agents.trace_page import write_trace_page
from vrjax.cli import main
from vrjax.errors import InputError

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>"


def vrjax(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


class HostileScript(ShapesScript):
    def program(self, asked):
        return super().program(asked) + f"\n{HOSTILE}"


class LetterScript(ShapesScript):
    """Answers with the letter of the colour's option."""

    def reasoned(self, asked):
        found = super().reasoned(asked)
        return {**found, "answer": letter(asked, found["answer"])}

    def _answer(self, asked):
        colour = super()._answer(asked)
        return None if colour is None else letter(asked, colour)


def letter(asked, colour: str) -> str:
    return re.search(rf"([A-E])[.)]+ *{colour}", asked.text)[1]


def test_a_question_and_what_is_made_of_its_traces(tmp_path, shapes_tasks, capsys):
    task, out = shapes_tasks[0], tmp_path / "out"
    spoken = tmp_path / "t.srt"
    spoken.write_text("1\n00:00:01,000 --> 00:00:02,000\nLook at the red one.\n")
    with scripted_endpoint(HostileScript()) as endpoint:
        llm = ("--llm", "openai:scripted", "--base-url", endpoint.url)
        more = ("--fps", 2, "--window", 10, "--out", out, "--transcript", spoken)
        assert vrjax("agent", task.video, task.question, *llm, *more) == 0
        asked = sum(endpoint.forms.values())
        assert vrjax("agent", task.video, task.question, *llm, *more, "--json") == 0
        assert sum(endpoint.forms.values()) == asked  # all replies were kept
    shown = capsys.readouterr().out
    (run,) = read_traces(out).values()
    assert f"Answer  {run.answer}" in shown
    assert [trace.strategy for trace in run.traces] == [
        "all",
        "get_segment+retrieval_qa+asr_understanding",
        "direct:retrieval_qa",
    ]
    assert vrjax("agent", "replay", out) == 0
    assert vrjax("agent", "page", out, "--out", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;" in page
    assert "data:image/jpeg" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)


def test_examples_and_subset_by_a_file_of_scores(tmp_path, shapes_tasks, capsys):
    out, scores = tmp_path / "out", tmp_path / "scores.json"
    with scripted_endpoint(ShapesScript()) as endpoint:
        llm = ("--llm", "openai:scripted", "--base-url", endpoint.url, "--out", out, "--fps", 2)
        assert vrjax("agent", shapes_tasks[0].video, shapes_tasks[0].question, *llm) == 0
    scores.write_text(json.dumps({"question": {"all": 0, "get_segment+retrieval_qa": 1, "direct:retrieval_qa": 0}}))
    examples = tmp_path / "examples.json"
    words = (out, "--scores", scores, "--out", examples, "--count", 1)
    assert vrjax("agent", "build-critic-examples", *words) == 0
    assert json.loads(examples.read_text())[0]["winners"] == ["get_segment+retrieval_qa"]
    assert vrjax("agent", "best-subset", out, "--scores", scores) == 0
    assert "best: --subset get_segment+retrieval_qa" in capsys.readouterr().out
    assert vrjax("agent", "build-critic-examples", out, "--out", examples) == 2


def test_bad_usage_is_said_before_a_model_is_asked(tmp_path, shapes_tasks, capsys):
    llm = ("--llm", "openai:x", "--base-url", "http://127.0.0.1:9/v1")
    video = shapes_tasks[0].video
    assert vrjax("agent", tmp_path / "no.mp4", "What?", *llm) == 2
    assert vrjax("agent", video, "What?", *llm, "--strategies", "all", "shout") == 2
    assert vrjax("agent", video, "What?", *llm, "--mode", "direct_transcript") == 2
    assert vrjax("agent", video, "What?", *llm, "--mode", "agent_best_subset") == 2
    said = capsys.readouterr().err
    assert "'shout' is no tool" in said
    assert "best fixed subset" in said


def test_an_experiment_answers_and_scores_a_benchmark(tmp_path, shapes_folder, capsys):
    clips = sorted((shapes_folder / "videos").glob("*.mp4"))
    rows = [
        {
            "key": f"q{number}",
            "video_id": clip.stem,
            "question": "Which colour is seen most?",
            **{f"answer_choice_{place}": name for place, name in enumerate(("red", "green", "blue", "yellow"))},
            "answer_id": 0,
            "question_type": "Visual",
        }
        for number, clip in enumerate(clips[:3])
    ]  # fmt: skip
    fixture = json.loads(Path("tests/fixtures/neptune_full.json").read_text())
    data = tmp_path / "neptune_full.json"
    data.write_text(json.dumps([{**fixture[0], **row} for row in rows]))
    with scripted_endpoint(LetterScript()) as endpoint:
        options = Options(
            data=data, videos=shapes_folder / "videos", out=tmp_path / "out", llm="openai:scripted",
            base_url=endpoint.url, fps=2.0, window=10,
        )  # fmt: skip
        assert caviar_neptune.main(options) == 0
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["questions"] == 3
    assert scores["paper_percent"] == 77.2
    assert sum(scores["agent"]["chosen"].values()) == 3
    answers = [run.answer for run in read_traces(tmp_path / "out").values()]
    assert scores["strict"]["accuracy"] == pytest.approx(answers.count("A") / 3)
    assert scores["coverage"] == 1


def test_lvbench_refuses_transcripts(tmp_path):
    options = Options(data=tmp_path, videos=tmp_path, out=tmp_path, llm="openai:x", transcripts=tmp_path)
    assert not LvBench.speech
    with pytest.raises(InputError, match="neither audio nor transcripts"):
        lvbench(options)


def test_the_page_shows_what_is_not_there(tmp_path, shapes_tasks):
    from tests.agents.test_pieces import make_run

    run = make_run("q", all=None).model_copy(update={"question": HOSTILE, "error": HOSTILE})
    write_trace_page(tmp_path / "p.html", [run], references={"q": HOSTILE}, videos={"q": tmp_path / "no.mp4"})
    page = (tmp_path / "p.html").read_text()
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 3
