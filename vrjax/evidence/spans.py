"""Spans of time, what is said to happen in them, and how far two of them overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, order=True)
class Span:
    """A stretch of a video, in seconds from its start; `start <= end`, both finite.

    A zero-length span (`start == end`) is a span, but overlaps nothing: its IoU is 0 with everything, itself included.

    Raises:
        ValueError: the times are reversed or not finite.
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise ValueError(f"a span needs finite times, found {self.start} to {self.end}")
        if self.start > self.end:
            raise ValueError(f"a span must not end before it starts, found {self.start} to {self.end}")

    @property
    def length(self) -> float:
        """Seconds from start to end."""
        return self.end - self.start


class TimedDescription(Protocol):
    """Anything with a span and a description. A `span` of None stands for times that could not be used."""

    @property
    def span(self) -> Span | None: ...

    @property
    def description(self) -> str: ...


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence: when it is seen, and what is seen. `span` is None where the times cannot be used."""

    span: Span | None
    description: str


def iou(first: Span, second: Span) -> float:
    """Overlap divided by the length of the hull of both spans (EG-VQA); 0 where the hull has no length.

    For spans that touch or overlap the hull is their union, so that this is the usual IoU; for others it is 0.
    """
    overlap = min(first.end, second.end) - max(first.start, second.start)
    hull = max(first.end, second.end) - min(first.start, second.start)
    return overlap / hull if overlap > 0 and hull > 0 else 0.0


def iou_matrix(
    references: Sequence[Span | None], predictions: Sequence[Span | None]
) -> Float[np.ndarray, "references predictions"]:
    """`iou` of every reference with every prediction; a row or column of zeros where a span is None."""
    matrix = np.zeros((len(references), len(predictions)))
    for i, reference in enumerate(references):
        for j, prediction in enumerate(predictions):
            if reference is not None and prediction is not None:
                matrix[i, j] = iou(reference, prediction)
    return matrix
