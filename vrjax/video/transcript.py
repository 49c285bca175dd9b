"""What is said in a video, and when: SRT, WebVTT and JSON files read into one form.

[{"start": 1.5, "end": 3.25, "text": "Hello."}, …]      the form that is written; seconds from the video's start
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import InputError

SUFFIXES = (".srt", ".vtt", ".json", ".jsonl")
# Hours may be left out (WebVTT), the fraction may follow a comma (SRT) or a point, or be missing.
_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,9}))?"
_ARROW = re.compile(rf"^\s*{_TIME}\s*-->\s*{_TIME}(?:\s+(.*))?$")
_LOOKS_LIKE_TIMES = re.compile(r"-->")
_TAG = re.compile(r"</?(?:[bicuvs]|ruby|rt|lang|font|v|c)(?:[.\s][^>]*)?>|<\d{1,2}:\d\d(?::\d\d)?\.\d+>", re.IGNORECASE)
_ASS = re.compile(r"\{\\[^}]*\}")  # positions that some SRT files carry: {\an8}


@dataclass(frozen=True)
class Utterance:
    """What is said from `start` to `end`, in seconds; text without markup, white space single."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """Utterances in the order of their starts. They may overlap."""

    utterances: tuple[Utterance, ...]

    def between(self, start: float, end: float) -> Transcript:
        """What is said, at least in part, between two times in seconds."""
        return Transcript(tuple(one for one in self.utterances if one.start < end and one.end > start))

    @property
    def text(self) -> str:
        """All that is said, without times."""
        return " ".join(one.text for one in self.utterances)

    def write(self, path: str | Path) -> None:
        """Write as JSON, whole or not at all. Raises RunError where that fails."""
        from vrjax.run_directory import RunDirectory

        rows = [{"start": one.start, "end": one.end, "text": one.text} for one in self.utterances]
        RunDirectory(Path(path).parent).write_json(Path(path).name, rows)


def read_transcript(path: str | Path) -> Transcript:
    """Read `.srt`, `.vtt`, `.json` (a list, or {"segments": […]} as Whisper writes it) or `.jsonl`.

    Markup is taken out, cues without words are left out. A file without any cue is an empty transcript only where it is
    empty itself (for WebVTT: beyond its header). Raises InputError naming file and line (or entry) for times that
    cannot be read, are not numbers, or end before they start, for an unknown form, and for text that is not UTF-8.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: not a transcript that can be read. Give one of {', '.join(SUFFIXES)}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}). Convert it to UTF-8.") from error
    found = _from_json(text, path) if path.suffix.lower() in (".json", ".jsonl") else _from_cues(text, path)
    return Transcript(tuple(sorted(found, key=lambda one: one.start)))


def _from_cues(text: str, path: Path) -> list[Utterance]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    webvtt = lines[0].startswith("WEBVTT")
    if path.suffix.lower() == ".vtt" and not webvtt:
        raise InputError(f"{path}: line 1 is not WEBVTT. Give a WebVTT file, or rename an SRT file to .srt.")
    found: list[Utterance] = []
    number, cues = 0, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if webvtt and re.match(r"(?:NOTE|STYLE|REGION)(?:\s|$)", line):
            while number < len(lines) and lines[number].strip():
                number += 1
            continue
        if not _LOOKS_LIKE_TIMES.search(line):
            continue  # an empty line, a cue's number or name, the header
        cues += 1
        start, end = _cue_times(line, f"{path}: line {number}")
        spoken = []
        # A cue ends at an empty line; one that is missing shows by the next cue's times.
        while number < len(lines) and lines[number].strip() and not _LOOKS_LIKE_TIMES.search(lines[number]):
            spoken.append(lines[number])
            number += 1
        if number < len(lines) and _LOOKS_LIKE_TIMES.search(lines[number]) and spoken and spoken[-1].strip().isdigit():
            spoken.pop()
        words = _plain(spoken)
        if words:
            found.append(Utterance(start, end, words))
    if not cues and any(line.strip() for line in lines[webvtt:]):
        raise InputError(f"{path}: holds no cue (00:00:01,000 --> 00:00:02,000). Give an SRT or WebVTT file.")
    return found


def _cue_times(line: str, where: str) -> tuple[float, float]:
    match = _ARROW.match(line)
    if match is None:
        raise InputError(f"{where}: the times {line.strip()!r} cannot be read. Write 00:00:01,000 --> 00:00:02,000.")
    start, end = _seconds(match.groups()[:4], where), _seconds(match.groups()[4:8], where)
    if end < start:
        raise InputError(f"{where}: ends at {end:g} s, before it starts at {start:g} s. Correct the times.")
    return start, end


def _seconds(parts: Sequence[str | None], where: str) -> float:
    hours, minutes, seconds, fraction = parts
    if int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise InputError(f"{where}: minutes and seconds must lie below 60. Correct the time.")
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)


def _plain(lines: Iterable[str]) -> str:
    text = _ASS.sub("", _TAG.sub("", " ".join(lines)))
    return " ".join(html.unescape(text).split())


def _from_json(text: str, path: Path) -> list[Utterance]:
    try:
        if path.suffix.lower() == ".jsonl":
            rows: Any = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno} is not JSON ({error.msg}).") from error
    if isinstance(rows, dict):
        rows = rows.get("segments")
    if not isinstance(rows, list):
        raise InputError(f"{path}: expected a list of {{start, end, text}}, or an object with `segments`.")
    found = []
    for number, row in enumerate(rows):
        where = f"{path}: entry {number}"
        if not isinstance(row, dict):
            raise InputError(f"{where}: expected an object with start, end and text.")
        for field in ("start", "end"):
            value = row.get(field)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                shown = json.dumps(value, ensure_ascii=False)
                raise InputError(f"{where}: {field} is {shown}, not seconds from the start. Give a number, 0 or more.")
        if not isinstance(row.get("text"), str):
            raise InputError(f"{where}: text is not there. Give what is said.")
        if row["end"] < row["start"]:
            raise InputError(f"{where}: ends at {row['end']:g} s, before it starts at {row['start']:g} s. Correct it.")
        words = " ".join(row["text"].split())
        if words:
            found.append(Utterance(float(row["start"]), float(row["end"]), words))
    return found
