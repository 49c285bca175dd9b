"""Words equal Stanford's tokenizer's: on written-down cases, on random texts, and on real annotations."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.evaluation.captions.java import java_words, needs_java
from vrjax.evaluation.captions import ptb_words

# Put down from the Java program's output.
CASES = {
    "Hello World. It's a (nice) day, isn't it?": "hello world it 's a -lrb- nice -rrb- day is n't it",
    "What?? Really?! Wow!!! Mr. Smith went to the U.S. It": "what ?? really ?! wow !!! mr. smith went to the u.s. it",
    "It cost $3.50, £5, €6, 50¢ or 50%.": "it cost $ 3.50 # 5 $ 6 50 cents or 50 %",
    "well-known 1/2 and ½ cup; a/b *star* [x] {y}": (
        "well-known 1/2 and 1/2 cup a/b * star * -lsb- x -rsb- -lcb- y -rcb-"
    ),
    "<br> http://www.x.com/a?b=c foo@bar.com @user #tag": "<br> http://www.x.com/a?b=c foo@bar.com @user #tag",
    "I cannot go, gonna, wanna; 'twas": "i can not go gon na wan na 't was",
    "don't can't they'll we've y'all rock 'n' roll '90s dogs'": (
        "do n't ca n't they 'll we 've y' all rock 'n' roll '90s dogs"
    ),
    "it’s don’t o’clock “curly” ‘quotes’": "it 's do n't o’clock curly quotes",
    "emoji 😀 here ❤️ — dash": "emoji here ❤ dash",
    "a||b ||| c": "a | | b | | | c",
    "5:30pm 12-15 00:12-00:15 1,000.50 3.5m x² 10°C": "5:30 pm 12-15 00:12 -00:15 1,000.50 3.5 m x ² 10 ° c",
    "one.Two one..two one...two": "one.two one two one two",
    "e.g. i.e. a.m. Ph.D. etc. p. 5 No. 5 no. five": "e.g. i.e. a.m. ph.d. etc. p. 5 no. 5 no five",
    "AT&T R&D A&b C++ C# F#": "at&t r&d a & b c++ c# f#",
    ":) :-( ;D :P a:b": ":-rrb- :--lrb- ;d :p a b",
    "O'Brien d'Artagnan Hawai'i x'a James'": "o'brien d'artagnan hawai'i x a james",
    "(555) 123-4567 and 555-1234": "-lrb-555-rrb- 123-4567 and 555-1234",
    "café naïve 你好 Привет": "café naïve 你好 привет",
    "clip.mp4 5.txt -- ----- ... ***": "clip.mp4 5.txt ----- ***",
    "": "",
    " \t\n": "",
}


@pytest.mark.parametrize(("caption", "words"), CASES.items())
def test_cases(caption, words):
    assert ptb_words([caption])[0] == words.split()


@needs_java
def test_cases_are_what_the_java_program_says(tmp_path):
    captions = [caption.replace("\n", " ") for caption in CASES]
    # A line between, since the program looks beyond the end of a line.
    spaced = [line for caption in captions for line in (caption, "zz")]
    assert java_words(spaced, tmp_path)[::2] == [words.split() for words in CASES.values()]


def test_a_caption_sees_the_start_of_the_next_one():
    assert ptb_words(["No.", "5 boats."]) == [["no."], ["5", "boats"]]
    assert ptb_words(["No.", "Five boats."]) == [["no"], ["five", "boats"]]
    assert ptb_words(["a capital T.", "The man"])[0] == ["a", "capital", "t"]
    assert ptb_words(["a capital T.", "a man"])[0] == ["a", "capital", "t."]


def test_line_ends_are_spaces_and_no_captions_are_no_lines():
    for end in ("\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028"):
        assert ptb_words([f"one{end}two", "three"]) == [["one", "two"], ["three"]]
    assert ptb_words([]) == []
    assert ptb_words(["", "", "a"]) == [[], [], ["a"]]


def test_long_texts_without_spaces_take_no_long_time():
    for text in ("a," * 5000, "||" * 5000, "a@" * 5000, "http://" * 1000, "x" * 20_000, "((" * 5000, "<a " * 5000):
        assert len(ptb_words([text])) == 1


VOCABULARY = """
the a man walks dog's don't can't it's they're I'm we've he'd she'll o'clock rock'n'roll 'em '90s 1990s 10 3.5 1,000
5:30 1/2 50% $5 Mr. Dr. U.S. e.g. etc. a.m. No. no. Yes. St. vs. well-known x-ray T-shirt (yes) [no] {x} "quoted"
'quoted' “curly” ‘single’ it’s don’t — – - -- ... … !? ?? ! , ; : . café naïve 你好 😀 ❤️ ||| | / and/or km/h #tag
@user a@b.com www.a.com http://a.b/c & AT&T R&D * _ ~ ^ + = < > cannot gonna Cannot wanna The This It A In the. The.
Video. one.Two 5pm 10k 1st 20th-century O'Brien James' dogs' 's n't 've :) :( ;-) :D p. pp. fig. 12-15 00:12-00:15 2010
555-1234 1 2 3 mid-air re-enter man/woman word' 'word (word word) word). word.) $1,000.50 £20 20€ 100kg 5'10" 6" #1 No.1
1. 2) a) (a) II. 3D 4K clip.mp4 I. Mr. Ph.D. </b> ’” ”‘ ““
"""
CAPTIONS = st.lists(st.sampled_from(VOCABULARY.split()), max_size=15).map(" ".join)


@needs_java
@settings(max_examples=4, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CAPTIONS, min_size=150, max_size=200))
def test_random_captions_are_cut_as_by_the_java_program(captions):
    with tempfile.TemporaryDirectory() as folder:
        theirs = java_words([*captions, "zz"], Path(folder))[:-1]
    ours = ptb_words([*captions, "zz"])[:-1]
    assert {
        caption: words for caption, words, other in zip(captions, ours, theirs, strict=True) if words != other
    } == {}


def strings(value):
    if isinstance(value, str):
        yield from value.splitlines()
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(item)


@needs_java
@pytest.mark.skipif("VRJAX_REALDATA" not in os.environ, reason="VRJAX_REALDATA is not set")
@pytest.mark.parametrize(
    "name",
    ["moviechat/train.json", "activitynet_captions/val_1.json", "eg_vqa/test_sample.json"],
)
def test_real_annotations_are_cut_as_by_the_java_program(name, tmp_path):
    """Every text of the file; the program splits lines at more marks than newlines, which are cut out first."""
    texts = list(dict.fromkeys(strings(json.loads((Path(os.environ["VRJAX_REALDATA"]) / name).read_text()))))[:8000]
    theirs = java_words([*texts, "zz"], tmp_path)[:-1]
    ours = ptb_words([*texts, "zz"])[:-1]
    assert len(texts) > 30
    assert [(text, one, other) for text, one, other in zip(texts, ours, theirs, strict=True) if one != other] == []
