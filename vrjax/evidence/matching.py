"""EG-F1 and its kin: which predictions match which references, and how well.

EG-VQA, section "EG-F1", and its appendix B.2 for the soft form. G references, P predictions; every function counts
unusable predictions (span None) in P, and unusable references in G: their rows and columns are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from vrjax.evidence.similarity import Similarity
from vrjax.evidence.spans import TimedDescription, iou_matrix

EVENT_THRESHOLDS = (0.1, 0.3, 0.5, 0.7)
RewardVariant = Literal["paper", "released"]
Matrix = Float[np.ndarray, "references predictions"]


@dataclass(frozen=True)
class MatchScore:
    """What a matching is worth.

    `matched` is the number of matched pairs, or for the soft form the summed weight of the best assignment.
    """

    matched: float
    references: int
    predictions: int

    def _share(self, whole: float) -> float:
        if self.references == 0 and self.predictions == 0:
            return 1.0  # nothing to find, and nothing claimed
        return self.matched / whole if self.references and self.predictions else 0.0

    @property
    def precision(self) -> float:
        """matched / predictions; 1 where both sides are empty, 0 where one is."""
        return self._share(self.predictions)

    @property
    def recall(self) -> float:
        """matched / references; 1 where both sides are empty, 0 where one is."""
        return self._share(self.references)

    @property
    def f1(self) -> float:
        """2·matched / (references + predictions); 1 where both sides are empty, 0 where one is."""
        return self._share((self.references + self.predictions) / 2)


def pair_matrices(
    references: Sequence[TimedDescription],
    predictions: Sequence[TimedDescription],
    similarity: Similarity | Matrix,
) -> tuple[Matrix, Matrix]:
    """IoU and similarity of every pair, both [G, P]; zeros where either side has no usable times.

    Raises ValueError where `similarity` is an array that is not [G, P], or holds values outside [0, 1].
    """
    shape = (len(references), len(predictions))
    if isinstance(similarity, np.ndarray):
        similar = np.array(similarity, float)  # a copy: zeros are written below
    else:
        similar = np.array(
            similarity.pairs([piece.description for piece in references], [piece.description for piece in predictions]),
            float,
        )
    if similar.shape != shape:
        raise ValueError(f"similarity has shape {similar.shape}, expected [references, predictions] = {shape}")
    if not np.all((similar >= 0) & (similar <= 1)):
        raise ValueError("similarity must lie in [0, 1]")
    overlap = iou_matrix([piece.span for piece in references], [piece.span for piece in predictions])
    similar[[piece.span is None for piece in references], :] = 0
    similar[:, [piece.span is None for piece in predictions]] = 0
    return overlap, similar


def best_assignment(weights: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """The one-to-one assignment of largest summed weight (Hungarian method): row and column indices, min(G, P) each."""
    return linear_sum_assignment(weights, maximize=True)


def hard_match(overlap: Matrix, similar: Matrix, iou_threshold: float, similarity_threshold: float) -> MatchScore:
    """EG-F1(α, β): weights IoU·Sim where IoU ≥ α and Sim ≥ β, else 0; matched pairs that pass both are counted.

    The assignment maximises the summed weight, not the number of pairs.
    """
    passes = (overlap >= iou_threshold) & (similar >= similarity_threshold)
    pairs = best_assignment(np.where(passes, overlap * similar, 0.0))
    return MatchScore(int(passes[pairs].sum()), *overlap.shape)


def soft_match(overlap: Matrix, similar: Matrix) -> MatchScore:
    """Soft EG-F1 (appendix B.2): weights IoU·Sim without thresholds; `matched` is the summed weight."""
    weights = overlap * similar
    return MatchScore(float(weights[best_assignment(weights)].sum()), *overlap.shape)


def event_matches(overlap: Matrix, thresholds: Sequence[float] = EVENT_THRESHOLDS) -> tuple[MatchScore, ...]:
    """Event F1@τ for each τ: one assignment on raw IoU, then the pairs with IoU ≥ τ are counted."""
    values = overlap[best_assignment(overlap)]
    return tuple(MatchScore(int((values >= threshold).sum()), *overlap.shape) for threshold in thresholds)


def eg_f1(
    references: Sequence[TimedDescription],
    predictions: Sequence[TimedDescription],
    similarity: Similarity | Matrix,
    iou_threshold: float = 0.3,
    similarity_threshold: float = 0.5,
) -> MatchScore:
    """Hard EG-F1 of one question.

    Args:
        references: pieces of evidence with a span (seconds) and a description.
        predictions: likewise; a span of None is an unusable prediction and still counts.
        similarity: a `Similarity`, or its [G, P] array in [0, 1].
        iou_threshold: α, the least IoU of a pair.
        similarity_threshold: β, the least similarity of a pair.
    """
    return hard_match(*pair_matrices(references, predictions, similarity), iou_threshold, similarity_threshold)


def soft_eg_f1(
    references: Sequence[TimedDescription], predictions: Sequence[TimedDescription], similarity: Similarity | Matrix
) -> MatchScore:
    """Soft EG-F1 of one question; arguments as for `eg_f1`."""
    return soft_match(*pair_matrices(references, predictions, similarity))


def event_f1(
    references: Sequence[TimedDescription], predictions: Sequence[TimedDescription], iou_threshold: float = 0.5
) -> MatchScore:
    """Event F1@τ of one question: times only, descriptions play no part."""
    overlap = iou_matrix([piece.span for piece in references], [piece.span for piece in predictions])
    return event_matches(overlap, (iou_threshold,))[0]


def evidence_reward_parts(
    references: Sequence[TimedDescription],
    predictions: Sequence[TimedDescription],
    similarity: Similarity | Matrix,
    variant: RewardVariant = "paper",
    iou_threshold: float = 0.3,
    similarity_threshold: float = 0.5,
) -> tuple[float, float]:
    """(soft, hard) of the evidence reward, each in [0, 1]; (0, 0) where there are no references.

    `paper`: soft EG-F1 and EG-F1(α, β), each with its own matching. `released` (the authors' code): one matching on
    .5·IoU + .5·Sim; soft is its F1 by summed weight, hard counts its pairs that pass both thresholds.
    """
    if not references:
        return 0.0, 0.0
    overlap, similar = pair_matrices(references, predictions, similarity)
    if variant == "paper":
        hard = hard_match(overlap, similar, iou_threshold, similarity_threshold)
        return soft_match(overlap, similar).f1, hard.f1
    if variant != "released":
        raise ValueError(f"variant must be 'paper' or 'released', found {variant!r}")
    weights = 0.5 * overlap + 0.5 * similar
    pairs = best_assignment(weights)
    passes = (overlap[pairs] >= iou_threshold) & (similar[pairs] >= similarity_threshold)
    soft = MatchScore(float(weights[pairs].sum()), *overlap.shape)
    return soft.f1, MatchScore(int(passes.sum()), *overlap.shape).f1
