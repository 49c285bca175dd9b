"""`vrjax evaluate --agent`: a benchmark answered by agents, their traces beside the answers, whatever kills it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.scripted_endpoint import scripted_endpoint
from tests.agents.test_command import LetterScript, vrjax
from vrjax.agents import read_traces

ROOT = Path(__file__).parents[2]
FAST = ("--agent-options.fps", 2, "--agent-options.window", 10, "--no-progress", "--report-frames", 0)


@pytest.fixture(scope="module")
def neptune(tmp_path_factory, shapes_folder):
    """Ten questions in Neptune's form about the clips of shapes."""
    clips = sorted((shapes_folder / "videos").glob("*.mp4"))
    colours = ("red", "green", "blue", "yellow")
    (form,) = json.loads((ROOT / "tests/fixtures/neptune_full.json").read_text())[:1]
    rows = [
        {
            **form,
            "key": f"q{number}",
            "video_id": clips[number % len(clips)].stem,
            "question": f"Which colour is seen most? ({number})",
            **{f"answer_choice_{place}": name for place, name in enumerate(colours)},
            "answer_id": 0,
            "question_type": "Visual",
        }
        for number in range(10)
    ]
    path = tmp_path_factory.mktemp("neptune") / "neptune_full.json"
    path.write_text(json.dumps(rows))
    return path


def words(data, videos, out, url, mode="agent"):
    return ("evaluate", "neptune", "--data", data, "--videos", videos, "--out", out, "--llm", "openai:scripted",
            "--base-url", url, "--agent", mode, *FAST)  # fmt: skip


def answers(out):
    rows = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    return {row["id"]: row.get("text") for row in rows}


def test_traces_lie_beside_the_answers_and_nothing_is_asked_twice(tmp_path, neptune, shapes_folder, capsys):
    out = tmp_path / "out"
    with scripted_endpoint(LetterScript()) as endpoint:
        command = words(neptune, shapes_folder / "videos", out, endpoint.url, "critic")
        assert vrjax(*command) == 0
        asked, traces = sum(endpoint.forms.values()), (out / "traces.jsonl").read_bytes()
        scores = json.loads((out / "scores.json").read_text())
        runs = read_traces(out)
        assert answers(out) == {name: run.answer for name, run in runs.items()}
        assert len(runs) == 10
        assert all(len(run.traces) == 3 and run.verdict is not None for run in runs.values())
        right = sum(run.answer == "A" for run in runs.values()) / 10
        assert scores["strict"]["accuracy"] == pytest.approx(right)
        assert (out / "trace.html").is_file()
        # A kill after the third run was written, before its answer was.
        lines = (out / "answers.jsonl").read_bytes().splitlines(keepends=True)
        (out / "answers.jsonl").write_bytes(b"".join(lines[:2]))
        assert vrjax(*command) == 0
        assert sum(endpoint.forms.values()) == asked
        assert (out / "traces.jsonl").read_bytes() == traces
        assert json.loads((out / "scores.json").read_text())["strict"] == scores["strict"]
        assert vrjax(*command, "--agent-options.steps", 3) == 2
        assert vrjax(*command[:-2], "--agent", "agent") == 2
    assert "holds a run whose agent" in capsys.readouterr().err
    assert vrjax("agent", "replay", out) == 0


def test_a_question_without_an_answer_stands_and_a_failed_one_is_asked_again(tmp_path, neptune, shapes_folder):
    out, broken = tmp_path / "out", True

    def script(asked):
        if broken and "(3)" in asked.text:
            return {"choices": []} if asked.form else "I cannot."
        if broken and "(4)" in asked.text:
            return 400
        return LetterScript()(asked)

    with scripted_endpoint(script) as endpoint:
        command = (*words(neptune, shapes_folder / "videos", out, endpoint.url), "--agent-options.steps", 2)
        assert vrjax(*command) == 0
        first = {row["id"]: row for row in map(json.loads, (out / "answers.jsonl").read_text().splitlines())}
        assert (first["q3"]["kind"], first["q4"]["kind"]) == ("no_answer", "server")
        broken = False
        assert vrjax(*command) == 0
    found = answers(out)
    assert found["q3"] is None
    assert found["q4"] in set("ABCD")
    assert sum(text is not None for text in found.values()) == 9


def test_what_does_not_fit_is_said_first(tmp_path, neptune, capsys):
    base = ("evaluate", "neptune", "--data", neptune, "--out", tmp_path)
    assert vrjax(*base, "--model", "DIR", "--agent", "agent") == 2
    assert vrjax(*base, "--llm", "openai:x", "--agent-options.steps", 2) == 2
    said = capsys.readouterr().err
    assert "--agent needs --llm" in said
    assert "are for --agent" in said
    lvbench = ("evaluate", "lvbench", "--data", neptune, "--out", tmp_path, "--llm", "openai:x", "--agent", "agent")
    assert vrjax(*lvbench, "--transcripts", tmp_path) != 0


@pytest.mark.slow
def test_five_kills_change_nothing(tmp_path, neptune, shapes_folder):
    class Slow(LetterScript):
        def __call__(self, asked):
            time.sleep(0.1)
            return super().__call__(asked)

    def start(out, url):
        command = [sys.executable, "-m", "vrjax.cli", *map(str, words(neptune, shapes_folder / "videos", out, url))]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    with scripted_endpoint(Slow()) as endpoint:
        whole = start(tmp_path / "whole", endpoint.url)
        assert whole.wait(timeout=300) == 0, whole.stderr.read()
        calls = sum(endpoint.forms.values())
        traces, lines, kills = tmp_path / "killed" / "traces.jsonl", 0, 0
        while kills < 5:
            process = start(tmp_path / "killed", endpoint.url)
            limit = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < limit:
                now = traces.read_bytes().count(b"\n") if traces.exists() else 0
                if now > lines:
                    lines = now
                    break
                time.sleep(0.02)
            assert process.poll() is None, process.stderr.read()
            process.kill()
            process.wait()
            kills += 1
            if lines >= 9:
                break
        last = start(tmp_path / "killed", endpoint.url)
        assert last.wait(timeout=300) == 0, last.stderr.read()
        again = sum(endpoint.forms.values()) - calls
    one, other = read_traces(tmp_path / "whole"), read_traces(tmp_path / "killed")
    assert {name: run.without_times() for name, run in one.items()} == {
        name: run.without_times() for name, run in other.items()
    }
    assert answers(tmp_path / "whole") == answers(tmp_path / "killed")
    assert again <= calls + 4 * 3 * kills  # the replies that were under way at a kill, and no others
