"""What a run left in its last checkpoint, to be compared with another's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flax import nnx

from vrjax.loading import load_run


def parameters(run: Path) -> dict[str, np.ndarray]:
    params = load_run(run)[0].params
    return {"/".join(map(str, path)): np.asarray(w.get_value()) for path, w in nnx.to_flat_state(params)}


def largest_difference(a: Path, b: Path) -> float:
    """Between the parameters of two runs."""
    mine, theirs = parameters(a), parameters(b)
    assert mine.keys() == theirs.keys()
    return max(float(np.abs(mine[name] - theirs[name]).max()) for name in mine)
