"""What a benchmark is: how its questions are read, put to a model, and scored by its authors' rules.

    read → Item ─▶ question ─▶ (a model) ─▶ Prediction ─▶ parse ─▶ score → BenchmarkScore

One file a benchmark in `vrjax.evaluation.benchmarks`. Nothing here knows a model; a judge and a sentence similarity
come in through `Tools`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vrjax.errors import InputError
from vrjax.evaluation.intervals import Interval
from vrjax.evidence import Similarity
from vrjax.llm.chat import Chat
from vrjax.video import FrameOptions


@dataclass(frozen=True, kw_only=True)
class Item:
    """One question.

    id: unique within the benchmark; video: id of its video (intervals resample whole videos). options: texts by letter,
    empty where the question is open. types: every class that the item counts in. duration: of the video, in seconds.
    video_file: path relative to the folder of videos, with or without its ending; None: the video's id. with_video:
    False where the question is put without one. reference: what scoring needs, in the benchmark's own terms, None in
    test sets without labels; reports show its "answer" (text), "choice" (letter), "spans" ((start, end) seconds) and
    "evidence" ({"timestamp", "description"}) where they are there.
    """

    id: str
    video: str
    question: str
    options: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    duration: float | None = None
    video_file: str | None = None
    with_video: bool = True
    reference: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a system said about one item.

    text: verbatim; None where there is none, and `error` says why. parsed: what a submission file gives outright, or
    `Benchmark.parse` found: "choice" a letter, "spans" a list of (start, end) seconds, "evidence", "answer",
    "reasoning", … as JSON. judged: verdicts that were recorded, by judge's name.
    """

    id: str
    text: str | None = None
    error: str | None = None
    parsed: Mapping[str, Any] = field(default_factory=dict)
    judged: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """values: as `Prediction.parsed`; failure: the kind of what could not be read ("no choice", "no span"), or None."""

    values: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class ItemScore:
    """values: strict scores by metric (missing or unparsable is 0); None in it: unscored (a judge failed), never 0.

    failure: kind of what went wrong, None where all is well. notes: a judge's words, for reports.
    """

    id: str
    video: str
    types: tuple[str, ...]
    values: Mapping[str, float | None]
    failure: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchmarkScore:
    """official: by the authors' rules, quirks included; strict: means over all items; coverage: scored / total.

    intervals: 95% of each strict value, clustered by video. by_type: strict values and "n" of each class. quirks: one
    sentence for each way in which official and strict differ. details: whatever else is reported, as JSON.
    """

    benchmark: str
    official: Mapping[str, float]
    strict: Mapping[str, float]
    intervals: Mapping[str, Interval]
    coverage: float
    by_type: Mapping[str, Mapping[str, float]]
    failures: Counter[str]
    items: Sequence[ItemScore]
    quirks: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What scoring may ask for. Whoever calls wraps the judge in a ChatClient (cache, retries, budget).

    progress: called with (verdicts there, verdicts in all).
    """

    judge: Chat | None = None
    similarity: Similarity | None = None
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """Words around a question: named and versioned, since a result depends on them. `{question}` and `{options}`."""

    name: str
    version: int
    template: str


class Benchmark(ABC):
    """A benchmark. Subclasses are frozen dataclasses whose fields are its options (split, input form, …).

    What follows are plain class attributes. name: as on the command line; headline: the strict metric that comparisons
    and `--watch` use; judged, compared: scoring needs `Tools.judge`, or `Tools.similarity`; speech: its rules allow
    audio and transcripts. frames: how its authors show a video, where they say. submission: the name under which a run
    writes its submission in the official form (without an ending where that is a folder). table: columns of the paper's
    table, title → official value. answering: metric by which an item is right (`best`), partly right, or wrong
    (0); default the headline. grounding: metric, and the least value of an item that counts as grounded; reports set it
    against `answering`.
    """

    name: str
    headline: str
    judged: bool = False
    compared: bool = False
    speech: bool = True
    submission: str = "submission.json"
    prompt: PromptForm
    frames: FrameOptions | None = None
    table: Mapping[str, str] = MappingProxyType({})
    answering: str | None = None
    best: float = 1.0
    grounding: tuple[str, float] | None = None

    def admit(self, *, transcript: bool = False) -> None:
        """Raise InputError for a run that uses what the authors forbid; to be called before a model is asked."""
        if transcript and not self.speech:
            raise InputError(
                f"{self.name}: its rules allow neither audio nor transcripts. Run it without the transcript."
            )

    @abstractmethod
    def read(self, data: Path) -> list[Item]:
        """All questions in `data` (a folder or file in the official form). InputError names file, record and field."""

    @abstractmethod
    def question(self, item: Item) -> str:
        """The text put to a model, options included."""

    @abstractmethod
    def parse(self, item: Item, text: str) -> Parsed:
        """Read a reply. Nothing is guessed: what cannot be read is a failure with a name."""

    @abstractmethod
    def read_submission(self, path: Path, items: Sequence[Item]) -> list[Prediction]:
        """Predictions in the official form. InputError for unknown or duplicate ids and fields of another type."""

    @abstractmethod
    def write_submission(self, path: Path, items: Sequence[Item], predictions: Sequence[Prediction]) -> None:
        """Write predictions in the official form, whole or not at all."""

    @abstractmethod
    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        """Score. Items without a prediction count as missing; InputError for unknown ids or items without labels."""
