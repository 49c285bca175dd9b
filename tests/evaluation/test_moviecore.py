"""MovieCORE: official values of the fixture, both aggregations against brute force, what becomes of failures."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Prediction, Tools
from vrjax.evaluation.benchmarks.moviecore import AVERAGE, MovieCore, aggregate
from vrjax.evaluation.dimension_judge import DIMENSIONS
from vrjax.llm import ChatError, ChatReply, Usage

FIXTURE = Path(__file__).parent.parent / "fixtures/moviecore_predictions.json"


def all_of(score, *left_out):
    return {name: float(score) for name in DIMENSIONS if name not in left_out}


def with_verdicts(folder, verdicts, name="judged.json"):
    """The fixture with a field `judged` in each row that has a verdict."""
    data = json.loads(FIXTURE.read_text())
    rows = [row for rows in data.values() for row in rows]
    for row, verdict in zip(rows, verdicts, strict=True):
        if verdict is not None:
            row["judged"] = verdict
    path = folder / name
    path.write_text(json.dumps(data))
    return path


def score_file(path, **options):
    benchmark = MovieCore(**options)
    items = benchmark.read(FIXTURE)
    return asyncio.run(benchmark.score(items, benchmark.read_submission(path, items), Tools()))


class Rater:
    """Gives each answer's score by its first word, in every dimension; keeps what it was asked."""

    name = "rater"

    def __init__(self, scores, broken=()):
        self.scores, self.broken = scores, broken
        self.asked = []

    async def complete(self, request):
        shown = json.loads(request.messages[1].text)
        dimension = request.schema_name.split("_")[0]
        self.asked.append((shown["question"], dimension))
        if dimension in self.broken:
            raise ChatError("no reply", "timeout")
        score = self.scores[shown["answer"]]
        return ChatReply((json.dumps({"reason": f"because {dimension}", "score": score}),), Usage(), self.name)


ANSWERS = {"He wants to keep the peace.": 4, "The storm is loud.": 1, "": 0}


def test_the_official_values_of_the_fixture(tmp_path):
    """Judged 4, 1 and 0, the third one's depth missing; the first counts twice, for its two classes."""
    score = score_file(with_verdicts(tmp_path, [all_of(4), all_of(1), all_of(0, "depth")]))
    assert score.official["accuracy"] == 2.25
    assert score.official["depth"] == 3.0
    assert score.official[AVERAGE] == pytest.approx(2.4)
    assert score.details["official_by_class"]["Causal"]["accuracy"] == 2
    assert score.details["official_by_class"]["Causal"]["depth"] == 4
    assert score.details["per_item"]["accuracy"] == pytest.approx(5 / 3)
    assert score.details["per_item"]["depth"] == 2.5
    assert score.details["per_item"][AVERAGE] == pytest.approx((4 * 5 / 3 + 2.5) / 5)
    # Strict: the empty answer is 0 in depth as well, whoever did not judge it.
    assert score.strict["depth"] == pytest.approx(5 / 3)
    assert score.coverage == pytest.approx(2 / 3)
    assert score.failures == {"empty answer": 1}


RATINGS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(DIMENSIONS), st.integers(0, 5)),
        st.lists(st.sampled_from(["Causal", "Thematic", ""]), min_size=1, max_size=3).map(", ".join),
    ),
    min_size=1,
    max_size=12,
)


@given(RATINGS)
def test_aggregation_is_that_of_a_table_with_a_row_for_each_class(rows):
    """Brute force: the authors' rule written as rows of (class, dimension, score)."""
    table = [
        (kind.strip(), name, score)
        for ratings, classification in rows
        for kind in classification.split(",")
        for name, score in ratings.items()
    ]
    once = [(None, name, score) for ratings, _ in rows for name, score in ratings.items()]

    def mean(rows, name, kind=None):
        scores = [score for of, one, score in rows if one == name and kind in (None, of)]
        return float(np.mean(scores)) if scores else 0.0

    ratings, classifications = [row[0] for row in rows], [row[1] for row in rows]
    for aggregation, expected in (("official", table), ("per_item", once)):
        found = aggregate(ratings, classifications, aggregation).overall
        by_dimension = {name: mean(expected, name) for name in DIMENSIONS}
        assert found == pytest.approx({**by_dimension, AVERAGE: np.mean(list(by_dimension.values()))})
        by_class = aggregate(ratings, classifications, aggregation).by_class
        assert by_class.keys() == {kind.strip() for one in classifications for kind in one.split(",")}
        for kind, values in by_class.items():
            assert values["depth"] == pytest.approx(mean(table, "depth", kind))


