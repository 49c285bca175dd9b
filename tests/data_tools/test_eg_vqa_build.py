"""Records → questions → two judges → queue → people → dataset → split → statistics, through a scripted server."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from data_tools.cli import main
from data_tools.eg_vqa.screening import decide
from data_tools.stage_files import Journal
from tests.data_tools.eg_vqa_script import judged, judges, made_up, real_records, rows, script, start, writer
from tests.llm.scripted_server import scripted_server
from vrjax.errors import InputError
from vrjax.records import load_records, save_records

REALDATA = os.environ.get("VRJAX_REALDATA")


def run(capsys, stage: str, work: Path, *words) -> tuple[int, dict, str]:
    code = main(["eg-vqa", stage, "--work", str(work), "--json", *map(str, words)])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out.startswith("{") else {}, printed.err


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Twelve records, all stages, a fifth of the calls faulty."""
    work = tmp_path_factory.mktemp("build")
    save_records(work / "records.jsonl", made_up(12))
    patience = ["--attempts", "12"]
    with scripted_server(script, fault_share=0.2) as server:
        assert main(["eg-vqa", "generate", "--work", str(work), *writer(server.url), *patience]) == 0
        assert main(["eg-vqa", "screen", "--work", str(work), *judges(server.url), *patience]) == 0
        assert server.faults > 20
        # A faulty call is repeated, an answered one never.
        assert max(server.asked.values()) == 1
        yield work, server


def test_nothing_is_lost_with_a_fifth_of_the_calls_faulty(built):
    work, _ = built
    candidates = rows(work / "candidates.jsonl")
    assert len(candidates) == 12 * 4
    assert [len(row["questions"]) for row in candidates] == [2] * 48
    screened = rows(work / "screened.jsonl")
    assert len(screened) == 96
    for row in screened:
        question = row["question"]["question"]
        votes = [judged(model, question)["answer_correct"] >= 4 for model in ("judge-a", "judge-b")]
        wanted = "queued" if votes[0] != votes[1] else "accepted" if votes[0] else "rejected"
        assert row["decision"] == wanted
        assert [one["judge"].split()[0] for one in row["verdicts"]] == ["openai:judge-a", "openai:judge-b"]
    assert [row["question_id"] for row in rows(work / "queue.jsonl")] == [
        row["question_id"] for row in screened if row["decision"] == "queued"
    ]


def test_evidence_is_segments_of_the_record_in_time_order(built):
    records = {one.video_id: one for one in load_records(built[0] / "records.jsonl")}
    for row in rows(built[0] / "candidates.jsonl"):
        segments = [one.model_dump(mode="json") for one in records[row["video_id"]].metadata.segments]
        for question in row["questions"]:
            assert all(piece in segments for piece in question["evidence"])
            assert question["evidence"] == sorted(question["evidence"], key=lambda piece: piece["timestamp"])


def test_the_agreement_table_equals_counting(built):
    table = json.loads((built[0] / "agreement.json").read_text())
    votes = Counter()
    for row in rows(built[0] / "screened.jsonl"):
        question = row["question"]["question"]
        votes[tuple(judged(model, question)["answer_correct"] >= 4 for model in ("judge-a", "judge-b"))] += 1
    matrix = [[votes[True, True], votes[True, False]], [votes[False, True], votes[False, False]]]
    assert table["decision"]["matrix"] == table["answer_correct"]["matrix"] == matrix
    n = sum(votes.values())
    agree = (matrix[0][0] + matrix[1][1]) / n
    a, b = sum(matrix[0]) / n, (matrix[0][0] + matrix[1][0]) / n
    chance = a * b + (1 - a) * (1 - b)
    assert table["decision"]["exact"] == pytest.approx(agree)
    assert table["decision"]["kappa"] == pytest.approx((agree - chance) / (1 - chance))
    assert table["question_reasonable"]["kappa"] is None


