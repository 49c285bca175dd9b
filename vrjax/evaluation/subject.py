"""Whatever is evaluated: something that answers questions about video files, one after the other or many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from vrjax.evaluation.answer_log import Answer
from vrjax.evaluation.benchmark import Benchmark, Item

# benchmark: the question in the benchmark's words. checkpoint: with the instruction that the checkpoint was trained on.
Wording = Literal["benchmark", "checkpoint"]


@dataclass(frozen=True)
class Asked:
    """A question as it is put. video: a file, or None to put it without one."""

    id: str
    text: str
    video: Path | None


class Subject(Protocol):
    """name: for people. settings: all that its answers depend on, as JSON and without keys; two evaluations with the
    same settings and questions are one.
    """

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def wording(self, benchmark: Benchmark, item: Item) -> str:
        """The text that is put for an item."""
        ...

    def answer(self, asked: Sequence[Asked], on_answer: Callable[[Answer], None]) -> None:
        """Ask all, in an order of its own; `on_answer` is called with each answer as it comes.

        One that fails is an Answer with an error. Raises ChatError where no further question can be answered (the key
        is refused, the budget used up).
        """
        ...


def plain_wording(item: Item) -> str:
    """The question and its options, a line each, without instructions."""
    options = "".join(f"\n{letter}. {text}" for letter, text in item.options.items())
    return item.question + options
