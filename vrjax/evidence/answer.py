"""A rule-based answer score, for where no judge is at hand: normalised exact match and token F1.

The normalisation is that of SQuAD v1.1's evaluation script (lower case, no punctuation, no articles, single spaces),
with Unicode's idea of punctuation and case.
"""

from __future__ import annotations

import unicodedata
from collections import Counter

_ARTICLES = frozenset({"a", "an", "the"})


def normalised_words(text: str) -> list[str]:
    """Lower-case words of a text, without punctuation and articles."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(character for character in folded if not unicodedata.category(character).startswith("P"))
    return [word for word in kept.split() if word not in _ARTICLES]


def exact_match(reference: str, response: str) -> float:
    """1 where both texts have the same normalised words in the same order, else 0."""
    return float(normalised_words(reference) == normalised_words(response))


def words_f1(reference: list[str], response: list[str]) -> float:
    """F1 of two bags of words; two empty bags agree (1), one empty bag does not (0)."""
    if not reference or not response:
        return float(reference == response)
    shared = sum((Counter(reference) & Counter(response)).values())
    return 2 * shared / (len(reference) + len(response))


def token_f1(reference: str, response: str) -> float:
    """F1 of the normalised words of two texts, in [0, 1] (SQuAD v1.1)."""
    return words_f1(normalised_words(reference), normalised_words(response))
