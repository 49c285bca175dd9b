import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import tyro

from vrjax.commands.score import Score
from vrjax.errors import InputError
from vrjax.evidence import (
    Evidence,
    Fault,
    ScoredItem,
    SentenceSimilarity,
    Span,
    TokenSimilarity,
    parse_response,
    score_questions,
    summarise,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
RESULT, RECORDS = FIXTURES / "eg_vqa_result.json", FIXTURES / "eg_vqa_test.json"


def run_json(capsys, *arguments) -> dict:
    options = tyro.cli(Score, args=["evidence", *map(str, arguments), "--similarity", "tokens", "--json"])
    assert options.run() == 0
    return json.loads(capsys.readouterr().out)


def changed(tmp_path, change) -> Path:
    rows = json.loads(RESULT.read_text())
    change(rows)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(rows))
    return path


# By hand. Row 1: one reference 6.5–20 against 7–19 (IoU 12/13.5), a line elsewhere and one without length; words of the
# descriptions: {woman ties red rope to post} and {woman ties rope to post}: 2·5/11. F1 = 2·1/(3+1). Row 2 is an error.
def test_official_result_file(capsys):
    summary = run_json(capsys, RESULT)
    soft = 2 * (12 / 13.5) * (10 / 11) / 4
    assert summary["n"] == 2
    assert summary["coverage"] == 0.5
    assert summary["unanswered"] == {"inference failed": 1}
    assert summary["format"] == 0.5
    assert summary["soft_eg_f1"] == pytest.approx(soft / 2)
    assert summary["scored_only"]["soft_eg_f1"] == pytest.approx(soft)
    assert summary["corpus"]["soft_eg_f1"] == pytest.approx(2 * (12 / 13.5) * (10 / 11) / (3 + 2))
    for key in ("eg_f1_0.3_0.5", "eg_f1_0.3_0.75", "eg_f1_0.5_0.75", "avg_eg_f1", "event_f1_0.7", "avg_event_f1"):
        assert summary[key] == 0.25
        assert summary["corpus"][key] == pytest.approx(2 / 5)
    assert summary["answer"] == 0.5
    assert summary["gas"] == pytest.approx(100 * soft / 2)
    assert {name: count for name, count in summary["faults"].items() if count} == {"zero_length": 1}
    assert set(summary["faults"]) == set(Fault)
    assert summary["similarity"] == "tokens"
    assert summary["answer_score"] == "token_f1"


def test_references_from_records_are_joined_by_id(capsys, tmp_path):
    with pytest.raises(InputError, match=r"v_AAAAAAAAAAA_q02, CCCCCCCCCCC_q01"):
        run_json(capsys, RESULT, RECORDS)
    summary = run_json(capsys, RESULT, RECORDS, "--missing", "unanswered")
    assert summary["unanswered"] == {"inference failed": 1, "missing row": 2}
    assert summary["n"] == 4
    # KNOWN_FAILURES 45: order and gaps play no part.
    turned = run_json(capsys, changed(tmp_path, lambda rows: rows.reverse()), RECORDS, "--missing", "unanswered")
    assert turned == summary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.append(rows[0]), r"occurs twice: v_AAAAAAAAAAA_q01"),
        (lambda rows: rows[1].update(question_id="other"), r"not in the references: other"),
        (lambda rows: rows[1].update(question="What is cut?"), r"BBBBBBBBBBB_q01 asks 'What is cut\?'"),
        (lambda rows: rows[0].pop("question_id"), r"row number 0: question_id"),
        (lambda rows: rows[0].update(duration="long"), r"row v_AAAAAAAAAAA_q01: duration"),
        (lambda rows: rows.clear(), r"holds no rows"),
    ],
)
def test_bad_result_files_are_named(tmp_path, change, message):
    options = Score("evidence", changed(tmp_path, change), RECORDS, similarity="tokens", missing="unanswered")
    with pytest.raises(InputError, match=message):
        options.run()


def test_rows_without_references_need_a_file(tmp_path):
    path = changed(tmp_path, lambda rows: rows[0].pop("evidence"))
    with pytest.raises(InputError, match=r"no reference evidence in v_AAAAAAAAAAA_q01"):
        Score("evidence", path, similarity="tokens").run()


