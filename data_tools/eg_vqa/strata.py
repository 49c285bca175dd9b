"""What a record or question is alike in: source, duration, evidence density."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vrjax.records import VideoRecord

BINS = ("low", "middle", "high")


def evidence_density(record: VideoRecord) -> float:
    """Pieces of evidence, over all questions, a minute of video (our reading: the paper does not define it)."""
    pieces = sum(len(question.evidence) for question in record.questions)
    return 60 * pieces / record.duration if record.duration > 0 else 0.0


@dataclass(frozen=True)
class Edges:
    """Where the thirds of a quantity meet."""

    low: float
    high: float

    @staticmethod
    def thirds(values: Sequence[float]) -> Edges:
        if not values:
            return Edges(0.0, 0.0)
        low, high = np.quantile(np.asarray(values, float), [1 / 3, 2 / 3], method="inverted_cdf")
        return Edges(float(low), float(high))

    def bin(self, value: float) -> str:
        return BINS[(value > self.low) + (value > self.high)]


@dataclass(frozen=True)
class Strata:
    """The bins of a set of records, found once so that all stages use the same."""

    duration: Edges
    density: Edges

    @staticmethod
    def of(records: Sequence[VideoRecord]) -> Strata:
        return Strata(
            Edges.thirds([one.duration for one in records]), Edges.thirds([evidence_density(one) for one in records])
        )

    def name(self, record: VideoRecord) -> tuple[str, str, str]:
        """(source, duration, evidence density)"""
        return (
            record.data_source,
            self.duration.bin(record.duration),
            self.density.bin(evidence_density(record)),
        )
