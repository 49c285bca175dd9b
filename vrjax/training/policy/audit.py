"""The audit: do sampler and trainer agree on what was sampled?

Each step compares the log-probs recorded inside the decode loop with those of the update's own forward pass over the
same tokens: temperature-scaled and untruncated, by the parameters that sampled. A difference that rounding does not
explain (an off-by-one in positions, a stale weight, another template) makes every ratio wrong without a sign in the
loss; past the bound the run stops and keeps the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from vrjax.training.policy.config import AuditConfig

# Largest and mean difference in nats. Measured on the demo's trained model, 6 steps of 64 responses at temperature 1:
# float32 2.9e-5 and 9.8e-8, bfloat16 .22 and .0015; with positions off by one 12.8 and .086 to .092 in either type.
BOUNDS = {"float32": (6e-4, 5e-6), "bfloat16": (1.0, 0.02)}


@dataclass(frozen=True)
class AuditBounds:
    """Largest and mean absolute difference that are allowed, in nats."""

    most: float
    mean: float

    @staticmethod
    def of(config: AuditConfig, dtype: Any) -> AuditBounds:
        most, mean = BOUNDS[jnp.dtype(dtype).name]
        return AuditBounds(
            most if config.most is None else config.most,
            mean if config.mean is None else config.mean,
        )


@dataclass(frozen=True)
class Audit:
    """What was found over `tokens` tokens: the largest and the mean absolute difference, in nats."""

    most: float
    mean: float
    tokens: int

    def fault(self, bounds: AuditBounds) -> str | None:
        """What is wrong, as a sentence; None where all is well."""
        if self.most <= bounds.most and self.mean <= bounds.mean:
            return None
        return (
            f"the sampler and the update disagree on the log-probs of the sampled tokens: by {self.most:.3g} nats at "
            f"most and {self.mean:.3g} on average over {self.tokens} tokens, where {bounds.most:.3g} and "
            f"{bounds.mean:.3g} are allowed (audit.most, audit.mean)."
        )


def compare(
    recorded: Float[np.ndarray, "B R"], recomputed: Float[np.ndarray, "B R"], present: Float[np.ndarray, "B R"]
) -> Audit:
    """Compare log-probs where `present` is not 0. A NaN on either side counts as an infinite difference."""
    here = np.asarray(present) > 0
    difference = np.abs(np.asarray(recorded, np.float64) - np.asarray(recomputed, np.float64))[here]
    difference = np.where(np.isfinite(difference), difference, np.inf)
    if not difference.size:
        return Audit(0.0, 0.0, 0)
    return Audit(float(difference.max()), float(difference.mean()), int(difference.size))
