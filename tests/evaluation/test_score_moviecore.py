"""`vrjax score moviecore` against a local judge: faults, a run that is stopped, several files, System-1."""

import json
import re
from pathlib import Path

import pytest

from tests.llm.faulty_server import faulty_server
from vrjax.cli import main
from vrjax.evaluation.dimension_judge import DIMENSIONS

CLIPS = 6


def answers(score, clips=CLIPS):
    """A file whose answers a judge gives this score; "item 0" and so on make the server fail now and then."""
    return {
        f"clip-{clip}.mp4": [
            {"question": f"Why, item {2 * clip + n}?", "answer": "So.", "pred": f"Thus: {score}",
             "classification": "Causal, Character" if n else "Thematic"}
            for n in range(2)
        ]
        for clip in range(clips)
    }  # fmt: skip


def verdict(sent):
    """What the judge says: the number at the end of the answer, for every dimension and for a match."""
    shown = json.loads(sent["messages"][1]["content"])
    score = int(re.search(r"(\d)\D*$", shown["answer"])[1])
    if "match" in sent["response_format"]["json_schema"]["name"]:
        return json.dumps({"reason": "so", "correct": "yes" if score > 2 else "no", "score": score})
    return json.dumps({"reason": "so", "score": score})


def written(path, value):
    path.write_text(json.dumps(value))
    return str(path)


def run(capsys, tmp_path, *words):
    with pytest.raises(SystemExit) as ended:
        main(["score", "moviecore", *words, "--json", "--cache-dir", str(tmp_path / "cache"), "--metrics", "cider"])
    printed = capsys.readouterr()
    return ended.value.code or 0, json.loads(printed.out) if printed.out else None, printed.err


def test_a_judge_with_faults_and_no_call_twice(tmp_path, capsys):
    """The first call about an item may end in an error, a cut reply, fences and so on; every verdict comes."""
    path = written(tmp_path / "base.json", answers(3, clips=11))
    with faulty_server(reply=verdict, slow_s=0.2) as server:
        judge = ("--judge", "openai:judge-1", "--base-url", server.url)
        code, found, err = run(capsys, tmp_path, path, *judge, "--save-judged", str(tmp_path / "judged"))
        assert code == 0, err
        (row,) = found["systems"]
        assert row["means"]["accuracy"]["mean"] == 3
        assert row["official"]["average"] == 3
        assert row["coverage"] == 1
        assert found["calls"]["calls"] > 5 * 22
        assert found["judge"] == f"openai:judge-1 at {server.url}, dimensions v1"
        calls = server.calls
        code, again, _ = run(capsys, tmp_path, path, *judge)
        assert (code, server.calls, again["systems"]) == (0, calls, found["systems"])
    # The verdicts in the written file need no judge.
    code, offline, _ = run(capsys, tmp_path, str(tmp_path / "judged/base.json"))
    assert (code, offline["systems"]) == (0, found["systems"])


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path, capsys):
    path = written(tmp_path / "base.json", answers(4))
    said = []

    def until_ten(sent):
        said.append(sent)
        return verdict(sent) if len(said) <= 10 else "no verdict at all"

    with faulty_server(reply=until_ten, always="none") as server:
        judge = ("--judge", "openai:judge-1", "--base-url", server.url, "--concurrency", "1")
        code, found, _ = run(capsys, tmp_path, path, *judge)
        assert code == 0
        (row,) = found["systems"]
        assert row["coverage"] < 1
        assert row["failures"] == {"no verdict: bad_reply": pytest.approx(2 * CLIPS, abs=2)}
        assert row["means"]["accuracy"]["mean"] == 4  # what has no verdict is no 0
        server.reply, before = verdict, server.calls
        code, found, _ = run(capsys, tmp_path, path, *judge)
        assert server.calls - before == 5 * 2 * CLIPS - 10
        assert (code, found["systems"][0]["coverage"]) == (0, 1)


