"""What the processes of a run tell each other between programs: small numbers, gathered from all."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float


def gather(values: Sequence[float]) -> Float[np.ndarray, "processes n"]:
    """The same numbers of every process, one row each; every process must call this with as many."""
    row = np.asarray(values, np.float64)
    if jax.process_count() == 1:
        return row[None]
    from jax.experimental import multihost_utils

    # JAX gathers in its own default width: send the halves of each double.
    halves = np.frombuffer(row.tobytes(), np.uint32)
    found = np.asarray(multihost_utils.process_allgather(halves))
    return np.frombuffer(found.tobytes(), np.float64).reshape(jax.process_count(), -1)


def largest(values: Sequence[int]) -> tuple[int, ...]:
    """The largest of each number over all processes."""
    return tuple(int(value) for value in gather(values).max(0))


def total(values: Sequence[float]) -> tuple[float, ...]:
    """The sum of each number over all processes."""
    return tuple(float(value) for value in gather(values).sum(0))


def all_agree(value: bool) -> bool:
    """Whether it holds on every process."""
    return bool(gather([float(value)]).min())


def union(names: Sequence[str]) -> list[str]:
    """All names that any process gave, sorted; the same list everywhere."""
    if jax.process_count() == 1:
        return sorted(set(names))
    from jax.experimental import multihost_utils

    mine = np.frombuffer("\n".join(names).encode(), np.uint8)
    longest = largest([len(mine)])[0]
    padded = np.pad(mine, (0, longest - len(mine)))
    found = np.asarray(multihost_utils.process_allgather(padded))
    texts = (row.tobytes().rstrip(b"\0").decode() for row in found.astype(np.uint8))
    return sorted({name for text in texts for name in text.split("\n") if name})
