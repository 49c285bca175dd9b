"""Which other video stands in for a video, to see what a model knows from the question alone."""

from __future__ import annotations

import numpy as np

from vrjax.errors import InputError


def other_video(count: int, seed: int) -> list[int]:
    """For each of `count` videos another one, each used once. Raises InputError where there is only one."""
    if count < 2:
        raise InputError("the mismatched condition needs at least two videos.")
    order = np.random.default_rng(seed).permutation(count)
    partner = np.empty(count, int)
    partner[order] = np.roll(order, 1)
    return partner.tolist()