def test_parsed_blocks_serve_where_there_is_no_raw_text(capsys, tmp_path):
    without_raw = changed(tmp_path, lambda rows: rows[0].pop("model_response_raw"))
    assert run_json(capsys, without_raw) == run_json(capsys, RESULT)


def test_recorded_answer_scores(capsys, tmp_path):
    path = changed(tmp_path, lambda rows: rows[0].update(answer_score=0.5))
    summary = run_json(capsys, path, "--answer-score", "recorded")
    assert summary["answer"] == 0.25
    assert summary["scored_only"]["gas"] == pytest.approx(100 * 0.5 * summary["scored_only"]["soft_eg_f1"])
    unscored = run_json(capsys, RESULT, "--answer-score", "recorded")
    assert unscored["gas"] is None
    assert unscored["answers_scored"] == 0


def test_tables_and_rows(capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    path = changed(tmp_path, lambda rows: rows[1].update(error="[bold]odd[/bold]: text"))
    assert Score("evidence", path, similarity="tokens", per_question=rows).run() == 0
    shown = capsys.readouterr().out
    assert "1 of 2 questions answered" in shown
    assert "zero_length" in shown
    assert "[bold]odd[/bold]" in shown  # a file's text is no markup
    first, second = (json.loads(line) for line in rows.read_text().splitlines())
    assert first["eg_f1_0.3_0.5"] == 0.5
    assert second["unanswered"] == "[bold]odd[/bold]"


def test_gas_multiplies_before_averaging():
    def item(name, line, answer):
        text = f"<evidence>{line}</evidence><think></think><answer></answer>"
        return ScoredItem(name, (Evidence(Span(0, 10), "x"),), parse_response(text), answer)

    items = [item("1", "Time:0-10, Des: x", 1.0), item("2", "Time:20-30, Des: x", 0.0)]
    summary = summarise(score_questions(items, TokenSimilarity()), "tokens", "given")
    assert summary["gas"] == 50  # and not 100 · .5 · .5
    items[1] = ScoredItem("2", items[1].references, items[1].response, None)  # unscored is not wrong
    summary = summarise(score_questions(items, TokenSimilarity()), "tokens", "given")
    assert (summary["gas"], summary["scored_only"]["gas"]) == (50, 100)


def test_the_test_split_is_scored_in_seconds(tmp_path):
    """2,889 questions as in EG-VQA's test split, embeddings cached: under 3 s."""
    random = np.random.default_rng(0)
    items = []
    for number in range(2889):
        starts = random.integers(0, 90, 5)
        references = tuple(Evidence(Span(s, s + 10), f"event {s}") for s in starts[:2])
        lines = "\n".join(f"Time:{s}-{s + 9}, Des: event {s}" for s in starts[1:])
        text = f"<evidence>{lines}</evidence><think></think><answer></answer>"
        items.append(ScoredItem(str(number), references, parse_response(text, 100.0)))
    similarity = SentenceSimilarity(tmp_path)
    similarity._vectors = {f"event {s}": random.normal(size=384).astype(np.float32) / 20 for s in range(90)}
    began = time.process_time()
    summarise(score_questions(items, similarity), "random vectors", "none")
    assert time.process_time() - began < 3


def test_released_annotations_score_one_against_themselves():
    root = os.environ.get("VRJAX_REALDATA")
    if not root:
        pytest.skip("VRJAX_REALDATA is not set")
    from vrjax.evidence import format_response, reference_evidence
    from vrjax.records import load_records

    items = []
    for record in load_records(Path(root) / "eg_vqa" / "test_sample.json"):
        for question in record.questions:
            references = reference_evidence(question.evidence)
            response = parse_response(format_response(references, "", question.answer), record.duration)
            items.append(ScoredItem(question.question_id, references, response))
    summary = summarise(score_questions(items, TokenSimilarity()), "tokens", "none")
    assert summary["n"] == 20
    assert summary["avg_eg_f1"] == 1
    assert not any(summary["faults"].values())


def test_help_shows_the_examples(capsys):
    with pytest.raises(SystemExit) as left:
        tyro.cli(Score, args=["--help"])
    assert left.value.code == 0
    assert "vrjax score evidence results.json --similarity tokens --json" in capsys.readouterr().out
