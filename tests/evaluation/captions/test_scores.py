"""BLEU, CIDEr and METEOR: by hand, and equal to the COCO caption evaluation's own code."""

import json
import math
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.captions.java import java_words, needs_java
from vrjax.errors import InputError, RunError
from vrjax.evaluation.captions import meteor as meteor_module
from vrjax.evaluation.captions import score_captions
from vrjax.evaluation.captions.bleu import bleu_statistics
from vrjax.evaluation.captions.cider import cider

ODD = ["", " ", "yes", "|||", "a ||| b", "two\nlines", "a\r\n\r\nb", "😀", "great 😀!", "...", "你好", "no " * 60, "'"]


def test_bleu_by_hand():
    statistics = bleu_statistics(
        [["the", "cat", "the", "cat"]], [[["the", "cat", "sat"], ["a", "cat", "sat", "down", "here"]]]
    )
    # Words: the (1 of 2), cat (1 of 2); pairs: the cat (1 of 3). The closest reference has 3 words: no penalty.
    assert statistics.matched.tolist() == [[2, 1, 0, 0]]
    assert statistics.possible.tolist() == [[4, 3, 2, 1]]
    assert (statistics.length.tolist(), statistics.reference_length.tolist()) == ([4], [3])
    found = statistics.corpus()
    assert found[0] == pytest.approx(1 / 2, abs=1e-8)
    assert found[1] == pytest.approx(math.sqrt(1 / 2 * 1 / 3), abs=1e-8)
    assert found[3] < 1e-4


def test_bleu_penalises_what_is_too_short_and_sums_counts_over_a_corpus():
    predictions = [["a", "b"], ["c"]]
    references = [[["a", "b", "c", "d"]], [["c"]]]
    statistics = bleu_statistics(predictions, references)
    assert statistics.items()[:, 0] == pytest.approx([math.exp(1 - 4 / 2), 1], abs=1e-6)
    assert statistics.corpus()[0] == pytest.approx(math.exp(1 - 5 / 3), abs=1e-6)


def test_of_two_references_as_close_the_shorter_counts():
    assert bleu_statistics([["a"] * 4], [[["b"] * 5, ["b"] * 3]]).reference_length.tolist() == [3]


def test_cider_by_hand():
    # Two items; every n-gram is in one of them: idf = log 2 everywhere, so it cancels out of the cosines.
    found = cider([["a", "b"], ["c", "d"]], [[["a", "b"]], [["c", "e"]]])
    # First: cosine 1 for words and for pairs, 0 for longer ones: 10 · 2/4.
    assert found[0] == pytest.approx(5)
    # Second: one word of two, 1/2; no pair: 10 · 1/2 / 4.
    assert found[1] == pytest.approx(1.25)


def test_cider_penalises_another_length():
    found = cider([["a"], ["x"]], [[["a", "b", "c", "d"]], [["y"]]])
    # Words: a cosine of 1/2, and three words less.
    assert found[0] == pytest.approx(10 / 4 * 1 / 2 * math.exp(-(3**2) / (2 * 6**2)))


TEXTS = st.lists(st.sampled_from("abcde"), max_size=8)


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3)), min_size=1, max_size=8))
def test_any_words_equal_pycocoevalcap(rows):
    bleu = pytest.importorskip("pycocoevalcap.bleu.bleu")
    coco_cider = pytest.importorskip("pycocoevalcap.cider.cider")
    told = {n: [" ".join(words)] for n, (words, _) in enumerate(rows)}
    known = {n: [" ".join(words) for words in texts] for n, (_, texts) in enumerate(rows)}
    statistics = bleu_statistics([words for words, _ in rows], [texts for _, texts in rows])
    of_corpus, of_items = bleu.Bleu(4).compute_score(known, told, verbose=0)
    assert statistics.corpus() == pytest.approx(of_corpus, abs=1e-12)
    assert statistics.items() == pytest.approx(np.array(of_items).T, abs=1e-12)
    if any(text for texts in known.values() for text in texts):  # pycocoevalcap's stops where no reference has a word
        _, of_items = coco_cider.Cider().compute_score(known, told)
        assert cider([words for words, _ in rows], [texts for _, texts in rows]) == pytest.approx(of_items, abs=1e-12)


def test_cider_of_one_item_is_0_since_nothing_is_rare():
    assert cider([["a"]], [[["a"]]]).tolist() == [0]


def test_odd_texts_are_scored():
    predictions = {f"q{n}": text for n, text in enumerate(ODD)}
    shifted = {f"q{n}": [ODD[n - 1], "a plain reference"] for n in range(len(ODD))}
    scores = score_captions(predictions, shifted, ["bleu", "cider"])
    assert set(scores.corpus) == {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "cider"}
    for values in [scores.corpus, *scores.items.values()]:
        assert all(math.isfinite(value) and value >= 0 for value in values.values())
    assert scores.items["q0"] == dict.fromkeys(scores.corpus, pytest.approx(0, abs=1e-6))


