"""A small language model as a scorer of answers: how good is this candidate, from 0 to 9?

    user       INSTRUCTION  Question: …  Answer:      one prompt, run once for all candidates
               ‹candidate›  Score from 0 to 9:        what differs
    assistant  ‹digit›

Three read-outs: `expected_digit`, Σ d · p(d) over the ten digits' probabilities at that place (one forward pass,
nothing sampled; the default); `generated_number`, the number that it writes; `log_likelihood`, the mean
log-probability of the candidate's own tokens behind the question. The paper asks for a prompt without evaluation
guidelines (MovieCORE, ACE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vrjax.errors import InputError
from vrjax.generation.chat_forms import Mark, Turn
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.continuations import Continuations
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import Prompt
from vrjax.generation.requests import Request
from vrjax.generation.sampling import SamplingOptions
from vrjax.llm.score_text import parse_score

ReadOut = Literal["expected_digit", "generated_number", "log_likelihood"]
READ_OUTS: tuple[ReadOut, ...] = ("expected_digit", "generated_number", "log_likelihood")

# Our own words. Version 1: raise it with any change, it is part of every result.
PROMPT_VERSION = 1
INSTRUCTION = "Rate how good the answer to this question about a video is.\n\nQuestion: {question}\nAnswer:"
CLOSING = "\nScore from 0 to 9:"
DIGITS = "0123456789"


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """read_out: see the module. too_long: what to do with a candidate that exceeds the scorer's context: an error, or
    `cut` it to what fits, which is counted. number_tokens: longest reply of `generated_number`.
    """

    read_out: ReadOut = "expected_digit"
    too_long: Literal["error", "cut"] = "error"
    number_tokens: int = 8

    def __post_init__(self) -> None:
        if self.read_out not in READ_OUTS:
            raise InputError(f"read-out {self.read_out!r} is unknown. Choose one of: {', '.join(READ_OUTS)}.")


@dataclass(frozen=True)
class CandidateScore:
    """score: higher is better; None where no number could be read, and `note` says what came instead. cut: tokens that
    were left out of a candidate beyond the context.
    """

    score: float | None
    note: str = ""
    cut: int = 0


@dataclass(frozen=True)
class _Digits:
    """gap: text between the closing and the digit; ids: token of each digit behind it."""

    gap: str
    ids: tuple[int, ...]


def digit_tokens(chat: ChatTokenizer, before: str) -> _Digits | None:
    """The single tokens that write the digits 0 to 9 behind `before`, at once or behind a space; None where there are
    none.
    """
    for gap in ("", " "):
        start = chat.marks(before + gap)
        ids = []
        for digit in DIGITS:
            whole = chat.marks(before + gap + digit)
            if whole[:-1] == start or (gap and whole[:-1] == chat.marks(before)):
                ids.append(whole[-1])
        if len(set(ids)) == len(DIGITS):
            joined = gap and chat.marks(before + gap + "0")[:-1] == chat.marks(before)
            return _Digits("" if joined else gap, tuple(ids))
    return None


class Scorer:
    """Scores candidates with one engine's model, text alone.

    Raises InputError where the model's tokenizer has no digit tokens and the read-out needs them.
    """

    def __init__(self, engine: Engine, options: ScorerOptions | None = None) -> None:
        self.engine, self.options = engine, options or ScorerOptions()
        chat = engine.chat
        if chat.form is None:
            raise InputError(
                "the scorer's chat template is of no known form. Use a base model, or one of a known form."
            )
        pieces, reply = chat.form.lay_out([Turn("user", ("\0",))])
        self._before, self._after = _split(pieces, "\0"), reply
        spoken = "".join(piece.text if isinstance(piece, Mark) else piece for piece in reply)
        self._digits = digit_tokens(chat, spoken or CLOSING)
        if self._digits is None and self.options.read_out == "expected_digit":
            raise InputError(
                "the scorer's tokenizer has no single tokens for the digits 0 to 9, which the read-out expected_digit "
                "needs. Use another scorer, or the read-out generated_number or log_likelihood."
            )

    def score(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[CandidateScore]]:
        """Scores of the candidates of each (question, candidates), in order; all in as few passes as fit.

        Candidates with the same text are read once. Raises InputError for an empty question, no candidates, control
        tokens in a text, or one beyond the context (see `too_long`).
        """
        for question, candidates in asked:
            if not question.strip():
                raise InputError("the question is empty. Ask something.")
            if not candidates:
                raise InputError(f"there are no candidates to score for the question {question[:60]!r}.")
        unique = [(question, list(dict.fromkeys(candidates))) for question, candidates in asked]
        laid = [self._lay_out(question, candidates) for question, candidates in unique]
        found = {
            "expected_digit": self._expected, "generated_number": self._generated, "log_likelihood": self._likelihood
        }[self.options.read_out]([one for one, _ in laid])  # fmt: skip
        results = []
        for (_, candidates), (_, unique_ones), (_, cuts), scores in zip(asked, unique, laid, found, strict=True):
            by_text = {
                text: CandidateScore(score.score, score.note, cut)
                for text, score, cut in zip(unique_ones, scores, cuts, strict=True)
            }
            results.append([by_text[text] for text in candidates])
        return results

    # ---------------------------------------------------------------- prompts

    def _lay_out(self, question: str, candidates: Sequence[str]) -> tuple[Continuations, list[int]]:
        """Shared prompt and what follows it for each candidate, and how many tokens of each were cut."""
        chat = self.engine.chat
        before = [*self._before[0], INSTRUCTION.format(question=question.strip())]
        head = _encoded(chat, before)
        prompt = Prompt(
            np.asarray(head, np.int32), np.arange(len(head), dtype=np.int32)[None], len(head), trunk=len(head),
            name=f"the question {question.strip()[:60]!r}",
        )  # fmt: skip
        behind: list[Mark | str] = []
        if self.options.read_out != "log_likelihood":
            gap = self._digits.gap if self._digits is not None and self.options.read_out == "expected_digit" else ""
            behind = [CLOSING, *self._before[1], *self._after, gap]
        closing = _encoded(chat, behind)
        context = self.engine.config.text.max_positions - len(head) - self._reply_tokens
        room = context - len(closing)
        rows, cuts = [], []
        for text in candidates:
            # The space belongs to the word behind it, and the candidate's end may join with what follows: both are
            # encoded as in the whole text.
            spoken = f" {text.strip()}"
            whole = _encoded(chat, [spoken, *behind])
            if len(whole) <= context:
                rows.append(tuple(whole))
                cuts.append(0)
                continue
            ids = chat.encode(spoken)
            cut = max(0, len(ids) - room)
            if self.options.too_long == "error" or room < 1:
                raise InputError(
                    f"{prompt.name}: a candidate of {len(ids)} tokens does not fit the scorer's context: "
                    f"{max(room, 0)} tokens are left beside the question. Use a scorer with a longer context, or "
                    "cut candidates."
                )
            rows.append(tuple(ids[: len(ids) - cut]) + tuple(closing))
            cuts.append(cut)
        return Continuations(prompt, tuple(rows)), cuts

    @property
    def _reply_tokens(self) -> int:
        return self.options.number_tokens if self.options.read_out == "generated_number" else 0

    # ---------------------------------------------------------------- read-outs

    def _expected(self, laid: Sequence[Continuations]) -> list[list[CandidateScore]]:
        assert self._digits is not None
        readings = self.engine.read(laid, self._digits.ids)
        return [[CandidateScore(expected_digit(one.logits)) for one in row] for row in readings]

    def _likelihood(self, laid: Sequence[Continuations]) -> list[list[CandidateScore]]:
        readings = self.engine.read(laid, log_probs=True)
        return [[CandidateScore(float(one.log_probs.mean())) for one in row] for row in readings]

    def _generated(self, laid: Sequence[Continuations]) -> list[list[CandidateScore]]:
        requests = []
        for one in laid:
            for ids in one.tokens:
                tokens = np.concatenate([one.prompt.tokens, np.asarray(ids, np.int32)])
                positions = np.arange(len(tokens), dtype=np.int32)[None]
                requests.append(Request(prompt=Prompt(tokens, positions, len(tokens), name=one.prompt.name)))
        sampling = SamplingOptions(max_tokens=self.options.number_tokens, temperature=0)
        texts = iter(samples[0].text for samples in self.engine.generate(requests, sampling))
        return [[_number(next(texts)) for _ in one.tokens] for one in laid]


def expected_digit(logits: np.ndarray) -> float:
    """Σ d · softmax(logits)[d] over the ten digits' logits, in float64."""
    wide = np.asarray(logits, np.float64)
    weights = np.exp(wide - wide.max())
    return float(np.arange(len(wide)) @ weights / weights.sum())


def _number(text: str) -> CandidateScore:
    try:
        return CandidateScore(float(parse_score(text, 0, 9)))
    except ValueError as error:
        return CandidateScore(None, f"no number in {text!r} ({error})")


def _split(pieces: Sequence[Mark | str], mark: str) -> tuple[list[Mark | str], list[Mark | str]]:
    """The pieces before and behind `mark`, which stands within one of the texts."""
    at = next(number for number, piece in enumerate(pieces) if isinstance(piece, str) and mark in piece)
    text = pieces[at]
    assert isinstance(text, str)
    head, tail = text.split(mark)
    return [*pieces[:at], *([head] if head else [])], [*([tail] if tail else []), *pieces[at + 1 :]]


def _encoded(chat: ChatTokenizer, pieces: Sequence[Mark | str]) -> list[int]:
    """Ids of marks and texts; texts that follow each other are encoded as one."""
    ids: list[int] = []
    waiting = ""
    for piece in [*pieces, Mark("")]:
        if isinstance(piece, str):
            waiting += piece
            continue
        if waiting:
            ids.extend(chat.encode(waiting))
        waiting = ""
        if piece.text:
            ids.extend(chat.marks(piece.text))
    return ids
