"""The evidence reward: are the times and descriptions those of the reference?"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from vrjax.errors import InputError
from vrjax.evidence import RewardVariant, Similarity, evidence_reward_parts, parse_response, reference_evidence
from vrjax.rewards.reward import Reward, RewardItem, RewardPrompt, RewardRecord


@dataclass(frozen=True)
class EvidenceReward:
    """soft_weight·soft + hard_weight·hard, with `evidence_reward_parts` (EG-VQA, "Evidence reward" and appendix B.2).

    `paper`: soft EG-F1 and EG-F1(iou, sim), each with its own matching. `released`: one matching on .5·IoU + .5·Sim.
    Without references it is 0; predictions that cannot be read cost precision. Its parts are `soft` and `hard`.

    Args:
        similarity: of descriptions. Calls to it are made one at a time, whatever the threads.
        variant: "paper" or "released".
        soft_weight, hard_weight: of the two parts.
        iou_threshold, similarity_threshold: α and β of the hard part.
        soft: False takes the soft part out of the value (it is still reported), and gives its weight to the hard one:
            hard·(soft_weight + hard_weight). The paper's ablation says that the soft part is removed and not what
            becomes of its weight; kept this way, the term's range, and so its share beside format and answer, stays,
            and only its form changes. `soft_weight=0` is the other reading, in which the range halves.

    Raises:
        InputError: an unknown variant, or weights that are negative or all 0.
    """

    similarity: Similarity
    variant: RewardVariant = "paper"
    soft_weight: float = 0.5
    hard_weight: float = 0.5
    iou_threshold: float = 0.3
    similarity_threshold: float = 0.5
    soft: bool = True
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.variant not in ("paper", "released"):
            raise InputError(f"the evidence reward's variant must be paper or released, found {self.variant!r}.")
        weights = (self.soft_weight, self.hard_weight)
        if not (min(weights) >= 0 and 0 < sum(weights) < float("inf")):
            raise InputError(f"the evidence reward's weights must be at least 0 and not all 0, found {weights}.")

    def prepare(self, items: Sequence[RewardItem]) -> None:
        """Announce all descriptions of a batch to the similarity, so that they are embedded together."""
        texts = [
            piece.description
            for _, response, record in items
            for piece in (*reference_evidence(record.question.evidence), *parse_response(response).evidence)
            if piece.span is not None
        ]
        with self._one_at_a_time:
            self.similarity.prepare(texts)

    def __call__(self, prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
        references = reference_evidence(record.question.evidence)
        predictions = parse_response(response, record.video.duration).evidence
        with self._one_at_a_time:
            soft, hard = evidence_reward_parts(
                references, predictions, self.similarity, self.variant, self.iou_threshold, self.similarity_threshold
            )
        if self.soft:
            value = self.soft_weight * soft + self.hard_weight * hard
        else:
            value = (self.soft_weight + self.hard_weight) * hard
        faults = sorted({str(fault) for line in predictions for fault in line.faults})
        return Reward(value, {"soft": soft, "hard": hard}, ", ".join(faults) if references else "no references")
