"""The whole building of EG-VQA on real records with a fifth of the calls faulty, and kills at any moment."""

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from data_tools.cli import main
from tests.data_tools.eg_vqa_script import judged, judges, made_up, real_records, rows, script, start, writer
from tests.llm.scripted_server import scripted_server
from vrjax.records import load_records, save_records

REALDATA = os.environ.get("VRJAX_REALDATA")
pytestmark = pytest.mark.slow


@pytest.mark.skipif(not REALDATA, reason="VRJAX_REALDATA names no folder")
def test_sixty_real_records_with_a_fifth_of_the_calls_faulty(tmp_path, capsys):
    """Twenty of each source: nothing is lost, and no answered request is sent again."""
    records = real_records(Path(REALDATA or ""), tmp_path / "all", 60)
    save_records(tmp_path / "records.jsonl", records)
    patience = ["--attempts", "12", "--concurrency", "16"]
    with scripted_server(script, fault_share=0.2) as server:
        for stage, words in (("generate", writer(server.url)), ("screen", judges(server.url))):
            assert main(["eg-vqa", stage, "--work", str(tmp_path), *words, *patience]) == 0
        assert max(server.asked.values()) == 1
        calls, faults = server.calls, server.faults
    candidates = rows(tmp_path / "candidates.jsonl")
    assert Counter(row["video_id"] for row in candidates) == {one.video_id: 4 for one in records}
    asked = [question["question_id"] for row in candidates for question in row["questions"]]
    screened = rows(tmp_path / "screened.jsonl")
    assert [row["question_id"] for row in screened] == asked
    decisions = Counter()
    for row in screened:
        votes = [judged(model, row["question"]["question"])["answer_correct"] >= 4 for model in ("judge-a", "judge-b")]
        decisions["queued" if votes[0] != votes[1] else "accepted" if votes[0] else "rejected"] += 1
    assert Counter(row["decision"] for row in screened) == decisions
    assert [row["question_id"] for row in rows(tmp_path / "queue.jsonl")] == [
        row["question_id"] for row in screened if row["decision"] == "queued"
    ]
    stages = {"assemble": [], "audit": ["--count", "50"], "split": ["--test-videos", "10"], "statistics": []}
    for stage, words in stages.items():
        assert main(["eg-vqa", stage, "--work", str(tmp_path), *words]) == 0
    capsys.readouterr()
    split = [load_records(tmp_path / f"{name}.json") for name in ("train", "test")]
    assert sum(len(one.questions) for part in split for one in part) == decisions["accepted"]
    assert 0.15 < faults / calls < 0.25
    print(f"{len(asked)} questions, {calls} calls, {faults} of them faulty, {dict(decisions)}")


def test_a_kill_at_any_moment_repeats_no_request_whose_reply_was_kept(tmp_path):
    """SIGKILL at random moments. What may be asked twice is what was under way then, at most `concurrency` a kill."""
    save_records(tmp_path / "records.jsonl", made_up(20))
    chance, concurrency, kills = random.Random(3), 4, 4

    def slow(sent: dict) -> str:
        time.sleep(0.02)
        return script(sent)

    def texts(messages: list) -> str:
        return json.dumps([message["content"] for message in messages])

    def kept() -> set[str]:
        found = set()
        for path in (tmp_path / "replies").rglob("[!.]*.json"):
            messages = json.loads(path.read_text())["request"]["messages"]
            found.add(json.dumps(["".join(part["text"] for part in one["parts"]) for one in messages]))
        return found

    def begin():
        return start("generate", "--work", tmp_path, *writer(server.url), "--concurrency", concurrency)

    with scripted_server(slow) as server:
        process = begin()
        for number in range(1, kills + 1):
            until = time.monotonic() + 60
            while len(server.bodies) < 13 * number and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            known = kept()
            time.sleep(0.3)  # for calls that the server still has in hand
            sent = len(server.bodies)
            process = begin()
            while len(server.bodies) < sent + 4 and process.poll() is None:
                time.sleep(0.002)
            assert known
            assert not known & {texts(body["messages"]) for body in server.bodies[sent:]}
        assert process.wait(120) == 0
        assert sum(server.asked.values()) - len(server.asked) <= kills * concurrency
        assert len(server.asked) == 80
    assert len(rows(tmp_path / "candidates.jsonl")) == 80