def test_again_costs_no_call(built, capsys):
    work, server = built
    calls = server.calls
    kept = {name: (work / name).read_text() for name in ("candidates.jsonl", "screened.jsonl", "queue.jsonl")}
    code, figures, err = run(capsys, "generate", work, *writer(server.url))
    assert (code, figures["calls"]["calls"]) == (0, 0)
    assert "0 requests (48 more are answered already)" in err
    assert run(capsys, "screen", work, *judges(server.url))[0] == 0
    assert server.calls == calls
    assert {name: (work / name).read_text() for name in kept} == kept
    # Without the replies there is still the journal, and without the journal the replies.
    (work / "replies").rename(work / "replies aside")
    assert run(capsys, "screen", work, *judges(server.url))[0] == 0
    (work / "replies aside").rename(work / "replies")
    assert server.calls == calls
    (work / "verdicts.jsonl").unlink()
    assert run(capsys, "screen", work, *judges(server.url))[0] == 0
    assert server.calls == calls
    assert (work / "screened.jsonl").read_text() == kept["screened.jsonl"]


def test_people_decide_and_the_dataset_is_split_and_counted(built, capsys, tmp_path):
    work, _ = built
    screened = rows(work / "screened.jsonl")
    queued = [row for row in screened if row["decision"] == "queued"]
    accepted = sum(row["decision"] == "accepted" for row in screened)
    people = tmp_path / "decisions.jsonl"
    decided = [
        {"question_id": queued[0]["question_id"], "decision": "accept", "question": "Edited?"},
        {"question_id": queued[1]["question_id"], "decision": "reject"},
    ]
    people.write_text("".join(json.dumps(one) + "\n" for one in decided))
    code, figures, _ = run(capsys, "assemble", work, "--decisions", people)
    assert (code, figures["questions"]) == (0, accepted + 1)
    assert figures["counts"]["accepted by people, edited"] == figures["counts"]["rejected by people"] == 1
    assert figures["counts"]["waiting for people"] == len(queued) - 2
    dataset = load_records(work / "dataset.jsonl")
    asked = [question for one in dataset for question in one.questions]
    assert "Edited?" in {one.question for one in asked}
    assert all(one.questions[0].question_id == f"{one.video_id}_q01" for one in dataset)

    code, plan, _ = run(capsys, "audit", work, "--count", 20)
    assert (code, plan["drawn"], len(rows(work / "audit.jsonl"))) == (0, 20, 20)
    verdicts = tmp_path / "verdicts.jsonl"
    drawn = [row["question_id"] for row in rows(work / "audit.jsonl")]
    verdicts.write_text("".join(json.dumps({"question_id": one, "decision": "accept"}) + "\n" for one in drawn))
    assert run(capsys, "audit", work, "--count", 20, "--verdicts", verdicts)[1]["result"]["share_valid"] == 1.0

    code, balance, _ = run(capsys, "split", work, "--test-videos", 4)
    assert (code, balance["videos"]) == (0, {"train": len(dataset) - 4, "test": 4})
    train, test = load_records(work / "train.json"), load_records(work / "test.json")
    assert sorted(one.video_id for one in [*train, *test]) == sorted(one.video_id for one in dataset)
    code, tables, _ = run(capsys, "statistics", work)
    assert tables["by_split"]["all"]["questions"] == len(asked)
    assert tables["by_split"]["test"]["videos"] == 4
    pieces = [piece for one in asked for piece in one.evidence]
    assert tables["by_split"]["all"]["evidence a question"] == pytest.approx(len(pieces) / len(asked))
    assert sum(row["videos"] for name, row in tables["by_source"].items() if name != "all") == len(dataset)
    assert "<svg" in (work / "report.html").read_text()


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"question_id": "nobody", "decision": "accept"}, "about no candidate"),
        ({"question_id": "made-up-000_causal_1", "decision": "perhaps"}, "decision"),
        ({"question_id": "made-up-000_causal_1", "decision": "accept", "evidence": []}, "has no evidence"),
        ({"question_id": "made-up-000_causal_1", "decision": "accept",
          "evidence": [{"timestamp": [0, 99], "description": "step 0 of 0"}]}, "is no segment of the record"),
    ],
)  # fmt: skip
def test_a_decision_that_cannot_be_is_refused(built, capsys, tmp_path, decision, said):
    (tmp_path / "d.jsonl").write_text(json.dumps(decision) + "\n")
    code, _, err = run(capsys, "assemble", built[0], "--decisions", tmp_path / "d.jsonl")
    assert (code, said in err) == (2, True)


