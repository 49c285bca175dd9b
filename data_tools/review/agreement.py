"""Do the raters agree? Percent, Cohen's and Fleiss' κ over things that several people labelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from vrjax.evaluation.judge_validation import agreement, fleiss_kappa

Labelled = Sequence[Mapping[str, str]]
"""For each thing, rater → label."""


@dataclass(frozen=True)
class PanelAgreement:
    """things: with two labels at least. exact: share of equal labels among the pairs of labels of a thing, averaged
    over things. within_one: the same for numbers that differ by 1 at most, None for words. cohen: mean of κ over pairs
    of raters, weighted by the things that both labelled; pairs without a κ (chance alone makes them agree) are left out
    and counted. fleiss: over the things with as many labels as most have; `fleiss_things` of them."""

    things: int
    exact: float | None
    within_one: float | None
    cohen: float | None
    pairs_of_raters: int
    without_cohen: int
    fleiss: float | None
    fleiss_things: int

    def as_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def panel_agreement(labelled: Labelled, labels: Sequence[str]) -> PanelAgreement:
    """labels: all that there are. Raises ValueError for another one."""
    several = [thing for thing in labelled if len(thing) > 1]
    unknown = {label for thing in labelled for label in thing.values()} - set(labels)
    if unknown:
        raise ValueError(f"labels {sorted(unknown)} are not among {list(labels)}")
    numbers = all(label.isdigit() for label in labels)
    cohen, without = _cohen(several, labels)
    size = _usual([len(thing) for thing in several])
    equal = [thing for thing in several if len(thing) == size]
    counts = [[list(thing.values()).count(label) for label in labels] for thing in equal]
    return PanelAgreement(
        things=len(several),
        exact=_mean([_share(thing, lambda a, b: a == b) for thing in several]),
        within_one=_mean([_share(thing, lambda a, b: abs(int(a) - int(b)) <= 1) for thing in several])
        if numbers
        else None,
        cohen=None if not cohen else sum(k * n for k, n in cohen) / sum(n for _, n in cohen),
        pairs_of_raters=len(cohen) + without,
        without_cohen=without,
        fleiss=fleiss_kappa(counts) if counts else None,
        fleiss_things=len(equal),
    )


def _cohen(several: Labelled, labels: Sequence[str]) -> tuple[list[tuple[float, int]], int]:
    """((κ, things) of each pair of raters, pairs without a κ)"""
    by_pair: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for thing in several:
        for first, second in combinations(sorted(thing), 2):
            by_pair.setdefault((first, second), []).append((thing[first], thing[second]))
    found, without = [], 0
    for both in by_pair.values():
        kappa = agreement([a for a, _ in both], [b for _, b in both], labels).kappa
        if kappa is None:
            without += 1
        else:
            found.append((kappa, len(both)))
    return found, without


def _share(thing: Mapping[str, str], same: Any) -> float:
    pairs = list(combinations(thing.values(), 2))
    return sum(same(a, b) for a, b in pairs) / len(pairs)


def _usual(sizes: Sequence[int]) -> int:
    """The size that occurs most; the smaller of two."""
    return min(set(sizes), key=lambda size: (-sizes.count(size), size)) if sizes else 0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