def test_empty_against_empty_is_0_and_equal_is_1():
    scores = score_captions(
        {"a": "", "b": "one two three four"}, {"a": [""], "b": ["One, two, three, four!"]}, ["bleu"]
    )
    assert scores.items["a"]["bleu_4"] == 0
    assert scores.items["b"]["bleu_4"] == pytest.approx(1)


def coco_scores(predictions: dict[str, str], references: dict[str, list[str]], folder: Path):
    """Corpus and item values of pycocoevalcap's own scorers over words of its own tokenizer."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor

    words = java_words([text.replace("\n", " ") for text in predictions.values()], folder)
    told = {name: [" ".join(of_one)] for name, of_one in zip(predictions, words, strict=True)}
    flat = iter(java_words([text.replace("\n", " ") for texts in references.values() for text in texts], folder))
    known = {name: [" ".join(next(flat)) for _ in texts] for name, texts in references.items()}
    corpus, items = {}, {name: {} for name in predictions}
    for scorer, names in (
        (Bleu(4), [f"bleu_{n}" for n in range(1, 5)]), (Cider(), ["cider"]), (Meteor(), ["meteor"])
    ):  # fmt: skip
        of_corpus, of_items = scorer.compute_score(known, told)
        for name, value, column in zip(
            names, of_corpus if len(names) > 1 else [of_corpus], of_items if len(names) > 1 else [of_items], strict=True
        ):
            corpus[name] = value
            for item, one in zip(known, column, strict=True):
                items[item][name] = one
    return corpus, items


def assert_equal_to_coco(predictions, references, folder):
    scores = score_captions(predictions, references)
    corpus, items = coco_scores(predictions, references, folder)
    for name, value in corpus.items():
        bound = 1e-3 if name == "meteor" else 1e-6
        assert scores.corpus[name] == pytest.approx(value, abs=bound), name
        for item in references:
            assert scores.items[item][name] == pytest.approx(items[item][name], abs=bound), (item, name)


@pytest.mark.slow
@needs_java
@pytest.mark.skipif("VRJAX_REALDATA" not in os.environ, reason="VRJAX_REALDATA is not set")
def test_500_real_answers_shuffled_equal_pycocoevalcap(tmp_path):
    rows = json.loads((Path(os.environ["VRJAX_REALDATA"]) / "moviechat/train.json").read_text())
    draw = random.Random(0)
    names = draw.sample(sorted(rows), 500)
    answers = [rows[name]["answer"] for name in names]
    references = {name: [answer] for name, answer in zip(names, answers, strict=True)}
    draw.shuffle(answers)
    assert_equal_to_coco(dict(zip(names, answers, strict=True)), references, tmp_path)


@needs_java
def test_several_references_and_odd_texts_equal_pycocoevalcap(tmp_path):
    draw = random.Random(1)
    odd = [text.replace("\r", " ") for text in ODD]  # a carriage return shifts the lines of pycocoevalcap's tokenizer
    words = [
        "The",
        "man",
        "isn't",
        "walking",
        "to",
        "5",
        "boats,",
        "and",
        "a",
        "dog's",
        "bone.",
        "No.",
        "U.S.",
        "x-ray",
    ]
    texts = [*odd, *(" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(40))]
    predictions = {f"q{n}": text for n, text in enumerate(texts)}
    references = {name: draw.sample(texts, draw.randint(1, 4)) for name in predictions}
    assert_equal_to_coco(predictions, references, tmp_path)


@pytest.mark.parametrize(
    ("predictions", "references", "sentence"),
    [
        ({}, {}, "no predictions"),
        ({"q1": "a", "q9": "b"}, {"q1": ["a"]}, "no reference for q9"),
        ({"q1": "a"}, {"q1": ["a"], "q2": ["b"]}, "no prediction for q2"),
        ({"q1": "a"}, {"q1": []}, "an empty list of references for q1"),
    ],
)
def test_sides_that_do_not_match(predictions, references, sentence):
    with pytest.raises(InputError, match=sentence):
        score_captions(predictions, references)


def test_without_java_meteor_is_left_out_by_default_and_an_error_where_asked_for(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    scores = score_captions({"q1": "a"}, {"q1": ["a"]})
    assert "meteor" not in scores.corpus
    assert "Java" in scores.left_out["meteor"]
    with pytest.raises(InputError, match="METEOR needs Java"):
        score_captions({"q1": "a"}, {"q1": ["a"]}, ["meteor"])


@needs_java
def test_a_meteor_program_that_breaks_is_an_error_with_its_words(monkeypatch, tmp_path):
    broken = tmp_path / "meteor-1.5.jar"
    broken.write_bytes(b"no archive")
    monkeypatch.setattr(meteor_module, "_jar", lambda: broken)
    with pytest.raises(RunError, match=r"METEOR's program failed: it ended.*jar"):
        score_captions({"q1": "a"}, {"q1": ["a"]}, ["meteor"])