def test_a_judge_scores_every_answer_in_five_calls():
    benchmark, rater = MovieCore(), Rater(ANSWERS)
    items = benchmark.read(FIXTURE)
    predictions = benchmark.read_submission(FIXTURE, items)
    score = asyncio.run(benchmark.score(items, predictions, Tools(judge=rater)))
    assert sorted(rater.asked) == sorted((item.question, name) for item in items for name in DIMENSIONS)
    assert score.official["accuracy"] == 2.25
    assert score.strict[AVERAGE] == pytest.approx(5 / 3)
    assert (score.intervals[AVERAGE].low, score.intervals[AVERAGE].high) == (0, 2.5)  # clip-b alone, clip-a alone
    assert score.items[0].values == {**all_of(4), AVERAGE: 4}
    assert score.items[0].notes["depth"] == "because depth"
    assert score.by_type["Causal"] == {"n": 2, **all_of(2), AVERAGE: 2}
    assert score.details["judge"] == "rater, dimensions v1"
    assert 0 <= score.official["bleu_4"] <= score.official["cider"]


def test_a_failing_judge_leaves_no_value_and_never_0():
    benchmark = MovieCore(text_metrics=())
    items = benchmark.read(FIXTURE)
    predictions = benchmark.read_submission(FIXTURE, items)
    score = asyncio.run(benchmark.score(items, predictions, Tools(judge=Rater(ANSWERS, broken=("depth",)))))
    assert score.items[0].values["depth"] is None
    assert score.items[0].values[AVERAGE] is None
    assert score.items[0].failure == "no verdict: timeout"
    assert score.strict["depth"] == 0  # the empty answer alone
    assert score.official["depth"] == 0  # nobody scored: the authors' 0
    assert score.strict["accuracy"] == pytest.approx(5 / 3)
    assert score.coverage == 0
    assert score.failures == {"no verdict: timeout": 2, "empty answer": 1}
    answered = [one for one in predictions if one.text]
    score = asyncio.run(benchmark.score(items[:2], answered, Tools(judge=Rater(ANSWERS, broken=("depth",)))))
    assert "depth" not in score.strict
    assert AVERAGE not in score.strict


def test_no_answer_is_0_in_strict_values_and_left_out_of_official_ones(tmp_path):
    benchmark = MovieCore(text_metrics=())
    items = benchmark.read(FIXTURE)
    verdict = {name: {"score": 4.0} for name in DIMENSIONS}
    kept = [
        Prediction(id="clip-a_1", text="He wants to keep the peace.", judged={"j": verdict}),
        Prediction(id="clip-a_2", error="video: cannot be read"),
    ]  # fmt: skip
    score = asyncio.run(benchmark.score(items, kept, Tools()))
    assert score.official["accuracy"] == 4
    assert score.strict["accuracy"] == pytest.approx(4 / 3)
    assert score.coverage == pytest.approx(1 / 3)
    assert score.failures == {"video": 1, "no answer": 1}
    benchmark.write_submission(tmp_path / "out.json", items, kept)
    assert [row["pred"] for rows in json.loads((tmp_path / "out.json").read_text()).values() for row in rows] == [
        "He wants to keep the peace."
    ]


def test_verdicts_that_are_there_are_not_asked_for_again(tmp_path):
    benchmark, rater = MovieCore(text_metrics=()), Rater(ANSWERS)
    path = with_verdicts(
        tmp_path,
        [{"rater, dimensions v1": all_of(5)}, {"rater, dimensions v1": all_of(3, "depth")}, {"other": all_of(5)}],
    )
    items = benchmark.read(FIXTURE)
    score = asyncio.run(benchmark.score(items, benchmark.read_submission(path, items), Tools(judge=rater)))
    assert sorted(rater.asked) == sorted(
        [("How does the storm mirror the quarrel?", "depth"),
         *(("What if the bridge had held?", name) for name in DIMENSIONS)]
    )  # fmt: skip
    assert score.items[0].values["accuracy"] == 5
    assert (score.items[1].values["depth"], score.items[1].values["evidence"]) == (1, 3)


