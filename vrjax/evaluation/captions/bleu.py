"""BLEU over captions (Papineni et al. 2002) as the COCO evaluation computes it.

Of several references the one closest in length counts for brevity. Nothing is smoothed, but tiny constants keep empty
texts from dividing by zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

LONGEST = 4
# Added above and below each fraction, so that 0/0 is 0 (COCO caption evaluation).
_ABOVE, _BELOW = 1e-15, 1e-9


def ngram_counts(words: Sequence[str], longest: int = LONGEST) -> Counter[tuple[str, ...]]:
    """How often each sequence of 1 to `longest` words occurs."""
    return Counter(
        tuple(words[start : start + size]) for size in range(1, longest + 1) for start in range(len(words) - size + 1)
    )


@dataclass(frozen=True)
class BleuStatistics:
    """Counts of items; their sums over items are those of a corpus.

    matched, possible: n-grams of 1 to 4 words that the prediction shares with its references (clipped), and has.
    length, reference_length: words of the prediction, and of the reference closest in length (the shorter one of two).
    """

    matched: Int[np.ndarray, "N 4"]
    possible: Int[np.ndarray, "N 4"]
    length: Int[np.ndarray, " N"]
    reference_length: Int[np.ndarray, " N"]

    def items(self) -> Float[np.ndarray, "N 4"]:
        """BLEU-1 to BLEU-4 of each item."""
        rows = zip(self.matched, self.possible, self.length, self.reference_length, strict=True)
        return np.array([_bleu(*row) for row in rows]).reshape(-1, LONGEST)

    def corpus(self) -> Float[np.ndarray, "4"]:
        """BLEU-1 to BLEU-4 of all items together; not the mean over items."""
        return np.array(
            _bleu(self.matched.sum(0), self.possible.sum(0), self.length.sum(), self.reference_length.sum())
        )


def bleu_statistics(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> BleuStatistics:
    """Count. predictions: words of each item; references: words of each of the item's references, at least one."""
    matched, possible, length, reference_length = [], [], [], []
    for words, texts in zip(predictions, references, strict=True):
        most: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            most |= ngram_counts(text)
        shared = ngram_counts(words) & most
        matched.append([sum(n for gram, n in shared.items() if len(gram) == size) for size in range(1, LONGEST + 1)])
        possible.append([max(0, len(words) - size + 1) for size in range(1, LONGEST + 1)])
        length.append(len(words))
        reference_length.append(min((abs(len(text) - len(words)), len(text)) for text in texts)[1])
    return BleuStatistics(
        np.array(matched, int).reshape(-1, LONGEST),
        np.array(possible, int).reshape(-1, LONGEST),
        np.array(length, int),
        np.array(reference_length, int),
    )


def _bleu(matched: np.ndarray, possible: np.ndarray, length: int, reference_length: int) -> list[float]:
    """Geometric means of the precisions of 1 to n words, times the brevity penalty."""
    products = np.cumprod((matched + _ABOVE) / (possible + _BELOW))
    ratio = (length + _ABOVE) / (reference_length + _BELOW)
    penalty = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    return [float(product) ** (1 / size) * penalty for size, product in enumerate(products, 1)]