def test_a_judge_that_always_refuses_sends_everything_to_people_and_fails_the_stage(built, capsys, tmp_path):
    for name in ("records.jsonl", "candidates.jsonl"):
        (tmp_path / name).write_text((built[0] / name).read_text())

    def refuses(sent: dict) -> str:
        return "I cannot help with that." if sent["model"] == "judge-b" else script(sent)

    with scripted_server(refuses) as server:
        code, _, err = run(capsys, "screen", tmp_path, *judges(server.url), "--attempts", 1)
    assert code == 1
    assert "96 of 192 verdicts got no usable reply (bad_reply: 96)" in err
    assert [(row["decision"], row["why"]) for row in rows(tmp_path / "screened.jsonl")] == [
        ("queued", "no verdict from one judge")
    ] * 96
    assert len(rows(tmp_path / "verdicts.jsonl")) == 96


def test_a_budget_that_runs_out_keeps_what_was_paid_for(capsys, tmp_path):
    save_records(tmp_path / "records.jsonl", made_up(6))
    with scripted_server(script) as server:
        words = [*writer(server.url), "--concurrency", "1"]
        # a reply of the server uses 15 tokens
        code, _, err = run(capsys, "generate", tmp_path, *words, "--max-tokens-spent", 100)
        assert (code, "the budget of 100 tokens is used up" in err, "goes on from there" in err) == (1, True, True)
        assert len(rows(tmp_path / "candidates.journal.jsonl")) == server.calls == 7
        assert run(capsys, "generate", tmp_path, *words)[0] == 0
        assert max(server.asked.values()) == 1
        assert server.calls == 24


def test_evidence_that_is_no_segment_is_asked_again(capsys, tmp_path):
    save_records(tmp_path / "records.jsonl", made_up(1))

    def wrong_at_first(sent: dict) -> str:
        return script(sent) if len(sent["messages"]) > 2 else script(sent).replace("[3", "[4")

    with scripted_server(wrong_at_first) as server:
        code, figures, _ = run(capsys, "generate", tmp_path, *writer(server.url), "--kinds", "causal")
        assert (code, figures["questions"], server.calls) == (0, 2, 2)
        again = server.bodies[1]["messages"][-1]["content"]
    assert "evidence" in again
    assert "less than or equal to 3" in again


def test_prompts_are_a_file_that_people_edit_and_try_on_held_out_videos(capsys, tmp_path):
    save_records(tmp_path / "records.jsonl", made_up(9))
    prompts = tmp_path / "prompts.json"
    assert run(capsys, "generate", tmp_path, "--write-prompts", prompts)[0] == 0
    edited = json.loads(prompts.read_text())
    edited["causal"] = "Kind: causal. Ask for motives only."
    prompts.write_text(json.dumps(edited))
    with scripted_server(script) as server:
        code, figures, _ = run(capsys, "generate", tmp_path, *writer(server.url), "--prompts", prompts, "--held-out", 3)
        assert (code, figures["videos"], server.calls) == (0, 3, 12)
        assert any("motives only" in body["messages"][0]["content"] for body in server.bodies)
    held = {row["video_id"] for row in rows(tmp_path / "held_out.jsonl")}
    assert {int(one[-3:]) % 3 for one in held} == {0, 1, 2}  # one of each source
    assert not (tmp_path / "candidates.jsonl").exists()
    prompts.write_text('{"causes": "x"}')
    assert run(capsys, "generate", tmp_path, "--prompts", prompts)[0] == 2


