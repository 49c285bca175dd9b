"""`vrjax ace` and ACE over a benchmark, on small random models: what is printed, kept, and gone on with."""

import json
from pathlib import Path

import pytest

from tests.test_cli import run
from vrjax.errors import InputError
from vrjax.evaluation.benchmarks.eg_vqa import EgVqa
from vrjax.evaluation.responder import Responder
from vrjax.evaluation.video_files import VideoFolder
from vrjax.generation import BeamOptions, Engine
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import load
from vrjax.reranking import Candidate, Reranker, Scorer, ScorerOptions
from vrjax.reranking.dataset import CANDIDATES, PREDICTIONS, SCORES, AceOptions, rerank_benchmark


@pytest.fixture
def clip(world) -> str:
    return str(next((world / "videos").glob("*test*.mp4")))


def test_ace_prints_candidates_scores_and_winner(capsys, world, clip):
    words = ("ace", clip, "Which shape slides?", "--model", str(world / "model"), "--scorer", str(world / "scorer"),
             "--beam-width", "3", "--max-tokens", "6", "--json")  # fmt: skip
    code, out, _ = run(capsys, *words)
    result = json.loads(out)
    scores = [row["ace_score"] for row in result["candidates"]]
    assert code == 0
    assert len(scores) == 3
    assert all(0 <= score <= 9 for score in scores)
    assert result["winner"] == scores.index(max(scores))
    assert result["answer"] == result["candidates"][result["winner"]]["text"]
    beams = [row["beam_score"] for row in result["candidates"]]
    assert beams == sorted(beams, reverse=True)


def test_candidates_may_be_texts(capsys, world, clip):
    code, out, _ = run(capsys, "ace", clip, "What?", "--scorer", str(world / "scorer"), "--candidate", "the red circle",
                       "the blue circle", "the red circle", "--json")  # fmt: skip
    result = json.loads(out)
    assert code == 0
    assert result["candidates"][0]["ace_score"] == result["candidates"][2]["ace_score"]
    assert result["winner"] != 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "candidates come from one place, but none is given"),
        (("--model", "x", "--candidate", "a"), "--model and --candidate is given"),
        (("--candidate", "a", "--beam-width", "0"), "ask for at least one"),
        (("--candidate", "the", "--scorer", "MUTE"), "no single tokens for the digits"),
        (("--candidate", "w1 " * 300), "does not fit the scorer's context"),
    ],
)
def test_bad_input_is_one_sentence(capsys, world, clip, words, said):
    scorer = () if "--scorer" in words else ("--scorer", str(world / "scorer"))
    words = [str(world / "mute") if word == "MUTE" else word for word in words]
    code, _, err = run(capsys, "ace", clip, "What?", *scorer, *words)
    assert code == 2
    assert said in err


def test_no_candidates_and_beams_out_of_order(world):
    reranker = Reranker(Scorer(Engine(load(world / "scorer"))))
    with pytest.raises(InputError, match="no candidates"):
        reranker.rerank([("What?", [])])
    with pytest.raises(InputError, match="not in the order of their beam scores"):
        reranker.rerank([("What?", [Candidate("the", -2.0), Candidate("red", -1.0)])])


def test_a_long_candidate_may_be_cut_and_is_counted(world):
    scorer = Scorer(Engine(load(world / "scorer")), ScorerOptions(too_long="cut"))
    found = scorer.score([("What?", ["red " * 300, "red"])])[0]
    assert found[0].cut > 0
    assert found[1].cut == 0
    assert found[0].score is not None


def test_unscored_candidates_do_not_win(world):
    """A scorer that writes no number leaves its candidates unscored; the first one stands, and that is said."""
    scorer = Scorer(Engine(load(world / "scorer")), ScorerOptions(read_out="generated_number", number_tokens=1))
    result = Reranker(scorer).rerank([("What?", [Candidate("the"), Candidate("red")])])[0]
    unscored = [score is None for score in result.scores]
    assert result.decided == (not all(unscored))
    assert len(result.notes) == sum(unscored)


def ace(world: Path, out: Path, widths=(2, 3), models: bool = True, **changes):
    def responder() -> Responder:
        assert models, "everything is there: no model should be loaded"
        return Responder(load(world / "model"), PromptRecipe.read(world / "model"))

    def scorer(read_out):
        assert models, "everything is there: no model should be loaded"
        return Scorer(Engine(load(world / "scorer")), ScorerOptions(read_out=read_out))

    benchmark = EgVqa()
    items = benchmark.read(world / "test.json")
    scorers = {name: lambda name=name: scorer(name) for name in ("expected_digit", "log_likelihood")}
    options = AceOptions(out=out, widths=widths, beams=BeamOptions(max_tokens=6))
    return items, rerank_benchmark(
        benchmark, items, VideoFolder(world), responder, scorers, {"model": "small", **changes}, options
    )


@pytest.mark.slow
def test_a_benchmark_goes_on_where_it_was_cut_off(world, tmp_path):
    items, summary = ace(world, tmp_path / "whole")
    kept = {name: (tmp_path / "whole" / name).read_bytes() for name in (CANDIDATES, SCORES)}
    assert summary["questions"] == len(items) == 12
    rows = [json.loads(line) for line in kept[CANDIDATES].splitlines()]
    assert {(row["id"], row["width"]) for row in rows} == {(item.id, width) for item in items for width in (2, 3)}
    assert all(len(row["candidates"]) == row["width"] for row in rows)

    assert ace(world, tmp_path / "whole", models=False)[1] == summary

    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / CANDIDATES).write_bytes(kept[CANDIDATES][: len(kept[CANDIDATES]) // 3])
    assert ace(world, cut)[1] == summary
    again = [json.loads(line) for line in (cut / CANDIDATES).read_text().splitlines()]
    key = lambda row: (row["id"], row["width"])  # noqa: E731
    for mine, one in zip(sorted(again, key=key), sorted(rows, key=key), strict=True):
        assert [c["text"] for c in mine["candidates"]] == [c["text"] for c in one["candidates"]]

    with pytest.raises(InputError, match="whose model is"):
        ace(world, tmp_path / "whole", model="another")


def test_predictions_are_those_of_the_winners(world, tmp_path):
    items, _ = ace(world, tmp_path, widths=(3,))
    benchmark = EgVqa()
    rows = {row["id"]: row for line in (tmp_path / CANDIDATES).read_text().splitlines() if (row := json.loads(line))}
    scores = [json.loads(line) for line in (tmp_path / SCORES).read_text().splitlines()]
    best = {row["id"]: row["scores"].index(max(row["scores"])) for row in scores if row["read_out"] == "expected_digit"}
    for folder, winner in (("k3_top_beam", dict.fromkeys(rows, 0)), ("k3_expected_digit", best)):
        found = benchmark.read_submission(tmp_path / PREDICTIONS / folder / benchmark.submission, items)
        texts = {one.id: one.text for one in found}
        assert texts == {name: row["candidates"][winner[name]]["text"] for name, row in rows.items()}
