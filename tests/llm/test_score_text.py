"""Scores in judges' words: published misreadings, and what is too unclear to count."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.llm import parse_score

SCORES = [
    # collected replies of judges
    ('```json\n{"score": 4}\n```', 4), ("{'score': 4}", 4), ('{"score": 4,}', 4), ("Out of 5, I give 3", 3),
    ("0. The prediction mentions 1 dog.", 0), ("Score: 0 (out of 5)", 0), ("Score: 0 (out of 10)", 0),
    # JSON
    ('{"score": "4/5"}', 4), ('{"reason": "2 dogs", "score": 3.5}', 3.5), ('{"accuracy": 4}', 4),
    ('{"overall_score": 3, "depth_score": 5}', 3), ('{"score": 3, "max": 5}', 3), ("[[4]]", 4),
    ('{"score": 2, "reason": "he said "hi" to 3"}', 2), ('<think>{"score": 1}</think>{"score": 4}', 4),
    # words
    ("4", 4), ("4.5", 4.5), ("**4**", 4), ("Score: 4.", 4), ("**Score:** 4/5", 4), ("Score - 4", 4), ("score=4;", 4),
    ("Score (0-5): 3", 3), ("On a scale of 0 to 5, I'd give it a 3 for 2 reasons.", 3), ("5/5", 5),
    ("I rate this 4 out of 5", 4), ("It covers 2 out of 3 events. Score: 4", 4), ("My verdict: 3.", 3),
    ("Final score: 4. Depth score: 3", 4), ("The score is therefore 4, because 3 of 5 events are there", 4),
    ("Rating: [[4]]", 4), ("\\boxed{4}", 4), ("3 out of 5", 3), ("4 points", 4), ("It deserves a 4", 4),
]  # fmt: skip
UNCLEAR = [
    "", "no idea", "Score: high", '{"score": NaN}', '{"score": Infinity}', '{"score": null}', '{"score": true}',
    '{"score": "n/a"}', '{"score": [1, 2]}', '{"score": 3} or {"score": 4}', '{"a": 1, "b": 2}', '{"score": 7}',
    '{"score": 3, "score": 4}', '{"draft": {"score": 3}, "score": ', "Score: NaN", "Score: -1", "Score −1", "Score-1",
    "Score: 7", "Score: 80%", "Score: 1e5", "Score: 3,5", "8/10", "4 out of 10", "Out of 10, I give 3", "3-4",
    "Score: 3-4", "3 or 4", "Score: 1 to 5", "between 3 and 4", "Score: 4\nScore: 2", "it points to 2 dogs",
    "The prediction mentions 1 dog.", "1. It covers a. 2. It misses b.", "Score for question 2: 3",
    "The answer gives 3 details",
]  # fmt: skip
FORMS = ["Score: {}", '{{"score": {}}}', "{}/10", "{} out of 10", "I give it a {}.", "{}"]


@pytest.mark.parametrize(("text", "score"), SCORES)
def test_scores(text, score):
    found = parse_score(text, 0, 5)
    assert found == score
    assert type(found) is type(score)


@pytest.mark.parametrize("text", UNCLEAR)
def test_no_score_is_an_error_and_never_a_guess(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_score(text, 0, 5)


@pytest.mark.alone
@pytest.mark.parametrize("unit", [" ", "1", "1 ", "score ", "(", "1.", ",", "-", "1-", "out of ", "{'", "*", "\n"])
def test_long_hostile_text_takes_no_long_time(unit):
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"\w"):
        parse_score(unit * (60_000 // len(unit)) + "x", 0, 5)
    assert time.monotonic() - begin < 2


@given(st.integers(0, 10), st.sampled_from(FORMS))
def test_a_plain_score_is_read_in_any_form(score, form):
    assert parse_score(form.format(score), 0, 10) == score


@given(st.text(max_size=60) | st.text("score:0123456789/.-{}\"' outf", max_size=30))
def test_what_is_read_lies_on_the_scale(text):
    with contextlib.suppress(ValueError):
        assert 1 <= parse_score(text, 1, 5) <= 5
