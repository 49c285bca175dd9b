"""Buckets: the few sizes that rows are padded to, so that few programs are compiled and little padding is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from vrjax.errors import InputError


@dataclass(frozen=True, order=True)
class RowSize:
    """Size of a packed row, or of the bucket it is padded to.

    length: tokens; targets: predicted tokens; frames: temporal patches; frame_patches: patches of the largest frame;
    windows: attention windows of a frame; ragged: 1 where some window is not whole (see models.qwen2_5_vl.layout).
    """

    length: int
    targets: int
    frames: int
    frame_patches: int
    windows: int
    ragged: int = 0

    @property
    def tokens(self) -> int:
        """Tokens computed: those of the language model and the patches of the vision tower."""
        return self.length + self.frames * self.frame_patches

    def holds(self, other: RowSize) -> bool:
        return all(mine >= its for mine, its in zip(astuple(self), astuple(other), strict=True))

    def joined(self, other: RowSize) -> RowSize:
        """The smallest size that holds both."""
        return RowSize(*(max(pair) for pair in zip(astuple(self), astuple(other), strict=True)))


_MOST_GROUPS = 200


def fit_buckets(
    sizes: Sequence[RowSize], max_programs: int = 8, max_padding: float = 0.2, multiple: int = 8
) -> tuple[RowSize, ...]:
    """Choose the fewest buckets for rows of these sizes whose padding share stays within `max_padding`.

    At most `max_programs`, whatever the padding then is (`padding_share` tells). Pairs of groups are joined in the
    order of what the join costs (agglomerative clustering). Lengths and targets are rounded up to `multiple`. Sorted
    from small to large. Raises InputError without rows.
    """
    if not sizes:
        raise InputError("there are no rows to fit buckets to. Check the data files.")
    if max_programs < 1 or not 0 <= max_padding < 1:
        raise InputError(f"max_programs {max_programs} must be 1 or more and max_padding {max_padding} within [0, 1).")
    needed = sum(size.tokens for size in sizes)
    step = multiple
    groups = _rounded(sizes, step)
    while len(groups) > _MOST_GROUPS:
        step *= 2
        groups = _rounded(sizes, step)
    bounds = np.array([astuple(size) for size in groups])
    counts = np.array(list(groups.values()))
    while len(bounds) > 1:
        joined = np.maximum(bounds[:, None], bounds[None])
        computed = _tokens(bounds) * counts
        growth = _tokens(joined) * (counts[:, None] + counts[None]) - computed[:, None] - computed[None]
        growth[np.tril_indices(len(bounds))] = np.iinfo(np.int64).max
        first, second = np.unravel_index(int(growth.argmin()), growth.shape)
        after = int(computed.sum() + growth[first, second])
        if len(bounds) <= max_programs and 1 - needed / after > max_padding:
            break
        bounds[first] = joined[first, second]
        counts[first] += counts[second]
        bounds, counts = np.delete(bounds, second, 0), np.delete(counts, second)
    return tuple(sorted((RowSize(*map(int, bound)) for bound in bounds), key=lambda size: (size.tokens, size)))


def _rounded(sizes: Sequence[RowSize], multiple: int) -> Counter[RowSize]:
    def up(value: int) -> int:
        return -(-value // multiple) * multiple

    rounded = Counter(
        RowSize(up(s.length), up(s.targets), s.frames, s.frame_patches, s.windows, s.ragged) for s in sizes
    )
    return Counter(dict(sorted(rounded.items())))


def _tokens(bounds: np.ndarray) -> np.ndarray:
    return bounds[..., 0] + bounds[..., 2] * bounds[..., 3]


def choose_bucket(size: RowSize, buckets: Sequence[RowSize]) -> int:
    """Index of the bucket that holds `size` with the least padding. Raises InputError where none does."""
    fitting = [(bucket.tokens, index) for index, bucket in enumerate(buckets) if bucket.holds(size)]
    if not fitting:
        raise InputError(f"no bucket holds a row of {size}. Fit the buckets to the data again.")
    return min(fitting)[1]


def padding_share(sizes: Sequence[RowSize | None], computed: Sequence[RowSize]) -> float:
    """Share of the tokens computed that are padding; a size of None is an empty row, all padding."""
    total = sum(bucket.tokens for bucket in computed)
    used = sum(size.tokens for size in sizes if size is not None)
    return 1 - used / total if total else 0.0