def test_judged_files_are_written_and_read_with_their_verdicts(tmp_path):
    benchmark = MovieCore()
    items = benchmark.read(FIXTURE)
    judged = asyncio.run(
        benchmark.judge_predictions(items, benchmark.read_submission(FIXTURE, items), Rater(ANSWERS, ("depth",)))
    )
    path = tmp_path / "deep/judged.json"
    benchmark.write_submission(path, items, judged)
    rows = json.loads(path.read_text())
    assert list(rows) == ["clip-a.mp4", "clip-b.mp4"]
    assert rows["clip-a.mp4"][0]["classification"] == "Causal, Character"
    assert rows["clip-a.mp4"][1]["answer"] == items[1].reference["answer"]  # the enhanced one
    again = benchmark.read_submission(path, benchmark.read(path))
    assert again == judged
    scores = [asyncio.run(benchmark.score(items, one, Tools())) for one in (judged, again)]
    assert scores[0] == scores[1]
    assert not list(path.parent.glob(".*"))


def test_several_judges_need_a_name(tmp_path):
    path = with_verdicts(tmp_path, [{"a": all_of(4), "b": all_of(2)}, {"a": all_of(4)}, {"b": all_of(2)}])
    with pytest.raises(InputError, match=r"several judges: \['a', 'b'\]"):
        score_file(path)
    assert score_file(path, recorded="b").official["accuracy"] == 2
    with pytest.raises(InputError, match="no verdicts of 'c'"):
        score_file(path, recorded="c")
    with pytest.raises(InputError, match="hold no verdicts"):
        score_file(FIXTURE)


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ({"judge": 4}, "judge: is int, not scores by dimension"),
        ({"judge": {"acuracy": 4}}, "'acuracy' is no dimension"),
        ({"judge": {"accuracy": 6}}, "judge: accuracy.score: "),
        ({"judge": {"accuracy": "4"}}, "judge: accuracy.score: "),
        ({"judge": {"accuracy": True}}, "judge: accuracy.score: "),
        ({"judge": {"accuracy": float("nan")}}, "judge: accuracy.score: "),
        ({"accuracy": -1}, "recorded: accuracy.score: "),
    ],
)
def test_recorded_verdicts_are_checked(tmp_path, verdict, sentence):
    path = with_verdicts(tmp_path, [verdict, None, None])
    with pytest.raises(InputError, match=sentence) as raised:
        score_file(path)
    assert f"{path}: record clip-a_1: judged" in str(raised.value)


def test_submissions_that_do_not_fit(tmp_path):
    benchmark = MovieCore()
    items = benchmark.read(FIXTURE)
    path = tmp_path / "p.json"
    for data, sentence in (
        ({"clip-z.mp4": [{"question": "What?", "pred": "x"}]}, "no such questions: clip-z_1"),
        (
            {"clip-b.mp4": [{"question": items[2].question, "pred": "x"}] * 2},
            "answered more than once: clip-b_1, clip-b_2",
        ),
        ({"clip-b.mp4": [{"question": items[2].question}]}, "no record has a field `pred`"),
        ({}, "holds no questions"),
    ):
        path.write_text(json.dumps(data))
        with pytest.raises(InputError, match=sentence):
            benchmark.read_submission(path, items)


def test_scoring_refuses_what_it_cannot_score(tmp_path):
    benchmark = MovieCore()
    items = benchmark.read(FIXTURE)
    answer = Prediction(id="clip-a_1", text="x", judged={"j": {"accuracy": {"score": 1.0}}})
    with pytest.raises(InputError, match="no such questions: nowhere"):
        asyncio.run(benchmark.score(items, [Prediction(id="nowhere", text="x")], Tools()))
    with pytest.raises(InputError, match="answered more than once: clip-a_1"):
        asyncio.run(benchmark.score(items, [answer, answer], Tools()))
    path = tmp_path / "unlabelled.json"
    path.write_text(json.dumps({"a.mp4": [{"question": "Q?", "classification": "X"}]}))
    unlabelled = benchmark.read(path)
    with pytest.raises(InputError, match=r"no reference answer for a_1.*write a submission"):
        asyncio.run(benchmark.score(unlabelled, [], Tools()))
    benchmark.write_submission(tmp_path / "out.json", unlabelled, [Prediction(id="a_1", text="x \ud800")])
    assert json.loads((tmp_path / "out.json").read_text())["a.mp4"][0] == {
        "question": "Q?", "answer": "", "pred": "x \ud800", "classification": "X",
    }  # fmt: skip


def test_what_a_model_is_asked_and_how_it_is_read():
    benchmark = MovieCore()
    item = benchmark.read(FIXTURE)[0]
    assert benchmark.question(item).startswith("Why might the lighthouse keeper hide the letter?\n")
    assert benchmark.parse(item, " To keep peace.</s>").values == {"answer": "To keep peace."}
    assert benchmark.parse(item, "</s>").failure == "empty answer"
