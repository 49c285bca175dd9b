"""Times as people and models write them: `00:12-00:15`, `12.5s – 15.2s`, `between 12 and 15 seconds`.

A time is a clock (`MM:SS`, `HH:MM:SS`, fractions allowed, fields after the first below 60), seconds (`12.5`, `12 s`),
or minutes (`1m05s`, `2 minutes`). A range is two times with a dash of any kind, an arrow, or `to`, `until`, `till`,
`through` between them; `and` joins two times that no stronger word has joined, so that `12-15 and 20-25` is two ranges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from vrjax.evidence.spans import Span

# Possessive quantifiers (`++`) keep the time of a search linear in the length of hostile text.
_NUMBER = r"[0-9]++(?:\.[0-9]++)?"
_TIME = re.compile(
    r"(?<![\w])(?<![0-9][.:,])(?:"
    r"(?P<clock>[0-9]++(?::[0-9]{1,2}){1,2}(?:\.[0-9]++)?)(?:\s*+(?:seconds?|secs?|s)(?![a-z]))?"
    rf"|(?P<minutes>{_NUMBER})\s*+(?:minutes?|mins?|m)(?![a-z])"
    rf"(?:\s*+(?P<rest>{_NUMBER})\s*+(?:seconds?|secs?|s)(?![a-z]))?"
    rf"|(?P<seconds>{_NUMBER})(?P<unit>\s*+(?:seconds?|secs?|s)(?![a-z]))?"
    r")(?![^\W_]|[.:][0-9])(?!\s*+(?:hours?|hrs?|h)\b)",
    re.IGNORECASE,
)
# hyphen-minus, hyphens, figure dash, en dash, em dash, horizontal bar, minus sign, full-width hyphen, tilde
_DASH = "-‐‑‒–—―−－~"
_STRONG = re.compile(rf"\s*(?:[{_DASH}]{{1,3}}>?|→|\bto\b|\buntil\b|\btill\b|\bthrough\b)\s*", re.IGNORECASE)
_WEAK = re.compile(r"\s*\band\b\s*", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class _Time:
    begin: int  # character offsets in the text
    stop: int
    seconds: float | None  # None: looks like a time and is not one (seconds of 60 or more, negative, infinite)
    bare: bool = False  # a number without a unit
    minutes: bool = False  # whole or fractional minutes, without seconds


def _times(text: str) -> list[_Time]:
    found: list[_Time] = []
    for match in _TIME.finditer(text):
        bare = minutes = False
        seconds: float | None
        if match["clock"]:
            first, *fields = (float(field) for field in match["clock"].split(":"))
            seconds = first
            for field in fields:
                seconds = seconds * 60 + field
            if any(field >= 60 for field in fields):
                seconds = None
        elif match["minutes"]:
            minutes = match["rest"] is None
            seconds = float(match["minutes"]) * 60 + float(match["rest"] or 0)
        else:
            bare = match["unit"] is None
            seconds = float(match["seconds"])
        signed = match.start() > 0 and text[match.start() - 1] in "-−"
        if signed and not (found and _STRONG.fullmatch(text, found[-1].stop, match.start())):
            seconds = None
        if seconds is not None and not math.isfinite(seconds):
            seconds = None
        found.append(_Time(match.start(), match.end(), seconds, bare, minutes))
    return found


def _joined(text: str, times: list[_Time]) -> Iterator[tuple[_Time, _Time]]:
    strong = [bool(_STRONG.fullmatch(text, a.stop, b.begin)) for a, b in pairwise(times)]
    taken = [before or after for before, after in zip([False, *strong], [*strong, False], strict=True)]
    for i, (first, second) in enumerate(pairwise(times)):
        if strong[i]:
            # 12-15-18 is a date, a chain or a slip: refused, not guessed.
            if not (i > 0 and strong[i - 1]) and not (i + 1 < len(strong) and strong[i + 1]):
                yield first, second
        elif not taken[i] and not taken[i + 1] and _WEAK.fullmatch(text, first.stop, second.begin):
            yield first, second
            taken[i + 1] = True


def find_time_ranges(text: str) -> list[tuple[float, float]]:
    """All ranges in the text, as (start, end) in seconds **as written**: a reversed range stays reversed."""
    ranges = []
    for first, second in _joined(text, _times(text)):
        if first.seconds is not None and second.seconds is not None:
            # "2 to 3 minutes": the unit belongs to both numbers.
            shared = 60 if first.bare and second.minutes else 1
            ranges.append((first.seconds * shared, second.seconds))
    return ranges


def lacks_separator(text: str) -> bool:
    """Whether the text holds at least one time, but nothing that could join two into a range."""
    return bool(_times(text)) and not re.search(_STRONG, text)


def parse_time_range(text: str) -> Span | None:
    """Read the first time range of a text, in seconds.

    Where the text has an `<answer>…</answer>` block, only the last such block is read. A reversed range is not swapped:
    it is None, as is text without a range (`find_time_ranges` tells the two apart). A range of no length is a Span.
    """
    blocks = _ANSWER.findall(text)
    ranges = find_time_ranges(blocks[-1] if blocks else text)
    if not ranges or ranges[0][0] > ranges[0][1]:
        return None
    return Span(*ranges[0])


def format_time(seconds: float) -> str:
    """Write a time as `MM:SS`, from one hour on as `HH:MM:SS`, rounded to the nearest second (halves upward).

    Raises ValueError where the time is negative or not finite.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a clock cannot show {seconds} seconds")
    minutes, second = divmod(math.floor(seconds + 0.5), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02d}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


def format_time_range(span: Span) -> str:
    """Write a span as `MM:SS-MM:SS`.

    A span that has a length, but whose ends round to the same second, is widened to a whole second around it, because
    a zero-length span supports nothing.
    """
    start, end = format_time(span.start), format_time(span.end)
    if start == end and span.length > 0:
        start = format_time(math.floor(span.start))
    if start == end and span.length > 0:
        end = format_time(math.ceil(span.end))
    return f"{start}-{end}"
