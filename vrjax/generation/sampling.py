"""From logits to the next token: temperature, top-k, top-p, banned ids, and the log-probs of what was drawn.

Randomness is addressed, not consumed: the key of a draw folds in (seed, step, prompt, sample, position), so a sample
does not depend on what else is in the batch, on the process count, or on a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vrjax.errors import InputError

REMOVED = -1e30


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How to draw. temperature 0 is greedy; top_k 0 and top_p 1 are off; min_tokens: no end token before that many."""

    max_tokens: int = 1024
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or not 0 <= self.min_tokens <= self.max_tokens:
            raise InputError(
                f"max_tokens {self.max_tokens} must be at least 1 and min_tokens {self.min_tokens} within it."
            )
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise InputError(
                f"temperature {self.temperature} and top_k {self.top_k} must not be negative, top_p {self.top_p} in "
                "(0, 1]."
            )

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """What a compiled program depends on: (greedy, top-k on, top-p on). The numbers themselves are arguments."""
        return self.temperature == 0, self.top_k > 0, self.top_p < 1

    def numbers(self) -> SamplingNumbers:
        return SamplingNumbers(
            jnp.float32(self.temperature or 1.0),
            jnp.int32(self.top_k),
            jnp.float32(self.top_p),
            jnp.int32(self.min_tokens),
        )


@partial(jax.tree_util.register_dataclass, data_fields=["temperature", "top_k", "top_p", "min_tokens"], meta_fields=[])
@dataclass(frozen=True)
class SamplingNumbers:
    """The numbers of SamplingOptions as device arguments, so that changing them compiles nothing."""

    temperature: Float[Array, ""]
    top_k: Int[Array, ""]
    top_p: Float[Array, ""]
    min_tokens: Int[Array, ""]


def row_keys(seed: int, step: int, prompts: Int[np.ndarray, "B"], samples: Int[np.ndarray, "G"]) -> Array:
    """Key data [B, G, 2] of each row: fold_in of seed, step, prompt id (uint32) and sample id."""
    base = jax.random.fold_in(jax.random.key(seed), step)

    def row(prompt: Array, sample: Array) -> Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(base, prompt), sample))

    grid = jax.vmap(jax.vmap(row, (None, 0)), (0, None))
    return grid(jnp.asarray(prompts, jnp.uint32), jnp.asarray(samples, jnp.uint32))


def top_p_mask(probabilities: Float[Array, "*B V"], top_p: Float[Array, ""]) -> Bool[Array, "*B V"]:
    """The smallest set of tokens whose mass reaches top_p (Holtzman et al. 2020); equal probabilities go together.

    No sort of the vocabulary: bisects the threshold over the bit patterns of non-negative floats, which order as the
    floats do, so that 31 halvings find it exactly.
    """

    def mass(bits: Int[Array, "*B"]) -> Float[Array, "*B"]:
        threshold = jax.lax.bitcast_convert_type(bits, jnp.float32)
        return jnp.where(probabilities >= threshold[..., None], probabilities, 0).sum(-1)

    low = jnp.zeros(probabilities.shape[:-1], jnp.int32)
    high = jax.lax.bitcast_convert_type(probabilities.max(-1), jnp.int32) + 1

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        enough = mass(middle) >= jnp.minimum(top_p, probabilities.sum(-1))
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 31, halve, (low, high))
    return probabilities >= jax.lax.bitcast_convert_type(low, jnp.float32)[..., None]


def top_k_mask(logits: Float[Array, "*B V"], top_k: Int[Array, ""]) -> Bool[Array, "*B V"]:
    """The top_k largest logits (equal ones go together), by bisection over bit patterns as in `top_p_mask`."""
    bits = jax.lax.bitcast_convert_type(logits, jnp.int32)
    ordered = jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        enough = (ordered >= middle[..., None]).sum(-1) >= top_k
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.full(logits.shape[:-1], jnp.iinfo(jnp.int32).min, jnp.int32)
    low, _ = jax.lax.fori_loop(0, 33, halve, (low, ordered.max(-1) + 1))
    return ordered >= low[..., None]


def first_largest(x: Float[Array, "*B V"]) -> Int[Array, "*B"]:
    """argmax over the last axis, as two plain reductions: XLA's own runs one element at a time on CPUs."""
    top = x.max(-1, keepdims=True)
    index = jnp.arange(x.shape[-1], dtype=jnp.int32)
    return jnp.where(x == top, index, x.shape[-1] - 1).min(-1)


def truncated(
    scaled: Float[Array, "*B V"],
    position: Int[Array, "*B"],
    allowed: Bool[Array, "V"],
    ends: Bool[Array, "V"],
    numbers: SamplingNumbers,
    kind: tuple[bool, bool, bool],
) -> Float[Array, "*B V"]:
    """Temperature-scaled logits with everything that may not be drawn at `position` of its response removed."""
    greedy, use_top_k, use_top_p = kind
    legal = allowed & ~(ends & (jnp.asarray(position)[..., None] < numbers.min_tokens))
    kept = jnp.where(legal, scaled, REMOVED)
    if greedy:
        return kept
    if use_top_k:
        kept = jnp.where(top_k_mask(kept, numbers.top_k), kept, REMOVED)
    if use_top_p:
        kept = jnp.where(top_p_mask(jax.nn.softmax(kept, axis=-1), numbers.top_p), kept, REMOVED)
    return kept


def draw(
    logits: Float[Array, "*B V"],
    keys: Array,
    position: Int[Array, ""],
    allowed: Bool[Array, "V"],
    ends: Bool[Array, "V"],
    numbers: SamplingNumbers,
    kind: tuple[bool, bool, bool],
) -> tuple[Int[Array, "*B"], Float[Array, "*B"], Float[Array, "*B"]]:
    """Draw a token per row.

    logits: float32. keys: key data of each row. position: index of the token within its response.
    allowed: False on banned ids. Returns the tokens, their raw log-probs (temperature-scaled, over the whole
    vocabulary: what a trainer computes) and their processed ones (after bans and truncation: what was drawn from).
    """
    scaled = logits / numbers.temperature
    total = jax.nn.logsumexp(scaled, axis=-1)
    kept = truncated(scaled, position, allowed, ends, numbers, kind)
    if kind[0]:
        tokens = first_largest(kept)
    else:
        flat_keys = jax.random.wrap_key_data(keys.reshape(-1, keys.shape[-1]))
        noise = jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, position), logits.shape[-1:]))(flat_keys)
        tokens = first_largest(kept + noise.reshape(kept.shape))
    chosen = jnp.take_along_axis(scaled, tokens[..., None], axis=-1)[..., 0]
    return tokens, chosen - total, chosen - jax.nn.logsumexp(kept, axis=-1)


def processed_log_probs(
    logits: Float[Array, "*B V"],
    tokens: Int[Array, "*B"],
    position: Int[Array, "*B"],
    allowed: Bool[Array, "V"],
    ends: Bool[Array, "V"],
    numbers: SamplingNumbers,
    kind: tuple[bool, bool, bool],
) -> Float[Array, "*B"]:
    """What `draw` recorded as processed log-probs of tokens drawn before: the trainer's side of the audit."""
    scaled = logits / numbers.temperature
    kept = truncated(scaled, position, allowed, ends, numbers, kind)
    chosen = jnp.take_along_axis(scaled, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(kept, axis=-1)
