"""CIDEr-D over captions (Vedantam et al. 2015), as the COCO evaluation computes it and calls "CIDEr".

An n-gram weighs by how rare it is among the references of all items, so values depend on the whole set: over one item
alone they are 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from vrjax.evaluation.captions.bleu import LONGEST, ngram_counts

SIGMA = 6.0  # words; width of the penalty on a difference in length
SCALE = 10.0

Gram = tuple[str, ...]


def cider(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> Float[np.ndarray, " N"]:
    """CIDEr of each item, 0 to 10; the corpus value is their mean. Arguments as in `bleu_statistics`."""
    texts = [[ngram_counts(text) for text in of_item] for of_item in references]
    frequency = Counter(gram for of_item in texts for gram in set().union(*of_item))
    items = math.log(len(texts)) if texts else 0.0

    def rarity(gram: Gram) -> float:
        return items - math.log(max(1, frequency[gram]))

    scores = []
    for words, of_item in zip(predictions, texts, strict=True):
        prediction = _Vector(ngram_counts(words), rarity)
        scores.append(SCALE * np.mean([prediction.similarity(_Vector(text, rarity)) for text in of_item]))
    return np.array(scores, float)


class _Vector:
    """An n-gram's count times its rarity, for each size of n-grams."""

    def __init__(self, counts: Mapping[Gram, int], rarity: Callable[[Gram], float]) -> None:
        self.weights: list[dict[Gram, float]] = [{} for _ in range(LONGEST)]
        for gram, count in counts.items():
            self.weights[len(gram) - 1][gram] = count * rarity(gram)
        self.norms = [math.sqrt(sum(weight * weight for weight in one.values())) for one in self.weights]
        self.length = sum(count for gram, count in counts.items() if len(gram) == 1)

    def similarity(self, reference: _Vector) -> float:
        """Mean over sizes of the clipped cosine, times the penalty on a difference in length."""
        total = 0.0
        for own, other, own_norm, other_norm in zip(
            self.weights, reference.weights, self.norms, reference.norms, strict=True
        ):
            if own_norm and other_norm:
                shared = own.keys() & other.keys()
                total += sum(min(own[gram], other[gram]) * other[gram] for gram in shared) / (own_norm * other_norm)
        return total / LONGEST * math.exp(-((self.length - reference.length) ** 2) / (2 * SIGMA**2))
