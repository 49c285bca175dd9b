"""Group-relative advantages (GRPO: Shao et al. 2024, eq. 3; EG-VQA, section on EG-Reasoner)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

EPSILON = 1e-6


def group_advantages(
    rewards: Float[np.ndarray, "B G"], *, scale_by_std: bool = True, epsilon: float = EPSILON
) -> Float[np.ndarray, "B G"]:
    """(R − mean) / (std + epsilon) within each group of G responses to one prompt.

    rewards: NaN stands for a response that could not be scored. It takes no part in its group's mean and standard
    deviation (ddof 1), and its advantage is 0. A group whose rewards are all equal, or that has fewer than two scored
    responses, gets exactly 0 throughout, never NaN.
    scale_by_std: False leaves the division out (Dr. GRPO: Liu et al. 2025).
    Raises ValueError where `rewards` is not [B, G] or holds an infinity.
    """
    rewards = np.asarray(rewards, np.float64)
    if rewards.ndim != 2:
        raise ValueError(f"rewards must be [prompts, group], not {rewards.shape}")
    if np.isinf(rewards).any():
        raise ValueError("rewards must be finite, or NaN where a response could not be scored")
    scored = ~np.isnan(rewards)
    counts = scored.sum(1, keepdims=True)
    filled = np.where(scored, rewards, 0.0)
    mean = filled.sum(1, keepdims=True) / np.maximum(counts, 1)
    centred = np.where(scored, rewards - mean, 0.0)
    std = np.sqrt(np.square(centred).sum(1, keepdims=True) / np.maximum(counts - 1, 1))
    advantages = centred / (std + epsilon) if scale_by_std else centred
    return np.where(varied_groups(rewards)[:, None], advantages, 0.0)


def varied_groups(rewards: Float[np.ndarray, "B G"]) -> np.ndarray:
    """Which groups [B] have at least two scored responses with different rewards: the others teach nothing."""
    rewards = np.asarray(rewards, np.float64)
    scored = ~np.isnan(rewards)
    low = np.where(scored, rewards, np.inf).min(1)
    high = np.where(scored, rewards, -np.inf).max(1)
    return (scored.sum(1) >= 2) & (high > low)
