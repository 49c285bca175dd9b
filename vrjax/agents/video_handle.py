"""What a program holds in place of a video: a range of it. Pixels never enter a program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Video:
    """A part of the video of the question, from `start` to `end`, in seconds from the beginning of the whole video."""

    start: float
    end: float

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start


def cut(whole: Video, start: Any, end: Any) -> tuple[Video, bool]:
    """The part from `start` to `end`, and whether an end lay outside and was moved onto the video's.

    Raises TypeError for what is no number, ValueError where nothing of the part lies in the video.
    """
    low, high = _seconds("start", start), _seconds("end", end)
    if not low < high:
        raise ValueError(f"start {low:g} must be before end {high:g}")
    if high <= whole.start or low >= whole.end:
        raise ValueError(f"{low:g} to {high:g} s lies outside the video, which is {whole.start:g} to {whole.end:g} s")
    part = Video(max(low, whole.start), min(high, whole.end))
    return part, part != Video(low, high)


def as_video(value: Any, whole: Video) -> Video:
    """The handle that a program means: a Video, or two times as a tuple, list or mapping. Raises as `cut` does."""
    if isinstance(value, Mapping) and {"start", "end"} <= set(value):
        value = (value["start"], value["end"])
    if isinstance(value, Video):
        value = (value.start, value.end)
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return cut(whole, *value)[0]
    raise TypeError("a video is expected: `video`, what get_segment returns, or (start, end) in seconds")


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number of seconds")
    return number
