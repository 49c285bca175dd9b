"""Log-probs over the vocabulary that never hold all logits at once.

Letters: B rows, R predicted tokens of a row, D width, V vocabulary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vrjax.models.decoder import Shard, unsharded

CHUNK_TOKENS = 2048


def token_log_probs(
    hidden: Float[Array, "*B R D"],
    head: Float[Array, "V D"],
    targets: Int[Array, "*B R"],
    temperature: float = 1.0,
    *,
    chunk: int = CHUNK_TOKENS,
    shard: Shard = unsharded,
) -> tuple[Float[Array, "*B R"], Float[Array, "*B R"]]:
    """Log-probability of each target and entropy of its distribution, in nats, float32.

    Logits are hidden head^T / temperature, computed for about `chunk` tokens at a time and again in the backward pass,
    so that no array of all tokens x V exists. Chunks are cut along R; B may be sharded. hidden: [R, D] or [B, R, D].
    """
    if hidden.ndim == 2:
        log_probs, entropy = token_log_probs(hidden[None], head, targets[None], temperature, chunk=chunk, shard=shard)
        return log_probs[0], entropy[0]
    batch, count, width = hidden.shape

    @jax.checkpoint
    def of_chunk(hidden: Array, head: Array, targets: Array) -> tuple[Array, Array]:
        logits = jnp.einsum("brd,vd->brv", hidden, head, preferred_element_type=jnp.float32) / temperature
        logits = shard(logits, ("batch", None, "vocab"))
        total = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        log_probs = logits - total[..., None]
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
        return chosen - total, entropy

    chunks = -(-batch * count // chunk)
    if chunks <= 1:
        return of_chunk(hidden, head, targets)
    size = -(-count // chunks)
    chunks = -(-count // size)
    padding = chunks * size - count
    hidden = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0))).reshape(batch, chunks, size, width)
    targets = jnp.pad(targets, ((0, 0), (0, padding))).reshape(batch, chunks, size)
    _, (log_probs, entropy) = jax.lax.scan(
        lambda carry, part: (carry, of_chunk(part[0], head, part[1])),
        None,
        (jnp.moveaxis(hidden, 1, 0), jnp.moveaxis(targets, 1, 0)),
    )
    log_probs, entropy = (jnp.moveaxis(x, 0, 1).reshape(batch, -1)[:, :count] for x in (log_probs, entropy))
    return log_probs, entropy
