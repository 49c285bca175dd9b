"""Reading what models say, in one place: option letters, time ranges, `<seconds>` marks; scores and responses as well.

Nothing is guessed. A reply that cannot be read has a kind ("no choice", "several choices", "no span", "reversed span",
"empty reply"); the caller keeps it verbatim and counts it by that name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from vrjax.evaluation.benchmark import Parsed
from vrjax.evidence import find_time_ranges, parse_response, parse_time_range
from vrjax.llm.json_text import THINKING
from vrjax.llm.score_text import parse_score

__all__ = [
    "merge",
    "parse_choice",
    "parse_response",
    "parse_score",
    "parse_spans",
    "parse_time_range",
    "read_choice",
    "read_marked_seconds",
    "read_spans",
]

EMPTY, NO_CHOICE, SEVERAL_CHOICES, NO_SPAN, REVERSED = (
    "empty reply", "no choice", "several choices", "no span", "reversed span"
)  # fmt: skip

_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_MARKS = r"*_`\"'“”‘’"
_OPEN, _CLOSE = rf"(\[{{{_MARKS}", rf")\]}}{_MARKS}"
# Words that follow a letter standing alone, and never the article "a" or a name.
_AFTER = r"(?:because|since|as|due|given|based|which|rather|instead|not|but|or)\b"
# Between a label and its letter; a "not" or a word of doubt is no link.
_LINK = (
    rf"(?:\s++|[{_OPEN}:=<>~→-]|\b(?:is|was|would|should|must|will|be|the|option|choice|letter|most|likely|probably"
    r"|clearly|therefore|thus|definitely|indeed|(?:to|for)\s+(?:the|this)\s+question)\b){0,16}+"
)
_LABEL = (
    r"(?<!wrong )(?<!incorrect )(?<!not the )(?<!not my )\b(?P<final>final\s+)?"
    r"(?:(?:correct|right|best|chosen|my|most\s+\w+)\s+(?:option|choice|letter|answer|one)|answer"
    r"|(?:option|choice|letter)(?=\s*(?:is\b|[:=])))"
)
_CHOOSE = r"\bI(?:['’](?:d|ll)|\s+would|\s+will)?\s+(?:choose|pick|select|go\s+with|answer)\b"
_PRAISE = (
    r"\s+(?:is|seems|appears\s+to\s+be|must\s+be)\s+(?:(?:clearly|definitely|the|most\s+likely|most)\s+){0,3}"
    r"(?:correct|right|best|accurate|answer)(?:\s+(?:answer|option|choice|one|match|fit))?"
    r"(?=\s*(?:[.,;:!)*]|\Z|\n)|\s+(?:because|since|as)\b)"
)
_DENIED = re.compile(
    r"\b(?:not|never|neither|nor|cannot|wrong|incorrect|except|rules?|eliminat\w+|exclud\w+)\b|n['’]t\b"
)


def _answer_part(text: str) -> str:
    """What stands in the last `<answer>` block, else the whole text."""
    tags = list(_ANSWER_TAG.finditer(text))
    blocks = [(a.end(), b.start()) for a, b in pairwise(tags) if not a[1] and b[1]]
    return text[slice(*blocks[-1])] if blocks else text


class _Forms:
    """The ways in which a reply may name one of these letters, from the clearest to the least clear."""

    def __init__(self, letters: str) -> None:
        upper = f"[{re.escape(letters)}]"
        either = f"[{re.escape(letters + letters.lower())}]"
        # Capitals that are no word (A, I) and no name (EgoSchema calls the wearer of the camera C).
        free = "".join(letter for letter in letters if letter not in "ACI")
        mark = rf"(?:\Z|[,;!{_CLOSE}>(\[]|\.(?!\w)|:(?!\d)|[-–—]\s|\n|[/&])"
        alone = rf"(?!\w)(?!['’]\w)(?=\s*+{mark}|\s[-–—]|\s+{_AFTER})"
        letter = rf"[{_OPEN}]*+(?:(?P<letter>{either}){alone}" + (
            rf"|(?P<free>[{re.escape(free)}])(?=\s))" if free else ")"
        )
        one = rf"[{_OPEN}]*+{upper}{alone}"
        joint = rf"[{_CLOSE}]*\s*(?:[,/&]|,?\s*\b(?:or|and)\b)\s*(?:or\s+|and\s+|option\s+)?"
        self._upper = re.compile(upper)
        self._other_after = re.compile(rf"{joint}(?P<other>{one})")
        self._other_before = re.compile(rf"{one}{joint}\Z")
        self._whole = re.compile(
            rf"\A[\s{_OPEN}<#-]*+(?:(?i:option|choice)\s++[{_OPEN}]*+)?(?P<letter>{either})[\s{_CLOSE}>.,:;!]*+\Z"
        )
        self._boxed = re.compile(rf"\\boxed\{{\s*(?:\\text\{{)?\s*\(?(?P<letter>{either})\)?\s*\}}")
        self._stated = re.compile(rf"(?:{_LABEL}|{_CHOOSE}){_LINK}{letter}", re.IGNORECASE)
        self._praised = re.compile(rf"[{_OPEN}]{{0,4}}(?<!\w)(?P<letter>{upper})[{_CLOSE}]*{_PRAISE}")
        self._line = re.compile(rf"^[ \t{_OPEN}<]*+(?P<letter>{either})[ \t{_CLOSE}>.!]*+$", re.MULTILINE)
        self._opening = re.compile(
            rf"^[ \t{_OPEN}]*+(?:(?:option|choice)\s++[{_OPEN}]*+)?(?:"
            rf"(?P<letter>{either})(?:[)\]}}]|[{_MARKS}]*(?:\.(?!\w)|:(?!\d))|[{_MARKS}]+\s)"
            rf"|(?P<free>{upper})(?:\s+[-–—]\s|,?\s+(?:because|since)\b))",
            re.MULTILINE | re.IGNORECASE,
        )
        self._closing = re.compile(rf"[(\[](?P<letter>{upper})[)\]][\s.!{_MARKS}]*\Z")
        self._bracketed = re.compile(rf"[(\[]({upper})[)\]]")

    def named(self, text: str) -> set[str]:
        """The letters that the clearest form present gives: one is an answer, two are a contradiction."""
        for form in (self._whole, self._boxed):
            if found := list(form.finditer(text)):
                return {_letter(match) for match in found}
        stated = [match for match in self._stated.finditer(text) if _is_letter(match)]
        final = [match for match in stated if match["final"]]
        if stated := final or [*stated, *self._praised.finditer(text)]:
            return {letter for match in stated for letter in self._with_rivals(text, match)}
        for form in (self._line, self._opening):
            if found := [match for match in form.finditer(text) if _is_letter(match)]:
                return {_letter(match) for match in found}
        if match := self._closing.search(text):
            sentence = re.split(r"[.!?]\s|\n", text[: match.start()])[-1]
            if not _DENIED.search(sentence.lower()):
                return set(self._bracketed.findall(text))
        return set()

    def _with_rivals(self, text: str, match: re.Match[str]) -> set[str]:
        """The letter, and those that "or", "and" or a comma put beside it."""
        found = {_letter(match)}
        after = match.end("letter" if match["letter"] else "free")
        if rival := self._other_after.match(text, after):
            found.update(self._upper.findall(rival["other"]))
        if rival := self._other_before.search(text, max(0, match.start() - 24), match.start()):
            found.update(self._upper.findall(rival[0]))
        return found


def _letter(match: re.Match[str]) -> str:
    return (match["letter"] or match["free"]).upper()


def _is_letter(match: re.Match[str]) -> bool:
    """Labels may be of any case; a letter without a mark behind it must be a capital."""
    free = match.groupdict().get("free")
    return free is None or free.isupper()


@lru_cache(maxsize=64)
def _forms(letters: str) -> _Forms:
    return _Forms(letters)


def _named(text: str, letters: Iterable[str]) -> set[str]:
    forms = _forms("".join(letters).upper())
    text = THINKING.sub("", unicodedata.normalize("NFKC", text))
    return forms.named(_answer_part(text).strip())


def parse_choice(text: str, letters: Iterable[str]) -> str | None:
    """The option that a reply names, in upper case; None where it names none, or more than one.

    Read in this order, the first form present deciding: the reply is a letter (`b`, `**B**`, `(B)`); `\\boxed{B}`; a
    statement ("answer: c", "the correct option is (B)", "I choose D", "B is correct"), "final answer" before others;
    a line that is a letter; a line that begins like an option ("B. a heron"); a single letter in brackets at the end,
    unless its sentence denies it. In an `<answer>` block only the last such block is read; text between `<think>` tags
    never. "a dog" is no A, and "Answer: C walks home" no C: a letter that may be a word or a name needs a mark behind
    it.

    Args:
        text: the reply.
        letters: of the options, each one character.
    """
    found = _named(text, letters)
    return next(iter(found)) if len(found) == 1 else None


def read_choice(text: str, letters: Iterable[str]) -> Parsed:
    """`parse_choice` as {"choice": letter}, or the kind of failure."""
    found = _named(text, letters)
    if len(found) == 1:
        return Parsed(values={"choice": next(iter(found))})
    return Parsed(failure=SEVERAL_CHOICES if found else NO_CHOICE if text.strip() else EMPTY)


_TIME_LINE = re.compile(
    r"^[ \t*_`#-]*+(?:time|times|span|moment|window)\b[ \t*_`]*+[:：=](.*)$", re.IGNORECASE | re.MULTILINE
)
_BRACKETS = re.compile(r"\[\s*+([0-9]++(?:\.[0-9]++)?)\s*+s?\s*+,\s*+([0-9]++(?:\.[0-9]++)?)\s*+s?\s*+\]")


def _ranges(text: str) -> list[tuple[float, float]]:
    if "<evidence>" in text:
        lines = parse_response(text).evidence
        return [found[0] for line in lines if (found := find_time_ranges(line.text))]
    text = THINKING.sub("", text)
    lines = [match[1] for match in _TIME_LINE.finditer(text)]
    for part in ("\n".join(lines), _answer_part(text)):
        if found := find_time_ranges(part) or [(float(a), float(b)) for a, b in _BRACKETS.findall(part)]:
            return found
    return []


def read_spans(text: str) -> Parsed:
    """{"spans": [(start, end), …]} in seconds, in the order in which they are written, or the kind of failure.

    Read from the lines of an `<evidence>` block, else from lines that begin with "Time:", else from the last
    `<answer>` block, else from the whole text. `[12.5, 20]` is a range where no other is written. A reversed range is
    never swapped: it is left out, and a reply that holds no other one is a "reversed span".
    """
    ranges = _ranges(text)
    spans = [(start, end) for start, end in ranges if start <= end]
    if spans:
        return Parsed(values={"spans": spans})
    return Parsed(failure=REVERSED if ranges else NO_SPAN if text.strip() else EMPTY)


def parse_spans(text: str) -> list[tuple[float, float]]:
    """The spans of `read_spans`, in seconds; none where there are none."""
    return list(read_spans(text).values.get("spans", ()))


_MARKED = re.compile(r"<(\d*\.\d+|\d+\.?)>")


def read_marked_seconds(text: str, duration: float) -> tuple[str, tuple[float, float] | None]:
    """The first two `<seconds>` of a text: the text without them, and the span; None where there are fewer than two.

    ActivityNet-RTL's form (github.com/NVlabs/LITA): `<12>`, `<12.>`, `<12.5>`, `<.5>`, without a sign or a unit; both
    are clamped to [0, duration], in seconds, and put in order.
    """
    marks = list(_MARKED.finditer(text))[:2]
    if len(marks) < 2:
        return text, None
    first, second = marks
    times = [min(max(float(mark[1]), 0.0), duration) for mark in marks]
    rest = text[: first.start()] + text[first.end() : second.start()] + text[second.end() :]
    return rest.strip(), (min(times), max(times))


def merge(*parts: Parsed) -> Parsed:
    """What several readers found in one reply; failures of several are joined by "and"."""
    failures = list(dict.fromkeys(part.failure for part in parts if part.failure is not None))
    return Parsed(
        values={key: value for part in parts for key, value in part.values.items()},
        failure=" and ".join(failures) or None,
    )
