"""The policy loss of GRPO and its variants, written as a sum over tokens.

    loss = Σ_t w_t · ( −min(r_t A_t, clip(r_t, 1 − ε_low, 1 + ε_high) A_t) · ρ_t  +  β · KL_t )

r_t: probability ratio of the policy to the one before the update; A_t: advantage of the token's response; w_t: weights
that make the sum a mean (`token_weights`, made on the host over the whole batch, so that micro-batches and devices only
add); ρ_t: truncated importance weight of tokens that an older policy sampled, 1 otherwise.

Letters: B rows, R predicted tokens of a row, G responses.
Sources: PPO (Schulman et al. 2017, eq. 7); GRPO (Shao et al. 2024, eq. 3); DAPO (Yu et al. 2025) for ε_high and the
mean over tokens; Dr. GRPO (Liu et al. 2025) for the constant normaliser; GSPO (Zheng et al. 2025) for the mean response
ratio; Schulman's note on KL estimators (2020) for k1, k2 and k3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vrjax.errors import InputError

KL_CLAMP = 10.0
RatioOf = Literal["token", "response", "response_mean"]
LossMean = Literal["response", "token", "constant"]
KlEstimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class PolicyLossConfig:
    """clip_low, clip_high: ε on either side. kl_weight: β, 0 for no reference policy. kl_on_equal_groups: whether the
    KL term of responses whose group taught nothing (advantage 0) stays.

    ratio: of each token (the released EG-Reasoner), of the whole response (its paper: the product over tokens), or the
    geometric mean over the response's tokens (GSPO).
    loss_mean: over tokens of a response, then over responses; over all tokens; or the sum over tokens divided by
    `normaliser` tokens a response.
    importance_cap: largest ρ where an older policy sampled.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    ratio: RatioOf = "token"
    loss_mean: LossMean = "response"
    normaliser: int = 1024
    kl_weight: float = 0.01
    kl_estimator: KlEstimator = "k3"
    kl_on_equal_groups: bool = True
    importance_cap: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.clip_low < 1 or self.clip_high < 0 or self.kl_weight < 0:
            raise InputError(
                f"clip_low {self.clip_low} must lie in [0, 1), clip_high {self.clip_high} and kl_weight "
                f"{self.kl_weight} must not be negative."
            )
        if self.normaliser < 1 or self.importance_cap <= 0:
            raise InputError(f"normaliser {self.normaliser} and importance_cap {self.importance_cap} must be above 0.")


def kl_divergence(
    log_probs: Float[Array, "*B"], reference: Float[Array, "*B"], estimator: KlEstimator
) -> Float[Array, "*B"]:
    """KL(policy ‖ reference) of each sampled token, with d = log π_ref − log π clamped to ±10.

    k1 = −d; k2 = d² / 2; k3 = exp(d) − d − 1 (unbiased, never negative; the default of METHODS and GRPO).
    """
    d = jnp.clip(reference - log_probs, -KL_CLAMP, KL_CLAMP)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * jnp.square(d)
    return jnp.exp(d) - d - 1


@dataclass(frozen=True)
class Counted:
    """What the loss is a mean over: responses and tokens of the whole batch, over all processes."""

    responses: int
    tokens: int

    @staticmethod
    def of(lengths: Sequence[Sequence[int]], counted: Sequence[Sequence[bool]]) -> Counted:
        """lengths: tokens of each response, [prompts][group]; counted: whether it takes part in the loss."""
        kept = [
            length
            for row, keeps in zip(lengths, counted, strict=True)
            for length, keep in zip(row, keeps, strict=True)
            if keep
        ]
        return Counted(len(kept), sum(kept))


def token_weights(
    lengths: Sequence[Sequence[int]],
    counted: Sequence[Sequence[bool]],
    total: Counted,
    config: PolicyLossConfig,
) -> list[list[float]]:
    """Weight of each *token* of every response, the same for all tokens of one; [prompts][group].

    lengths: tokens of the responses, end token included; counted: False leaves a response out of numerator and
    denominator (unscored, or cut off and masked); total: of the whole batch. The weights of all counted tokens sum to 1
    (`response`, `token`).
    """

    def weight(length: int, keep: bool) -> float:
        if not keep or length == 0:
            return 0.0
        if config.loss_mean == "response":
            return 1.0 / (total.responses * length)
        if config.loss_mean == "token":
            return 1.0 / total.tokens
        return 1.0 / (total.responses * config.normaliser)

    return [
        [weight(length, keep) for length, keep in zip(row, keeps, strict=True)]
        for row, keeps in zip(lengths, counted, strict=True)
    ]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PolicyTargets:
    """What the loss needs of each predicted token of B rows, beside the policy's log-probs; padding has weight 0.

    advantages, weights: see the module's text. response: number of its response within the row, for response ratios.
    old: log-probs of the policy before the update; None takes the policy's own (one inner epoch: the ratio is 1 and its
    gradient the score function). reference: log-probs of the reference policy, None without a KL term. sampler:
    log-probs recorded where an older policy sampled (lookahead), None otherwise.
    """

    advantages: Float[np.ndarray, "B R"]
    weights: Float[np.ndarray, "B R"]
    kl_weights: Float[np.ndarray, "B R"]
    response: Int[np.ndarray, "B R"]
    old: Float[Array, "B R"] | None = None
    reference: Float[Array, "B R"] | None = None
    sampler: Float[Array, "B R"] | None = None


def policy_loss(
    log_probs: Float[Array, "B R"], targets: PolicyTargets, group: int, config: PolicyLossConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The loss, and figures for the log (`clip_share`, `kl`), sums over tokens that are weighted as the loss is.

    log_probs: of the policy, temperature-scaled and untruncated. group: most responses in a row.
    """
    weights = jnp.asarray(targets.weights)
    advantages = jnp.asarray(targets.advantages)
    here = weights > 0
    old = jax.lax.stop_gradient(log_probs) if targets.old is None else targets.old
    # Padding holds anything: keep it out before it is exponentiated.
    difference = jnp.where(here, log_probs - old, 0.0)
    if config.ratio != "token":
        of_token = jax.nn.one_hot(jnp.asarray(targets.response), group, dtype=difference.dtype) * here[..., None]
        per_response = jnp.einsum("br,brg->bg", difference, of_token)
        if config.ratio == "response_mean":
            per_response = per_response / jnp.maximum(of_token.sum(1), 1.0)
        difference = jnp.einsum("bg,brg->br", per_response, of_token)
    ratio = jnp.exp(difference)
    clipped = jnp.clip(ratio, 1 - config.clip_low, 1 + config.clip_high)
    gain = jnp.minimum(ratio * advantages, clipped * advantages)
    if targets.sampler is not None:
        behind = jnp.where(here, jax.lax.stop_gradient(old) - targets.sampler, 0.0)
        gain = gain * jnp.minimum(jnp.exp(behind), config.importance_cap)
    loss = -(weights * gain).sum()
    is_clipped = (ratio * advantages > clipped * advantages) & here
    sums = {"clip_share": (weights * is_clipped).sum()}
    if targets.reference is not None:
        kl_here = jnp.asarray(targets.kl_weights) > 0
        kl = jnp.where(kl_here, kl_divergence(log_probs, targets.reference, config.kl_estimator), 0.0)
        of_kl = (targets.kl_weights * kl).sum()
        loss = loss + config.kl_weight * of_kl
        sums["kl"] = of_kl
    return loss, sums
