"""MovieChat-1K: accuracy and score as HERMES reports them, strict values beside, and questions about a moment."""

import asyncio
import json
from pathlib import Path

import pytest

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Prediction, Tools
from vrjax.evaluation.benchmarks.moviechat import MovieChat
from vrjax.llm import ChatError, ChatReply, Usage

FIXTURES = Path(__file__).parent.parent / "fixtures"
CLIP = FIXTURES / "moviechat_1k_clip-a.json"


class Matcher:
    """Says whether an answer has the first letter of the reference."""

    name = "matcher"

    def __init__(self, broken=()):
        self.broken, self.asked = broken, []

    async def complete(self, request):
        shown = json.loads(request.messages[1].text)
        self.asked.append(shown["question"])
        if shown["question"] in self.broken:
            raise ChatError("cannot", "refused")
        same = shown["answer"][:1] == shown["reference_answer"][:1]
        verdict = {"reason": "letters", "correct": "yes" if same else "no", "score": 5 if same else 1}
        return ChatReply((json.dumps(verdict),), Usage(), self.name)


def answers(items, *texts):
    return [Prediction(id=item.id, text=text) for item, text in zip(items, texts, strict=True)]


def test_official_and_strict_values():
    benchmark = MovieChat()
    items = benchmark.read(CLIP)
    score = asyncio.run(benchmark.score(items, answers(items, "Yes", "Night", ""), Tools(judge=Matcher())))
    # The judge sees the empty answer too, as in HERMES: 1 of 3 right; scores 5, 1, 1.
    assert score.official == {"accuracy": pytest.approx(100 / 3), "average_score": pytest.approx(7 / 3)}
    assert score.strict == {"accuracy": pytest.approx(1 / 3), "score": pytest.approx(2)}  # 5, 1 and 0
    assert score.coverage == 1
    assert score.failures == {"empty answer": 1}
    assert score.by_type == {"Made-up Film": {"n": 3, "accuracy": pytest.approx(1 / 3), "score": 2}}
    assert score.items[0].notes == {"judge": "letters"}


def test_what_has_no_verdict_has_no_value():
    benchmark, matcher = MovieChat(), Matcher(broken=("Day or night?",))
    items = benchmark.read(CLIP)
    score = asyncio.run(benchmark.score(items, answers(items, "Yes", "Both", None), Tools(judge=matcher)))
    assert score.official == {"accuracy": 100, "average_score": 5}
    assert score.strict == {"accuracy": 0.5, "score": 2.5}  # right, and not answered
    assert score.items[1].values == {"accuracy": None, "score": None}
    assert score.failures == {"no verdict: refused": 1, "no answer": 1}
    assert score.coverage == pytest.approx(1 / 3)


def test_questions_about_a_moment_say_which():
    assert len(MovieChat().read(CLIP)) == 3
    (item,) = MovieChat(asked="breakpoint").read(CLIP)
    benchmark = MovieChat(asked="all")
    assert [one.id for one in benchmark.read(CLIP)] == ["clip-a_1", "clip-a_2", "clip-a_3", item.id]
    assert benchmark.question(item).startswith("At 60.0 seconds into the video: What is he holding now?")
    with pytest.raises(InputError, match="none of the questions"):
        MovieChat(asked="breakpoint").read(FIXTURES / "hermes_moviechat_annotation.json")


def test_verdicts_in_hermes_form_are_used_without_a_judge(tmp_path):
    """`pred` other than "yes" is wrong there, and a verdict without a score counts as an answer with score 0."""
    benchmark = MovieChat()
    items = benchmark.read(FIXTURES / "hermes_moviechat_annotation.json")
    path = tmp_path / "judged.json"
    rows = [
        {"question": items[0].question, "pred": "yes.", "judged": {"gpt": {"pred": "Yes", "score": 4}}},
        {"question": items[1].question, "pred": "in the dark.", "judged": {"gpt": {"pred": "partly"}}},
    ]
    path.write_text(json.dumps({"clip-a.mp4": rows}))
    predictions = benchmark.read_submission(path, items)
    score = asyncio.run(benchmark.score(items, predictions, Tools()))
    assert score.official == {"accuracy": 50, "average_score": 2}
    assert score.strict == {"accuracy": 0.5, "score": 4}
    benchmark.write_submission(tmp_path / "again.json", items, predictions)
    assert list(json.loads((tmp_path / "again.json").read_text())) == ["clip-a.mp4"]
    assert benchmark.read_submission(tmp_path / "again.json", items) == predictions


def test_flat_verdicts_and_wrong_ones(tmp_path):
    benchmark = MovieChat()
    items = benchmark.read(FIXTURES / "hermes_moviechat_annotation.json")
    path = tmp_path / "judged.json"
    for verdict, sentence in (
        ({"pred": "yes", "score": 9}, "record clip-a_1: judged: recorded: score: "),
        ({"gpt": {"score": 4}}, "judged: gpt: correct: "),
        ({"gpt": "yes"}, "judged: gpt: "),
    ):
        path.write_text(json.dumps({"clip-a.mp4": [{"question": items[0].question, "pred": "x", "judged": verdict}]}))
        with pytest.raises(InputError, match=sentence):
            benchmark.read_submission(path, items)


def test_a_verdict_that_is_there_is_not_asked_for_again():
    benchmark, matcher = MovieChat(), Matcher()
    items = benchmark.read(CLIP)
    once = asyncio.run(benchmark.judge_predictions(items, answers(items, "Yes", "Both", "Two"), matcher))
    again = asyncio.run(benchmark.judge_predictions(items, once, matcher))
    assert (again, len(matcher.asked)) == (once, 3)
