"""Beam search on a shared prefix: the whole search is one compiled loop, and only suffixes are reordered.

    running beams [B, k] ─▶ logits ─▶ the best max(2, 1 + ends)·k continuations
                                        │ end token, among the k best ─▶ pool of finished beams (the k best stay)
                                        └ others: the k best ─▶ running beams, their caches in the new order

Rules are those of transformers' beam search, so that results can be compared: a beam's score is the sum of its tokens'
log-probs over length^penalty, the end token counted; at max_tokens running beams count as finished. Letters: B prompts,
W beams (k), C tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vrjax.errors import InputError
from vrjax.generation.decode import VocabularyMasks, next_logits, suffix_caches, take_rows
from vrjax.generation.prefix_cache import Prefix
from vrjax.models.language_model import LanguageModel

EarlyStopping = Literal[True, False, "never"]
RULES: tuple[EarlyStopping, ...] = (False, True, "never")
BLOCK = 128


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """How to search.

    beams: k. returned: the n best of them (None: all). length_penalty: exponent of the length that scores are divided
    by; above 0 favours long responses, since log-probs are negative. min_tokens: no end token before that many.
    banned: ids never produced, beside the control tokens that are never sampled either.

    early_stopping, when a prompt's search ends: True with k finished beams; False when no running beam would get into
    them were it to end now; "never" when none could by any length (a bound that holds for every penalty).
    """

    beams: int = 5
    returned: int | None = None
    max_tokens: int = 1024
    min_tokens: int = 0
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    banned: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.beams < 1 or not 1 <= (self.returned or self.beams) <= self.beams:
            raise InputError(f"{self.beams} beams, {self.returned} of them returned: both must be at least 1, k >= n.")
        if self.max_tokens < 1 or not 0 <= self.min_tokens <= self.max_tokens:
            raise InputError(
                f"max_tokens {self.max_tokens} must be at least 1 and min_tokens {self.min_tokens} within it."
            )
        if self.early_stopping not in RULES:
            raise InputError(f"early_stopping {self.early_stopping!r} is unknown. Use True, False or 'never'.")
        if not np.isfinite(self.length_penalty):
            raise InputError(f"length_penalty {self.length_penalty} is not a finite number.")

    def numbers(self) -> BeamNumbers:
        return BeamNumbers(
            jnp.float32(self.length_penalty),
            jnp.int32(self.min_tokens),
            jnp.int32(self.max_tokens),
            jnp.int32(RULES.index(self.early_stopping)),
        )


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["length_penalty", "min_tokens", "max_tokens", "early_stopping"],
    meta_fields=[],
)
@dataclass(frozen=True)
class BeamNumbers:
    """The numbers of BeamOptions as device arguments, so that changing them compiles nothing.

    early_stopping: its place in RULES.
    """

    length_penalty: Float[Array, ""]
    min_tokens: Int[Array, ""]
    max_tokens: Int[Array, ""]
    early_stopping: Int[Array, ""]


@dataclass(frozen=True)
class Beam:
    """A finished response. score: sum of log_probs / length^penalty; log_probs: of each token, over the whole
    vocabulary; finished: it has an end token.
    """

    text: str
    tokens: Int[np.ndarray, "C"]
    log_probs: Float[np.ndarray, "C"]
    score: float
    finished: bool


@partial(
    jax.tree_util.register_dataclass, data_fields=["scores", "tokens", "log_probs", "lengths", "ended"], meta_fields=[]
)
@dataclass(frozen=True)
class Hypotheses:
    """Beams of B prompts, best first. scores: -inf where there is none; ended: with an end token."""

    scores: Float[Array, "B W"]
    tokens: Int[Array, "B W C"]
    log_probs: Float[Array, "B W C"]
    lengths: Int[Array, "B W"]
    ended: Bool[Array, "B W"]

    @staticmethod
    def empty(rows: tuple[int, int], capacity: int) -> Hypotheses:
        return Hypotheses(
            jnp.full(rows, -jnp.inf),
            jnp.zeros((*rows, capacity), jnp.int32),
            jnp.zeros((*rows, capacity), jnp.float32),
            jnp.zeros(rows, jnp.int32),
            jnp.zeros(rows, bool),
        )

    def best(self, count: int) -> Hypotheses:
        """The `count` best, in order; among equals those that stand first."""
        _, order = jax.lax.top_k(self.scores, count)
        return self.take(order)

    def take(self, order: Int[Array, "B N"]) -> Hypotheses:
        rows = jnp.arange(order.shape[0])[:, None]
        return jax.tree.map(lambda array: array[rows, order], self)

    def joined(self, other: Hypotheses) -> Hypotheses:
        return jax.tree.map(lambda mine, theirs: jnp.concatenate([mine, theirs], 1), self, other)


@partial(
    jax.tree_util.register_dataclass, data_fields=["step", "running", "finished", "open", "caches"], meta_fields=[]
)
@dataclass(frozen=True)
class BeamState:
    """A search in progress. step: tokens chosen so far; open: prompts whose search goes on.

    running: scores are plain sums; finished: divided by length^penalty. caches: keys and values of the running beams.
    """

    step: Int[Array, ""]
    running: Hypotheses
    finished: Hypotheses
    open: Bool[Array, "B"]
    caches: tuple[Any, Any]


def top_continuations(scores: Float[Array, "B N"], count: int) -> tuple[Float[Array, "B M"], Int[Array, "B M"]]:
    """The `count` largest of each row with their places; among equals those that stand first.

    Exact: the `count` largest numbers lie in the `count` blocks with the largest maxima, so one pass over the
    vocabulary finds the blocks and the search is among their numbers only.
    """
    rows, size = scores.shape
    if size <= 2 * count * BLOCK:
        return jax.lax.top_k(scores, count)
    blocks = jnp.pad(scores, ((0, 0), (0, -size % BLOCK)), constant_values=-jnp.inf).reshape(rows, -1, BLOCK)
    _, chosen = jax.lax.top_k(blocks.max(-1), count)
    chosen = jnp.sort(chosen, axis=1)  # in the order of places, so that equals stay in it
    among = jnp.take_along_axis(blocks, chosen[..., None], axis=1)
    values, place = jax.lax.top_k(among.reshape(rows, -1), count)
    return values, jnp.take_along_axis(chosen, place // BLOCK, axis=1) * BLOCK + place % BLOCK


def start_search(prefix: Prefix, beams: int, capacity: int) -> BeamState:
    """One running beam a prompt, empty; the others are not there yet."""
    rows = prefix.logits.shape[0], beams
    running = Hypotheses.empty(rows, capacity)
    return BeamState(
        step=jnp.int32(0),
        running=replace(running, scores=running.scores.at[:, 0].set(0.0)),
        finished=Hypotheses.empty(rows, capacity),
        open=jnp.ones(rows[:1], bool),
        caches=suffix_caches(prefix, rows, capacity),
    )


def advance(
    state: BeamState,
    logits: Float[Array, "B W V"],
    masks: VocabularyMasks,
    numbers: BeamNumbers,
    candidates: int,
) -> tuple[BeamState, Int[Array, "B W"]]:
    """Choose token number `step` of all beams. Returns the new state, and which beam each running one comes from."""
    rows, beams, size = logits.shape
    running, length = state.running, state.step + 1
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    legal = masks.allowed & ~(masks.ends & (state.step < numbers.min_tokens))
    totals = jnp.where(legal, log_probs + running.scores[..., None], -jnp.inf)
    scores, place = top_continuations(totals.reshape(rows, -1), candidates)
    parent, token = place // size, place % size
    chosen = jnp.take_along_axis(log_probs.reshape(rows, -1), place, axis=1)

    # Continuations as hypotheses, best first.
    at = jnp.arange(running.tokens.shape[2]) == state.step
    ended = masks.ends[token]
    found = replace(
        running.take(parent),
        scores=scores,
        lengths=jnp.full_like(token, length),
        ended=ended,
    )
    found = replace(
        found,
        tokens=jnp.where(at, token[..., None], found.tokens),
        log_probs=jnp.where(at, chosen[..., None], found.log_probs),
    )

    stops = ended | (length >= numbers.max_tokens)
    enters = stops & (jnp.arange(candidates) < beams) & state.open[:, None]
    penalised = scores / length.astype(jnp.float32) ** numbers.length_penalty
    finished = state.finished.joined(replace(found, scores=jnp.where(enters, penalised, -jnp.inf))).best(beams)

    going = jnp.where(stops, -jnp.inf, scores)
    _, order = jax.lax.top_k(going, beams)
    kept = replace(found, scores=going).take(order)

    full = jnp.isfinite(finished.scores).all(1)
    best, worst = kept.scores[:, 0], finished.scores[:, -1]
    any_length = (numbers.early_stopping == RULES.index("never")) & (numbers.length_penalty > 0)
    final_length = jnp.where(any_length, numbers.max_tokens, length).astype(jnp.float32)
    hopeless = worst >= best / final_length**numbers.length_penalty
    beaten = full & (hopeless | (numbers.early_stopping == RULES.index(True)))
    still_open = state.open & ~beaten & jnp.isfinite(best)
    new = BeamState(length, kept, finished, still_open, state.caches)
    return new, jnp.take_along_axis(parent, order, axis=1)


def search(
    model: LanguageModel,
    prefix: Prefix,
    masks: VocabularyMasks,
    numbers: BeamNumbers,
    layers: tuple[Any, ...] | None,
    *,
    beams: int,
    candidates: int,
    capacity: int,
) -> Hypotheses:
    """The finished beams of every prompt, best first; no word with the host on the way.

    candidates: continuations looked at in each step, max(2, 1 + end ids) · beams, so that `beams` of them go on
    whatever ends. capacity: room for tokens, at least max_tokens. layers: as in `decode`.
    """
    choose = partial(advance, masks=masks, numbers=numbers, candidates=candidates)

    def body(state: BeamState) -> BeamState:
        index = state.step - 1
        token = jax.lax.dynamic_slice_in_dim(state.running.tokens, index, 1, axis=2)[..., 0]
        logits, caches = next_logits(model, prefix, token, index, state.caches, layers)
        state, parent = choose(state, logits)
        return replace(state, caches=jax.tree.map(lambda cache: take_rows(cache, parent), caches))

    state = start_search(prefix, beams, capacity)
    logits = jnp.broadcast_to(prefix.logits[:, None], (*state.running.scores.shape, prefix.logits.shape[-1]))
    state, _ = choose(state, logits)  # all beams come from the one empty one: nothing to reorder
    return jax.lax.while_loop(lambda state: state.open.any(), body, state).finished
