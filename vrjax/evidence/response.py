"""The EG-Reasoner response: timed evidence, then reasoning, then an answer.

```
<evidence>
Time:00:07-00:19, Des: A woman ties a rope to a post.
</evidence>
<think>The rope holds, so the boat can be pulled.</think>
<answer>The boat is pulled ashore.</answer>
```
Times may also be seconds or HH:MM:SS. Reading never fails: whatever departs from the format has a name in `Fault`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from vrjax.errors import InputError
from vrjax.evidence.spans import Span, TimedDescription
from vrjax.evidence.time_range import find_time_ranges, format_time_range, lacks_separator

MAX_LINES = 5

# Put behind the question; our own words for the response format of EG-VQA (METHODS: task and records). Version 1.
EVIDENCE_INSTRUCTION = (
    "\nFirst list the moments of the video that support the answer, in time order, at most five, one a line as "
    "'Time:MM:SS-MM:SS, Des: what happens'. Then reason from them in two to four sentences. Then answer in one short "
    "sentence. Write exactly:\n<evidence>\nTime:MM:SS-MM:SS, Des: …\n</evidence>\n<think>…</think>\n<answer>…</answer>"
)


class Fault(StrEnum):
    """What can be wrong with a response. The first group leaves a line without a span; it still counts as predicted."""

    MISSING_TIME_MARKER = "missing_time_marker"  # the line does not begin with `Time:`
    MISSING_DESCRIPTION_MARKER = "missing_description_marker"  # no `Des:` after the time
    NOT_A_TIME = "not_a_time"  # no readable times, or more than two in a chain
    MISSING_DASH = "missing_dash"  # times, but nothing that joins two into a range
    REVERSED = "reversed"  # ends before it starts; never swapped

    # The span is kept as written.
    ZERO_LENGTH = "zero_length"  # starts when it ends: IoU 0 with everything
    PAST_END = "past_end"  # ends after the video's last second; not clipped
    SEVERAL_RANGES = "several_ranges"  # the first one is used
    EMPTY_DESCRIPTION = "empty_description"  # similarity 0 with everything
    JOINED_LINES = "joined_lines"  # a second `Time:` within the description; one prediction

    # Of the whole response.
    MORE_THAN_FIVE_LINES = "more_than_five_lines"  # all lines are kept, so that surplus ones cost precision
    NOT_IN_TIME_ORDER = "not_in_time_order"
    MISSING_BLOCK = "missing_block"
    DUPLICATE_BLOCK = "duplicate_block"  # the first one is read
    UNBALANCED_BLOCK = "unbalanced_block"  # opened and not closed (read up to the next tag), or closed and not opened
    BLOCKS_OUT_OF_ORDER = "blocks_out_of_order"
    TEXT_OUTSIDE_BLOCKS = "text_outside_blocks"


@dataclass(frozen=True)
class EvidenceLine:
    """One line of the evidence block. `span` (seconds) is None where the line cannot be read or is reversed."""

    text: str
    span: Span | None
    description: str
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Response:
    """A response, read. `well_formed` is the binary format reward; `response_faults` are those of no single line."""

    evidence: tuple[EvidenceLine, ...]
    reasoning: str
    answer: str
    well_formed: bool
    response_faults: tuple[Fault, ...] = ()

    @property
    def faults(self) -> Mapping[Fault, int]:
        """How often each fault occurs, in its lines and as a whole."""
        counts = Counter(self.response_faults)
        for line in self.evidence:
            counts.update(line.faults)
        return counts


_BLOCKS: tuple[str, ...] = ("evidence", "think", "answer")
_TAG = re.compile(r"<(/?)(evidence|think|answer)>")
# Pieces between the six tags of a whole response, in order.
_ORDER = tuple((slash, name) for name in _BLOCKS for slash in ("", "/"))
_TIME_MARKER = re.compile(r"\s*Time\s*[:：]", re.IGNORECASE)
_DESCRIPTION_MARKER = re.compile(r"\bDes(?:cription)?\s*+[:：]", re.IGNORECASE)
_SECOND_ENTRY = re.compile(r"\bTime\s*+[:：]\s*+[0-9]", re.IGNORECASE)


def parse_line(line: str, duration: float | None = None) -> EvidenceLine:
    """Read one line `Time:MM:SS-MM:SS, Des: …`.

    Args:
        line: the line.
        duration: seconds of the video; `past_end` is only found where it is given. A time on the clock may round the
            duration up to its next whole second.
    """
    text = line.strip()
    marker = _TIME_MARKER.match(text)
    if marker is None:
        return EvidenceLine(text, None, "", (Fault.MISSING_TIME_MARKER,))
    description_marker = _DESCRIPTION_MARKER.search(text, marker.end())
    if description_marker is None:
        return EvidenceLine(text, None, "", (Fault.MISSING_DESCRIPTION_MARKER,))
    written = text[marker.end() : description_marker.start()].strip(" \t,;")
    description = text[description_marker.end() :].strip()
    faults: list[Fault] = []
    span: Span | None = None
    ranges = find_time_ranges(written)
    if not ranges:
        faults.append(Fault.MISSING_DASH if lacks_separator(written) else Fault.NOT_A_TIME)
    else:
        start, end = ranges[0]
        if start > end:
            faults.append(Fault.REVERSED)
        else:
            span = Span(start, end)
            if start == end:
                faults.append(Fault.ZERO_LENGTH)
            if duration is not None and end > math.ceil(duration):
                faults.append(Fault.PAST_END)
        if len(ranges) > 1:
            faults.append(Fault.SEVERAL_RANGES)
    if not description:
        faults.append(Fault.EMPTY_DESCRIPTION)
    elif _SECOND_ENTRY.search(description):
        faults.append(Fault.JOINED_LINES)
    return EvidenceLine(text, span, description, tuple(faults))


def _read_blocks(text: str) -> tuple[dict[str, str], bool, list[Fault]]:
    tags = list(_TAG.finditer(text))
    faults: list[Fault] = []
    found = tuple((tag[1], tag[2]) for tag in tags)
    pieces = [text[a:b] for a, b in zip([0, *(t.end() for t in tags)], [*(t.start() for t in tags), None], strict=True)]
    outside = any(piece.strip() for piece in pieces[::2])
    if found == _ORDER:
        blocks = dict(zip(_BLOCKS, pieces[1::2], strict=True))
        return blocks, not outside, [Fault.TEXT_OUTSIDE_BLOCKS] if outside else []
    blocks, firsts, inside, covered = {}, {}, None, False
    for i, (slash, name) in enumerate(found):
        if not slash and name not in blocks:
            # Up to its own end tag where it has one, else up to the next tag.
            end = next((j for j in range(i + 1, len(tags)) if found[j] == ("/", name)), None)
            stop = tags[end].start() if end is not None else (tags[i + 1].start() if i + 1 < len(tags) else len(text))
            blocks[name] = text[tags[i].end() : stop]
            firsts[name] = i
    for name in _BLOCKS:
        opened, closed = found.count(("", name)), found.count(("/", name))
        if not opened:
            faults.append(Fault.MISSING_BLOCK)
        if opened > 1:
            faults.append(Fault.DUPLICATE_BLOCK)
        if opened != closed:
            faults.append(Fault.UNBALANCED_BLOCK)
    order = [firsts[name] for name in _BLOCKS if name in firsts]
    if order != sorted(order):
        faults.append(Fault.BLOCKS_OUT_OF_ORDER)
    for piece, (slash, name) in zip(pieces, [*found, ("", "")], strict=True):
        # A block that was opened and never closed covers what follows it up to the next tag.
        covered = covered or bool(inside is None and piece.strip())
        if not slash:
            inside = name
        elif inside == name:
            inside = None
    if covered:
        faults.append(Fault.TEXT_OUTSIDE_BLOCKS)
    if not faults:  # balanced, once each, in order of opening, and yet not one after the other: they are nested
        faults.append(Fault.BLOCKS_OUT_OF_ORDER)
    return blocks, False, faults


def parse_response(text: str, duration: float | None = None, max_lines: int = MAX_LINES) -> Response:
    """Read a response, whatever it is. Never raises on any text.

    `well_formed` (EG-Reasoner's binary format reward): exactly one evidence, think and answer block, in this order,
    and nothing else but white space. Where it is not, each block's first occurrence is read and the faults say why.
    Every non-empty line of the evidence block is one prediction, readable or not.

    Args:
        text: the model's response.
        duration: seconds of the video, for the fault `past_end`.
        max_lines: lines of evidence above which the response has the fault `more_than_five_lines`.
    """
    blocks, well_formed, faults = _read_blocks(text)
    lines = tuple(
        parse_line(line, duration) for line in re.split(r"[\r\n]", blocks.get("evidence", "")) if line.strip()
    )
    if len(lines) > max_lines:
        faults.append(Fault.MORE_THAN_FIVE_LINES)
    spans = [line.span for line in lines if line.span is not None]
    if any(later.start < earlier.start for earlier, later in pairwise(spans)):
        faults.append(Fault.NOT_IN_TIME_ORDER)
    return Response(
        evidence=lines,
        reasoning=blocks.get("think", "").strip(),
        answer=blocks.get("answer", "").strip(),
        well_formed=well_formed,
        response_faults=tuple(faults),
    )


def format_response(
    evidence: Sequence[TimedDescription], reasoning: str, answer: str, max_lines: int = MAX_LINES
) -> str:
    """Write a well-formed response; `parse_response` reads it back without a fault.

    Lines are put in time order; times are rounded to the second; white space in a description becomes single spaces.

    Args:
        evidence: at most `max_lines` pieces with a span (seconds) and a description.
        reasoning: what stands in the think block.
        answer: what stands in the answer block.

    Raises:
        InputError: too many pieces, one without usable times or description, or text that holds a tag of the format.
    """
    if len(evidence) > max_lines:
        raise InputError(f"a response holds at most {max_lines} lines of evidence, found {len(evidence)}. Choose some.")
    entries: list[tuple[Span, str]] = []
    for number, piece in enumerate(evidence, 1):
        description = " ".join(piece.description.split())
        if piece.span is None or piece.span.start < 0 or piece.span.length == 0:
            raise InputError(f"evidence {number} ({description!r}) has no usable times. Correct or drop it.")
        if not description:
            raise InputError(f"evidence {number} ({piece.span}) has no description. Correct or drop it.")
        entries.append((piece.span, description))
    for part in (*(description for _, description in entries), reasoning, answer):
        tag = _TAG.search(part)
        if tag:
            raise InputError(f"the text {part!r} holds the tag {tag[0]} of the response format. Take it out.")
    entries.sort(key=lambda entry: entry[0])
    lines = "".join(f"Time:{format_time_range(span)}, Des: {description}\n" for span, description in entries)
    return f"<evidence>\n{lines}</evidence>\n<think>{reasoning.strip()}</think>\n<answer>{answer.strip()}</answer>"
