import asyncio
from types import SimpleNamespace

import pytest

from tests.rewards.questions import prompt, record, response
from vrjax.errors import InputError
from vrjax.rewards import JudgedAnswer, RuleAnswer


@pytest.mark.parametrize(
    ("kind", "answer", "want"),
    [
        ("exact", "the boat is pulled ashore", 1),
        ("exact", "A boat is pulled ashore!", 1),
        ("exact", "The boat is pulled.", 0),
        ("token_f1", "The boat is pulled ashore.", 1),
        ("token_f1", "The red boat sinks.", 2 / 7),  # boat is pulled ashore / red boat sinks: 2·1/(4 + 3)
        ("token_f1", "Nobody knows", 0),
    ],
)
def test_rules_by_hand(kind, answer, want):
    assert RuleAnswer(kind)(prompt(), response(answer), record()).value == pytest.approx(want)


def test_an_unknown_rule():
    with pytest.raises(InputError, match="exact, token_f1, found 'bleu'"):
        RuleAnswer("bleu")  # type: ignore[arg-type]


class Judge:
    def __init__(self, score, note=""):
        self.verdict = SimpleNamespace(score=score, note=note)
        self.seen = []

    async def judge(self, question, reference, response, title, segments):
        self.seen.append((question, reference, response, title, [segment.description for segment in segments]))
        return self.verdict


def judged(judge, text, of):
    return asyncio.run(JudgedAnswer(judge)(prompt(), text, of))


@pytest.mark.parametrize("score", [1.0, 0.5, 0.1, 0.0])
def test_the_judges_score_is_the_reward_and_it_sees_what_the_paper_shows(score):
    judge = Judge(score)
    assert judged(judge, response("It floats."), record()).value == score
    assert judge.seen == [("What happens (1)?", "The boat is pulled ashore.", "It floats.", "At the pier", ["a", "b"])]


@pytest.mark.parametrize(
    ("note", "fault"), [("timeout: no reply", "timeout"), ("Timeout", "judge_failed"), ("", "judge_failed")]
)
def test_a_judge_that_fails_leaves_the_answer_unscored(note, fault):
    reward = judged(Judge(None, note), response(), record())
    assert (reward.value, reward.fault, reward.note) == (None, fault, note)


@pytest.mark.parametrize("text", ["", "<answer></answer>", response(" \n ")])
def test_no_answer_is_wrong_without_asking(text):
    judge = Judge(1.0)
    assert judged(judge, text, record()).value == 0
    assert RuleAnswer("token_f1")(prompt(), text, record()).value == 0
    assert not judge.seen


def test_without_a_reference_nothing_can_be_said():
    judge = Judge(1.0)
    for reward in (judged(judge, response(), record(answer=" ")), RuleAnswer()(prompt(), "", record(answer=""))):
        assert (reward.value, reward.fault) == (None, "no_reference")
    assert not judge.seen
