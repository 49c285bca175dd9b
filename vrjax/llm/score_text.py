"""The score in a judge's words. Where it is not clear which number is the score, that is an error, never a guess."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from vrjax.llm.json_text import THINKING, CutOffError, extract_json

# A number that stands alone, with what may change its meaning: a scale ("/5", "(out of 5)") or a range ("3-4").
NUMBER = (
    r"(?<![\w.,/+−–—-])(?P<number>[-+−]?\d+(?:\.\d+)?)(?![\w%]|[.,]\d)"
    r"(?:\s*(?:/|\(?\bout\s+of\b)\s*(?P<scale>\d+(?:\.\d+)?)|(?P<range>\s*(?:[-–—−]|\bto\b|\bor\b|\bthrough\b)\s*\d))?"
)
# Between a label and its number: marks and a few small words; a dash only where it is not the number's sign.
LINK = r"(?:\s|[*_`\"':=(\[]|[-–—](?=\s)|\b(?:is|of|as|a|an|at|be|was|would|should|will|it|this|therefore)\b)*"
LABEL = rf"\b(?P<final>(?:final|overall|total)\s+)?(?:scores?|rating|grade){LINK}{NUMBER}"
GIVEN = (
    r"(?:\bI(?:['’](?:d|ll)|\s+would|\s+will)?\s+(?:give|assign|award|rate)|\b(?:rated|graded|scored)"
    rf"|\b(?:deserves|merits|earns|gets|receives)\s+(?=an?\s))\b{LINK}{NUMBER}"
)
LABELLED, GRANTED = re.compile(LABEL, re.IGNORECASE), re.compile(GIVEN, re.IGNORECASE)
BOXED = re.compile(rf"\\boxed\{{\s*{NUMBER}\s*\}}", re.IGNORECASE)
OPENING = re.compile(rf"\A[\s*_`\"'(\[]*{NUMBER}\s*(?:points?|stars?)?\s*(?:[.,:;)\]*_`\"'\n–—-]|\Z)", re.IGNORECASE)
CLOSING = re.compile(rf"{NUMBER}[\s.*_`\"')\]!]*\Z", re.IGNORECASE)
ANY = re.compile(NUMBER, re.IGNORECASE)
SCALE_ALONE = re.compile(
    r"(?<![\d/])(?<!\d\s)(?<!\d\()(?<!\d\s\()\bout\s+of\s+(?:a\s+possible\s+)?(\d+(?:\.\d+)?)", re.IGNORECASE
)
OWN_RANGE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(?:[-–—−]|\bto\b|\bthrough\b)\s*(\d+(?:\.\d+)?)(?![\w%]|[.,]\d)")
LIST_ITEMS = (re.compile(r"(?<!\S)1[.)]\s"), re.compile(r"(?<!\S)2[.)]\s"))
SCORE_KEY = re.compile(r"(?:^|[_\s-])(?:score|rating|grade|points?)$", re.IGNORECASE)
SCORE_FIELD = re.compile(rf"[\"'](?:\w*_)?(?:score|rating|grade)[\"']\s*:\s*[\"']?{NUMBER}", re.IGNORECASE)
FINAL_KEY = re.compile(r"final|overall|total", re.IGNORECASE)


def parse_score(text: str, low: float, high: float) -> int | float:
    """The score that a judge gave, on the scale from `low` to `high`.

    Read from JSON where there is any ("score", "rating", …, or the only number), else from words: "Score: 4", "3/5",
    "Out of 5, I give 3", "4. Because …". Raises ValueError where there is no score, it lies outside the scale or is
    for another one, is NaN, infinite or a range, or two numbers compete.
    """
    text = THINKING.sub("", text)
    if boxed := list(BOXED.finditer(text)):
        return _agreed(boxed, low, high)
    if "{" in text:
        return _checked(_from_json(text, low, high), low, high)
    return _from_words(text, low, high)


def _from_json(text: str, low: float, high: float) -> Any:
    try:
        value = extract_json(text)
    except CutOffError:
        raise  # which field it was is unknown
    except ValueError as error:
        # A quotation mark inside a reason breaks JSON, but not a field that stands by itself.
        if fields := list(SCORE_FIELD.finditer(text)):
            return _agreed(fields, low, high)
        raise ValueError(f"no score can be read: {error}") from None
    leaves = list(_leaves(value, ""))
    scores = [(key, leaf) for key, leaf in leaves if SCORE_KEY.search(key)]
    scores = [(key, leaf) for key, leaf in scores if FINAL_KEY.search(key)] or scores
    if not scores:
        scores = [(key, leaf) for key, leaf in leaves if isinstance(leaf, (int, float)) and not isinstance(leaf, bool)]
    if len({repr(leaf) for _, leaf in scores}) != 1:
        raise ValueError("the JSON holds several scores" if scores else "the JSON holds no score")
    return scores[0][1]


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, "")
    else:
        yield key, value


def _from_words(text: str, low: float, high: float) -> int | float:
    for scale in SCALE_ALONE.findall(text):
        if float(scale) != high:
            raise ValueError(f"the score is out of {scale}, not out of {high:g}")
    text = SCALE_ALONE.sub(" ", text)
    # "0-5", "from 1 to 5": our own scale says nothing.
    text = OWN_RANGE.sub(lambda match: " " if (float(match[1]), float(match[2])) == (low, high) else match[0], text)

    labelled = list(LABELLED.finditer(text))
    if labelled := [match for match in labelled if match["final"]] or labelled:
        return _agreed(labelled, low, high)
    if granted := list(GRANTED.finditer(text)):
        return _agreed(granted, low, high)
    numbers = list(ANY.finditer(text))
    if of_scale := [match for match in numbers if match["scale"]]:
        return _agreed(of_scale, low, high)
    if (opening := OPENING.match(text)) and not all(item.search(text) for item in LIST_ITEMS):
        return _agreed([opening], low, high)
    # A number among words counts only where it is the only one and the last word: "My verdict: 3."
    if len(numbers) == 1 and (closing := CLOSING.search(text)):
        return _agreed([closing], low, high)
    raise ValueError("no number in the reply is clearly the score" if numbers else "the reply holds no score")


def _agreed(matches: Sequence[re.Match[str]], low: float, high: float) -> int | float:
    """The one number that all matches give."""
    found = [_number(match, low, high) for match in matches]
    if len(set(found)) > 1:
        raise ValueError(f"several scores are given: {', '.join(f'{value:g}' for value in found)}")
    return found[0]


def _number(match: re.Match[str], low: float, high: float) -> int | float:
    value = float(match["number"].replace("−", "-"))
    if match["range"]:
        raise ValueError(f"the score is a range: {match['number']}{match['range']}")
    # 0 is 0 on any scale that begins there.
    if match["scale"] and float(match["scale"]) != high and not value == low == 0:
        raise ValueError(f"the score {value:g} is out of {match['scale']}, not out of {high:g}")
    return _checked(value, low, high)


def _checked(value: Any, low: float, high: float) -> int | float:
    if isinstance(value, str):
        return _from_words(value, low, high)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"the score is {value!r}, not a number")
    if not low <= value <= high:
        raise ValueError(f"the score {value:g} is outside {low:g} to {high:g}")
    return int(value) if float(value).is_integer() else float(value)
