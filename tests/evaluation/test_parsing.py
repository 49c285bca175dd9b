"""Replies as models write them. Right values: what a careful reader would say; nothing where such a one could not."""

import time

import pytest

from vrjax.evaluation import parse_choice, parse_spans
from vrjax.evaluation.parsing import merge, read_choice, read_marked_seconds, read_spans

LETTERS = "ABCD"

CHOICES = {
    # a list that went round among evaluators of video models, each one misread by some of them
    "A": "A",
    "a": "A",
    "answer: c": "C",
    "Answer: C": "C",
    "A man walks in; the answer is D": "D",
    "The correct option is (B), not A.": "B",
    "Based on the video, the dog barks": None,
    "Best answer: D": "D",
    "Answer is B or C": None,
    "**B**": "B",
    "": None,
    # the article, the pronoun, and EgoSchema's name for the wearer of the camera
    "a dog": None,
    "The answer is a dog": None,
    "Answer: A dog barks": None,
    "The answer is A because the dog barks": "A",
    "the answer is a.": "A",
    "C bakes a loaf.": None,
    "C is trying to build a stool.": None,
    "Answer: C bakes a loaf": None,
    "The answer is (C) bakes a loaf": "C",
    "Answer: D Draw a map.": "D",
    # marks, brackets, other widths, JSON, LaTeX
    "B.": "B",
    "(b)": "B",
    "Option B": "B",
    "B. a heron": "B",
    "b) heron": "B",
    "B - a heron": "B",
    "**Answer:** B": "B",
    "**Answer: B) heron**": "B",
    "The correct answer is **B**.": "B",
    "（B）": "B",
    "Answer：D": "D",
    '{"answer": "B"}': "B",
    "So \\boxed{B}": "B",
    "<answer>(D) four</answer>": "D",
    "<answer>A</answer> wait <answer>B</answer>": "B",
    "<think>The answer is A.</think>\nB": "B",
    # statements
    "I'd go with B.": "B",
    "I choose D": "D",
    "A or B? I'd say B.": "B",
    "I'd say a dog.": None,
    "B is correct.": "B",
    "Answer:\nB": "B",
    "My answer would be A, the goat.": "A",
    "The answer to the question is therefore option C.": "C",
    "The answer is B.\nOption C is wrong.": "B",
    "D\n\nExplanation: A shows a goat.": "D",
    "The dog barks.\r\nD\r\nSo be it.": "D",
    "A) goat\nB) heron\nC) dog\nD) mule\n\nB": "B",
    "The animal is a heron (B).": "B",
    "At first the answer is A. The final answer is B.": "B",
    "Answer: B\nTime: 12.5 to 20.0": "B",
    "Answer: A\nTime: 12.5 to 20.0": "A",
    "Answer: C \r\nTime: 12.5 to 20.0": "C",
    # no choice, denied, or several
    "Answer: E": None,
    "The second one": None,
    "The answer is not (A).": None,
    "It is not (A).": None,
    "I would rule out (A).": None,
    "The wrong answer is B": None,
    "The incorrect option is (A).": None,
    "The answer cannot be A": None,
    "The answer is B and C": None,
    "A or B is correct": None,
    "Answer: A/C": None,
    "Answer: A, B, C": None,
    "A) goat\nB) heron": None,
    "The answer is A. But then the answer is B.": None,
    "Both (A) and (B).": None,
    "Answer: A's hat": None,
}


@pytest.mark.parametrize("text", CHOICES)
def test_choice(text):
    assert parse_choice(text, LETTERS) == CHOICES[text]


def test_letters_are_those_of_the_question():
    assert parse_choice("Answer: E", "ABCDE") == "E"
    assert parse_choice("Answer: I think so", "ABCDEFGHI") is None
    assert parse_choice("Answer: B", "A") is None
    assert parse_choice("Answer: a", {"A": "x", "B": "y"}) == "A"


def test_failures_have_kinds():
    assert read_choice("Answer: B", LETTERS).values == {"choice": "B"}
    kinds = {text: read_choice(text, LETTERS).failure for text in ("Answer: B", " \n", "the dog", "B or C", "A/B")}
    assert kinds == {
        "Answer: B": None,
        " \n": "empty reply",
        "the dog": "no choice",
        "B or C": "no choice",
        "A/B": "no choice",
    }
    assert read_choice("Answer: B or C", LETTERS).failure == "several choices"
    both = merge(read_choice("Answer: B", LETTERS), read_spans("Answer: B"))
    assert (both.values, both.failure) == ({"choice": "B"}, "no span")
    assert merge(read_choice("x", LETTERS), read_spans("x")).failure == "no choice and no span"
    assert merge(read_choice("", LETTERS), read_spans("")).failure == "empty reply"


SPANS = {
    "00:12-00:15": [(12, 15)],
    "00:12 to 00:15": [(12, 15)],
    "12.5s - 15.2s": [(12.5, 15.2)],
    "from 15 to 12 seconds": [],
    "01:02:03 to 01:02:10": [(3723, 3730)],
    "12–15": [(12, 15)],
    "12−15": [(12, 15)],
    "from 1:05 until 1:20": [(65, 80)],
    "between 12 and 15 seconds": [(12, 15)],
    "<answer>12.54 to 17.83</answer>": [(12.54, 17.83)],
    "0-10 s is empty.\nTime: 12.5 to 20.0": [(12.5, 20)],
    "**Time:** 12-20 and 30-40": [(12, 20), (30, 40)],
    '{"relevant_span": [3.0, 10.5], "answer": "B"}': [(3, 10.5)],
    "<evidence>\nTime:00:07-00:19, Des: from 1 to 2 ropes\nTime:00:30-00:20, Des: b\n"
    "Time:00:40-00:50, Des: c\n</evidence><think>x</think><answer>B</answer>": [(7, 19), (40, 50)],
    "[9, 3]": [],
    "at 12": [],
    "": [],
}


@pytest.mark.parametrize("text", SPANS)
def test_spans(text):
    assert parse_spans(text) == SPANS[text]


def test_span_failures_have_kinds():
    assert read_spans("from 15 to 12 seconds").failure == "reversed span"
    assert read_spans("[9, 3]").failure == "reversed span"
    assert read_spans("at 12").failure == "no span"
    assert read_spans("  ").failure == "empty reply"
    assert read_spans("20-10 or 3-4").values == {"spans": [(3, 4)]}


@pytest.mark.parametrize(
    ("text", "rest", "span"),
    [
        ("<10.0> <20> The man jumps", "The man jumps", (10, 20)),
        ("The man jumps", "The man jumps", None),
        ("<10> <999> x", "x", (10, 60)),
        ("<-5> <10> x", "<-5> <10> x", None),
        ("<10.5s> <20> x", "<10.5s> <20> x", None),
        ("<20.> until <.5> x <7>", "until  x <7>", (0.5, 20)),
        ("<nan> <inf>", "<nan> <inf>", None),
    ],
)
def test_marked_seconds(text, rest, span):
    assert read_marked_seconds(text, 60) == (rest, span)


@pytest.mark.alone
@pytest.mark.parametrize(
    "piece",
    ["\n", "(", "*", " ", "answer ", "answer is ", "A or ", "<answer>", "option\n", "[1 ", "Time: ", "A. ", "12-"],
)
def test_hostile_text_takes_linear_time(piece):
    started = time.perf_counter()
    text = piece * (200_000 // len(piece))
    parse_choice(text, "ABCDE")
    parse_choice("x" + text, "ABCDE")
    parse_spans(text)
    read_marked_seconds(text, 1)
    assert time.perf_counter() - started < 5
