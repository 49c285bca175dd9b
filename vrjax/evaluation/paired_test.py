"""Is the difference between two runs on the same questions more than chance? Both tests leave videos whole."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

EXACT = 16  # videos with a difference up to which every assignment of signs is tried
DRAWS = 20_000


def sign_flip_p(differences: Sequence[float], clusters: Sequence[Hashable], seed: int = 0) -> float:
    """Two-sided p of the paired permutation test (Fisher 1935; Good 2005, ch. 3).

    Under the null hypothesis it is as likely that the two runs had answered a video's questions the other way round, so
    the sign of each video's summed difference may be turned. Exact up to EXACT videos with a difference; above that
    DRAWS random assignments, with the observed one counted in (Phipson and Smyth 2010).

    Raises ValueError where there are not as many clusters as differences.
    """
    if len(differences) != len(clusters):
        raise ValueError(f"{len(differences)} differences and {len(clusters)} clusters: give one cluster for each")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    place = np.array([numbers[cluster] for cluster in clusters], int)
    sums = np.bincount(place, np.asarray(differences, float), len(numbers)) if numbers else np.zeros(0)
    sums = sums[np.abs(sums) > 1e-12]
    if not len(sums):
        return 1.0
    observed = abs(sums.sum()) - 1e-9  # sums that are equal but for rounding count as equal
    if len(sums) <= EXACT:
        totals = np.zeros(1)
        for value in sums:
            totals = np.concatenate([totals + value, totals - value])
        return float(np.mean(np.abs(totals) >= observed))
    rng = np.random.default_rng(seed)
    reached = 0
    for _ in range(0, DRAWS, 1000):
        signs = rng.integers(0, 2, (1000, len(sums))) * 2 - 1
        reached += int((np.abs(signs @ sums) >= observed).sum())
    return (reached + 1) / (DRAWS + 1)
