"""The scripted model for clips of shapes: it finds colours in the pictures that it is sent."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from data_tools.shapes.render import COLOUR_RGB
from experiments.scripted_endpoint import Asked

TOLERANCE = 40  # grey levels; JPEG and video coding blur colours


def colour_counts(pixels: np.ndarray) -> dict[str, int]:
    """Pixels of each colour in a picture."""
    return {name: int((np.abs(pixels.astype(int) - rgb).max(-1) < TOLERANCE).sum()) for name, rgb in COLOUR_RGB.items()}


def strongest(asked: Asked) -> str:
    totals = {name: 0 for name in COLOUR_RGB}
    for _, picture in asked.pictures:
        for name, count in colour_counts(picture).items():
            totals[name] += count
    return max(totals, key=lambda name: totals[name])


def match(pattern: str, text: str) -> re.Match[str]:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"{pattern!r} is not in {text[:200]!r}")
    return found


def number(label: str) -> int:
    return int(match(r"Frame (\d+) at", label)[1])


def seconds(label: str) -> float:
    return float(match(r"\(([\d.]+) s\)", label)[1])


class ShapesScript:
    """picked: the attempt that the critic chose, by all attempts of the request, as their texts stand there."""

    def __init__(self) -> None:
        self.picked: dict[frozenset[str], str] = {}

    def __call__(self, asked: Asked):
        forms = {
            None: self.words,
            "RelevantFrames": self.relevant,
            "ReasonedAnswer": self.reasoned,
            "FoundRanges": self.ranges,
            "ChosenRange": self.span,
            "Confidence": self.confidence,
            "CriticReply": self.critic,
        }
        return forms[asked.form](asked)

    def relevant(self, asked: Asked):
        wanted = [name for name in COLOUR_RGB if name in asked.text.lower()] or list(COLOUR_RGB)
        found = [
            number(label) for label, picture in asked.pictures if any(colour_counts(picture)[n] > 20 for n in wanted)
        ]
        return {"frames": found}

    def reasoned(self, asked: Asked):
        colour = strongest(asked)
        return {"reasoning": f"{len(asked.pictures)} frames show {colour} most.", "answer": colour}

    def ranges(self, asked: Asked):
        wanted = [name for name in COLOUR_RGB if name in asked.text.lower()] or ["red"]
        times = [seconds(label) for label, picture in asked.pictures if colour_counts(picture)[wanted[0]] > 20]
        if not times:
            return {"ranges": []}
        return {"ranges": [{"start": min(times), "end": max(times) + 0.5, "why": f"{wanted[0]} is seen"}]}

    def span(self, asked: Asked):
        start, end = match(r"([\d.]+) to ([\d.]+) s: ", asked.text).groups()
        return {"reasoning": "the first", "start": float(start), "end": float(end)}

    def confidence(self, asked: Asked):
        results = sum("colour:" in words for role, words in asked.turns if role == "user")
        return {"answer": self._answer(asked) or "unknown", "confidence": 3 if results >= 1 else 1}

    def critic(self, asked: Asked):
        part = asked.text.split("=== The question to judge ===")[-1]
        attempts = re.split(r"--- Attempt \d+ ---\n", part)[1:]
        # Which one wins depends on its text alone, not on its place.
        marks = [hashlib.sha256(text.strip().encode()).hexdigest() for text in attempts]
        best = marks.index(min(marks))
        self.picked[frozenset(text.strip() for text in attempts)] = attempts[best].strip()
        return {"critique": f"Attempt {best + 1} convinces.", "winners": [best + 1]}

    def words(self, asked: Asked):
        if not asked.system:  # a tool asks in words
            return f"colour: {strongest(asked)}, in {len(asked.pictures)} frames"
        return self.program(asked)

    def _answer(self, asked: Asked) -> str | None:
        said = [words for role, words in asked.turns if role == "user"]
        found = re.findall(r"colour: (\w+)", "\n".join(said))
        return found[-1] if found else None

    def program(self, asked: Asked) -> str:
        tools = set(re.findall(r"^def (\w+)", asked.system, re.MULTILINE))
        question = match(r"Question: (.*)", asked.turns[0][1])[1]
        answer = self._answer(asked)
        if "One" in asked.system[:60] or "one Python program" in asked.system:
            return f"At once.\n```python\nfinish(retrieval_qa({question!r}, video).split()[1].strip(','))\n```"
        if answer is not None:
            return f"It is known.\n```python\nfinish({answer!r})\n```"
        if asked.replies == 0 and "find_when" in tools:
            return (
                "First when.\n```python\n"
                f"found = find_when({question!r}, video)\nprint(found)\n"
                "part = get_segment(found[0][0], found[0][1]) if found else video\n```"
            )
        part = "part" if "find_when" in tools else "get_segment(video.start, video.end / 2)"
        return f"Look there.\n```python\nprint(retrieval_qa({question!r}, {part}))\n```"
