"""The loss of supervised fine-tuning. Letters: B rows, R predicted tokens of a row."""

from __future__ import annotations

from jaxtyping import Array, Float


def weighted_nll(
    log_probs: Float[Array, "B R"], weights: Float[Array, "B R"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum of weight · −log p, and the sum of the weights.

    The loss of a batch is the first over the second, each summed over the *whole* batch (all micro-batches, all
    devices): a mean of parts' means would weigh tokens by the part that they fell into.
    """
    return -(weights * log_probs).sum(), weights.sum()