def test_the_same_judge_twice_is_no_second_opinion(built, capsys):
    url = built[1].url
    words = ["--first.llm", "openai:m", "--first.base-url", url, "--second.llm", "openai:m", "--second.base-url", url]
    code, _, err = run(capsys, "screen", built[0], *words)
    assert (code, "no second opinion" in err) == (2, True)


def test_two_that_agree_decide():
    def gives(value):
        return {"ratings": {"question_reasonable": 5, "answer_correct": value, "evidence_aligned": 5}}

    assert decide(gives(4), gives(5), 4)[0] == "accepted"
    assert decide(gives(3), gives(1), 4)[0] == "rejected"
    assert decide(gives(3), gives(5), 4)[0] == "queued"
    assert decide(None, gives(5), 4) == ("queued", "no verdict from one judge")
    assert decide(None, None, 4) == ("queued", "no verdict from both judges")


def test_a_journal_forgets_a_cut_line_and_refuses_a_damaged_one(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.add({"key": "a", "x": 1})
    journal.add({"key": "b", "x": "\ud800"})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "c", "x')
    assert list(Journal(path).rows) == ["a", "b"]
    assert path.read_bytes() == whole
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(InputError, match="line 1 is damaged"):
        Journal(path)


@pytest.mark.slow
def test_killed_five_times_and_resumed_without_a_repeated_request(tmp_path, capsys):
    """60 records, real ones where they are at hand. SIGKILL before a call is answered, all answered ones being kept."""
    records = real_records(Path(REALDATA), tmp_path / "all", 60) if REALDATA else made_up(60)
    save_records(tmp_path / "records.jsonl", records)
    killed = []
    with scripted_server(script) as server:

        def kill(calls: int) -> bool:
            if server.era >= len(limits) or calls < limits[server.era]:
                return False
            until = time.monotonic() + 60
            kept = tmp_path / "replies"
            while sum(1 for _ in kept.rglob("*.json")) < len(server.bodies) and time.monotonic() < until:
                time.sleep(0.05)
            process.send_signal(how)
            process.wait(60)
            killed.append(process.returncode)
            return True

        server.interrupt = kill
        limits, how = [40, 90, 150, 300, 420], signal.SIGKILL
        for stage, model in (("generate", writer(server.url)), ("screen", judges(server.url))):
            code = None
            while code != 0:
                process = start(stage, "--work", tmp_path, *model, "--concurrency", 4)
                code = process.wait(300)
                assert code in (0, -signal.SIGKILL), process.stderr.read() if process.stderr else ""
        assert killed == [-signal.SIGKILL] * 5
        assert max(server.asked.values()) == 1
        screened = rows(tmp_path / "screened.jsonl")
        assert len(server.bodies) == 240 + 2 * len(screened)
    assert len(rows(tmp_path / "candidates.jsonl")) == 240
    for stage, words in (("assemble", []), ("split", ["--test-videos", "10"]), ("statistics", [])):
        assert run(capsys, stage, tmp_path, *words)[0] == 0
    assert len(load_records(tmp_path / "test.json")) == 10


def test_sigterm_finishes_what_is_under_way_and_keeps_it(tmp_path):
    save_records(tmp_path / "records.jsonl", made_up(10))
    with scripted_server(script) as server:

        def stop(calls: int) -> bool:
            if calls == 9:
                process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            return False

        server.interrupt = stop
        process = start("generate", "--work", tmp_path, *writer(server.url), "--concurrency", 2)
        assert process.wait(120) == 1
        assert "stopped by SIGTERM" in (process.stderr.read() if process.stderr else "")
        assert len(rows(tmp_path / "candidates.journal.jsonl")) == len(server.bodies) < 40