def test_several_files_are_compared_with_the_first(tmp_path, capsys):
    paths = [
        written(tmp_path / f"{name}.json", answers(score)) for name, score in (("base", 2), ("ace", 3), ("top", 5))
    ]
    rows = tmp_path / "rows.jsonl"
    with faulty_server(reply=verdict, always="none") as server:
        judge = ("--judge", "openai:judge-1", "--base-url", server.url)
        code, found, _ = run(capsys, tmp_path, *paths, *judge, "--per-question", str(rows))
    assert code == 0
    base, ace, top = found["systems"]
    assert (base["gains"], ace["gains"]["average"]["mean"], top["gains"]["depth"]["mean"]) == (None, 1, 3)
    assert (ace["gains"]["average"]["low"], ace["paired"]) == (1, 2 * CLIPS)
    assert ace["by_class"]["Character"] == {"n": CLIPS, **dict.fromkeys([*DIMENSIONS, "average"], 3)}
    written_rows = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["system"] for row in written_rows] == ["base"] * 12 + ["ace"] * 12 + ["top"] * 12
    assert written_rows[0] == {
        "system": "base", "id": "clip-0_1", "types": ["Thematic"], **dict.fromkeys([*DIMENSIONS, "average"], 2),
        "failure": None, "notes": dict.fromkeys(DIMENSIONS, "so"),
    }  # fmt: skip


def test_tables(tmp_path, capsys):
    path = Path(__file__).parent.parent / "fixtures/moviecore_predictions.json"
    data = json.loads(path.read_text())
    for rows in data.values():
        for row in rows:
            row["judged"] = dict.fromkeys(DIMENSIONS, 3)
    files = [written(tmp_path / f"{name}.json", data) for name in ("[red]one", "two")]
    with pytest.raises(SystemExit) as ended:
        main(["score", "moviecore", *files, "--metrics", "bleu"])
    out = capsys.readouterr().out
    assert not ended.value.code
    assert "[red]one" in out  # no markup of names
    for words in ("official aggregation", "Gains over", "BLEU-4", "Average by class", "Thematic", "empty answer"):
        assert words in out


def test_system_1_stands_beside(tmp_path, capsys):
    core = written(tmp_path / "core.json", answers(3))
    chat = answers(4)
    chat["clip-0.mp4"][0]["pred"] = "Thus: 1"
    with faulty_server(reply=verdict, always="none") as server:
        judge = ("--judge", "openai:judge-1", "--base-url", server.url)
        code, found, _ = run(
            capsys, tmp_path, core, *judge, "--moviechat", written(tmp_path / "chat.json", chat),
            "--save-judged", str(tmp_path / "judged"),
        )  # fmt: skip
    assert code == 0
    beside = found["system_1"]
    assert beside["moviechat_accuracy"] == pytest.approx(11 / 12)
    assert beside["moviechat"]["mean"] == pytest.approx(5 * 11 / 12)
    assert beside["moviechat_official"]["accuracy"] == pytest.approx(100 * 11 / 12)
    assert beside["gap"]["mean"] == pytest.approx(5 * 11 / 12 - 3)
    assert beside["clips"] == CLIPS
    code, offline, _ = run(
        capsys, tmp_path, str(tmp_path / "judged/core.json"), "--moviechat", str(tmp_path / "judged/chat.json")
    )
    assert (code, offline["system_1"]) == (0, beside)


def test_a_judge_that_fails_everywhere_is_an_error_with_its_kind(tmp_path, capsys):
    path = written(tmp_path / "base.json", answers(3, clips=1))
    with faulty_server(always="unauthorised") as server:
        code, found, err = run(capsys, tmp_path, path, "--judge", "openai:judge-1", "--base-url", server.url)
    assert (code, found) == (1, None)
    assert "the judge gave no usable verdict (unauthorised ×10)" in err


def test_wrong_usage(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    whole, part = written(tmp_path / "whole.json", answers(3)), written(tmp_path / "part.json", answers(3, clips=2))
    for words, sentence in (
        ((whole,), "hold no verdicts. Name one (--judge)"),
        ((whole, "--judge", "openai:gpt-4o-mini"), "OPENAI_API_KEY"),
        ((whole, "--judge", "gpt-4o-mini"), "names no model"),
        ((whole, part), "part.json: no answer to clip-2_1"),
        ((whole, whole), "is given twice"),
        ((part, whole), "whole.json: no such questions: clip-2_1"),
        ((str(tmp_path / "nowhere.json"),), "nowhere.json: cannot be read"),
    ):
        code, _, err = run(capsys, tmp_path, *words)
        assert (code, err.count("\n")) == (2, 1), err
        assert sentence in err
