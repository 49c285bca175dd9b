"""Attention of shared-prefix rows as three calls of a fused kernel (cuDNN's), under one derivative of their own.

A kernel for one causal sequence knows nothing of trunks and branches, but three such calls are exact:

    trunk to trunk        causal                       ┐
    branches to trunk     all of it                    ├ merged by their log-sum-exps
    branch to itself      causal, branch by branch     ┘

A kernel's own derivative is that of a finished softmax, and merging two of them by residuals would leave out how each
weighs against the other. So the backward pass hands the merged output and the merged log-sum-exp to both backward
kernels: with these, each gives its share of the whole softmax's gradients (Dao et al. 2022, algorithm 4: it sums over
blocks of keys, and these are two).

Ragged rows are laid into slots, [B, P] for trunks and [B, G, C] for branches, and lengths say how much of each is used.
Letters as in `attention`; also G branches of a row, C tokens of a slot, P tokens of a trunk's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from vrjax.models.attention import KEPT, NEGATIVE, Reach, Visibility, heads_first

_FAR = 1e30  # log-sum-exp of a query that does not exist: all its weights are exp(score - this) = 0


class Kernel(Protocol):
    """One fused attention. Queries and keys are used up to their lengths; what lies behind them is undefined."""

    def forward(
        self,
        q: Float[Array, "B T H E"],
        k: Float[Array, "B S K E"],
        v: Float[Array, "B S K E"],
        lengths: tuple[Int[Array, "B"], Int[Array, "B"]],
        causal: bool,
    ) -> tuple[Float[Array, "B T H E"], Float[Array, "B H T"]]:
        """Output and log-sum-exp of the scaled scores, float32. lengths: of queries and of keys."""
        ...

    def backward(
        self, q: Array, k: Array, v: Array, lengths: tuple[Array, Array], causal: bool, out: Array, log_total: Array,
        pull: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """Gradients of q, k and v with weights exp(score - log_total) and output `out`."""
        ...


@partial(jax.tree_util.register_dataclass, data_fields=["trunk", "branches", "slots", "back"], meta_fields=["sizes"])
@dataclass(frozen=True)
class SlotRows:
    """Where the tokens of packed rows lie in slots, the same in all layers.

    trunk [B], branches [B, G]: tokens of each; slots [B, G, C]: index in the row of each slot's token (0 where there is
    none); back [B, S]: index among [P | G · C] slots of each of the row's tokens; sizes: P, G, C.
    """

    trunk: Int[Array, "B"]
    branches: Int[Array, "B G"]
    slots: Int[Array, "B G C"]
    back: Int[Array, "B S"]
    sizes: tuple[int, int, int]


def describe_rows(visibility: Visibility, reach: Reach) -> SlotRows:
    """For rows of one segment: a trunk, and behind it `reach.branches` branches or fewer, one after the other.

    reach.branches: a number.
    """
    segment, branch = visibility.segment, visibility.branch
    length = segment.shape[1]
    size, count, room = min(reach.trunk, length), reach.branches or 0, min(reach.branch, length)
    used = segment > 0
    trunk = (used & (branch == 0)).sum(1).astype(jnp.int32)
    numbers = jnp.arange(1, count + 1)
    branches = (used[:, None] & (branch[:, None] == numbers[:, None])).sum(-1).astype(jnp.int32)
    starts = trunk[:, None] + jnp.cumsum(branches, axis=1) - branches
    place = jnp.arange(room)
    slots = jnp.where(place < branches[..., None], starts[..., None] + place, 0)
    own = jnp.clip(branch - 1, 0)
    at = jnp.arange(length)[None]
    behind = size + own * room + at - jnp.take_along_axis(starts, own, axis=1)
    back = jnp.where(used, jnp.where(branch == 0, at, behind), 0)
    return SlotRows(trunk, branches, slots, back.astype(jnp.int32), (size, count, room))


def tree_attention(
    q: Float[Array, "B S H E"], k: Float[Array, "B S K E"], v: Float[Array, "B S K E"], rows: SlotRows,
    kernel: Kernel | None = None,
) -> Float[Array, "B S H E"]:  # fmt: skip
    """`attention.row_attention` of such rows; padding gives what another token has. kernel: cuDNN's by default."""
    size, count, room = rows.sizes
    batch, kernel = q.shape[0], kernel or CudnnKernel()
    of_trunk = tuple(x[:, :size] for x in (q, k, v))
    out: Any = _causal(*of_trunk, rows.trunk, kernel)
    if count:
        at = rows.slots.reshape(batch, count * room)
        of_branches = tuple(jnp.take_along_axis(x, at[..., None, None], axis=1) for x in (q, k, v))
        out = jnp.concatenate([out, _behind(of_trunk[1:], of_branches, rows.trunk, rows.branches, kernel)], axis=1)
    return jnp.take_along_axis(out, rows.back[..., None, None], axis=1)


def _there(lengths: Int[Array, "*B"], room: int) -> Bool[Array, "*B room"]:
    return jnp.arange(room) < lengths[..., None]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _causal(q: Array, k: Array, v: Array, lengths: Int[Array, "B"], kernel: Kernel) -> Array:
    """Each sequence within itself."""
    return kernel.forward(q, k, v, (lengths, lengths), True)[0]


def _causal_forward(q: Array, k: Array, v: Array, lengths: Array, kernel: Kernel) -> Any:
    out, log_total = (checkpoint_name(x, KEPT) for x in kernel.forward(q, k, v, (lengths, lengths), True))
    return out, (q, k, v, lengths, out, log_total)


def _causal_gradients(kernel: Kernel, kept: Any, pull: Array) -> tuple[Any, ...]:
    q, k, v, lengths, out, log_total = kept
    there = _there(lengths, q.shape[1])[..., None, None]
    found = kernel.backward(
        q, k, v, (lengths, lengths), True, out, log_total, jnp.where(there, pull, 0).astype(q.dtype)
    )
    return *(jnp.where(there, x, 0) for x in found), None


_causal.defvjp(_causal_forward, _causal_gradients)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _behind(of_trunk: Any, of_branches: Any, trunk: Array, branches: Int[Array, "B G"], kernel: Kernel) -> Array:
    """Branches, [B, G · C] slots: each sees the trunk's keys and values, and itself."""
    return _behind_forward(of_trunk, of_branches, trunk, branches, kernel)[0]


def _apart(x: Float[Array, "B N *A"], count: int) -> Array:
    """[B, G · C, …] -> [B · G, C, …]"""
    return x.reshape(x.shape[0] * count, -1, *x.shape[2:])


def _together(x: Array, count: int) -> Array:
    return x.reshape(x.shape[0] // count, -1, *x.shape[2:])


def _rows_together(x: Float[Array, "BG H C"], count: int) -> Float[Array, "B H N"]:
    """Log-sum-exps, branch by branch, as those of all branches' slots."""
    return x.reshape(-1, count, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape[0] // count, x.shape[1], -1)


def _rows_apart(x: Float[Array, "B H N"], count: int) -> Float[Array, "BG H C"]:
    batch, heads, slots = x.shape
    return x.reshape(batch, heads, count, -1).swapaxes(1, 2).reshape(batch * count, heads, slots // count)


def _behind_forward(of_trunk: Any, of_branches: Any, trunk: Array, branches: Array, kernel: Kernel) -> Any:
    q, count = of_branches[0], branches.shape[1]
    slots, own = jnp.full_like(trunk, q.shape[1]), branches.reshape(-1)
    there = _there(branches, q.shape[1] // count).reshape(q.shape[:2])
    trunk_k, trunk_v = of_trunk
    far, far_log = kernel.forward(q, trunk_k, trunk_v, (slots, trunk), False)
    near_q, near_k, near_v = (_apart(x, count) for x in of_branches)
    near, near_log = kernel.forward(near_q, near_k, near_v, (own, own), True)
    near = jnp.where(there[..., None, None], _together(near, count), 0)
    near_log = jnp.where(there[:, None], _rows_together(near_log, count), NEGATIVE)
    log_total = jnp.logaddexp(far_log, near_log)
    far_share, near_share = (jnp.exp(x - log_total).swapaxes(1, 2)[..., None] for x in (far_log, near_log))
    out = (far * far_share + near * near_share).astype(q.dtype)
    out, log_total = checkpoint_name(out, KEPT), checkpoint_name(log_total, KEPT)
    return out, (of_trunk, of_branches, trunk, branches, out, log_total)


def _behind_gradients(kernel: Kernel, kept: Any, pull: Array) -> tuple[Any, ...]:
    of_trunk, of_branches, trunk, branches, out, log_total = kept
    q, count = of_branches[0], branches.shape[1]
    slots, own = jnp.full_like(trunk, q.shape[1]), branches.reshape(-1)
    there = _there(branches, q.shape[1] // count).reshape(q.shape[:2])
    used = there[..., None, None]
    pull = jnp.where(used, pull, 0).astype(q.dtype)
    log_total = jnp.where(there[:, None], log_total, _FAR)
    trunk_k, trunk_v = of_trunk
    of_far = kernel.backward(q, trunk_k, trunk_v, (slots, trunk), False, out, log_total, pull)
    near_q, near_k, near_v, near_out, near_pull = (_apart(x, count) for x in (*of_branches, out, pull))
    near_log = _rows_apart(log_total, count)
    of_near = kernel.backward(near_q, near_k, near_v, (own, own), True, near_out, near_log, near_pull)
    near_q, near_k, near_v = (jnp.where(used, _together(x, count), 0) for x in of_near)
    of_keys, of_values = (jnp.where(_there(trunk, x.shape[1])[..., None, None], x, 0) for x in of_far[1:])
    return (of_keys, of_values), (near_q + jnp.where(used, of_far[0], 0), near_k, near_v), None, None


_behind.defvjp(_behind_forward, _behind_gradients)


@dataclass(frozen=True)
class PlainKernel:
    """The reference of the kernels: all scores at once, in float32."""

    def _weights(self, q: Array, k: Array, lengths: tuple[Array, Array], causal: bool) -> Float[Array, "B K R T S"]:
        scores = jnp.einsum("bkrte,bske->bkrts", heads_first(q, k.shape[2]), k, preferred_element_type=jnp.float32)
        at, key_at = jnp.arange(q.shape[1]), jnp.arange(k.shape[1])
        seen = (key_at < lengths[1][:, None])[:, None] & (at < lengths[0][:, None])[..., None]
        if causal:
            seen &= key_at <= at[:, None]
        return jnp.where(seen[:, None, None], scores * q.shape[-1] ** -0.5, NEGATIVE)

    def forward(self, q: Array, k: Array, v: Array, lengths: tuple[Array, Array], causal: bool) -> tuple[Array, Array]:
        scores = self._weights(q, k, lengths, causal)
        log_total = jax.nn.logsumexp(scores, axis=-1)
        out = jnp.einsum("bkrts,bske->btkre", jnp.exp(scores - log_total[..., None]), v)
        return out.reshape(q.shape).astype(q.dtype), log_total.reshape(q.shape[0], q.shape[2], -1)

    def backward(
        self, q: Array, k: Array, v: Array, lengths: tuple[Array, Array], causal: bool, out: Array, log_total: Array,
        pull: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        by_head = log_total.reshape(*heads_first(q, k.shape[2]).shape[:3], -1)
        weights = jnp.exp(self._weights(q, k, lengths, causal) - by_head[..., None])
        pulls = heads_first(pull, k.shape[2])
        mean = (pulls * heads_first(out, k.shape[2])).sum(-1, keepdims=True)
        of_v = jnp.einsum("bkrts,bkrte->bske", weights, pulls)
        of_scores = weights * (jnp.einsum("bkrte,bske->bkrts", pulls, v) - mean) * q.shape[-1] ** -0.5
        of_q = jnp.einsum("bkrts,bske->btkre", of_scores, k).reshape(q.shape)
        of_k = jnp.einsum("bkrts,bkrte->bske", of_scores, heads_first(q, k.shape[2]))
        return of_q.astype(q.dtype), of_k.astype(k.dtype), of_v.astype(v.dtype)


@dataclass(frozen=True)
class CudnnKernel:
    """cuDNN's flash attention (bfloat16 or float16). JAX has its backward pass with a given log-sum-exp as a primitive
    only, so this reads a private module, which a test on a GPU holds to the plain form.
    """

    def _arguments(self, q: Array, lengths: tuple[Array, Array], causal: bool) -> tuple[list[Array], dict[str, Any]]:
        from jax._src.cudnn import fused_attention_stablehlo as cudnn

        none = jnp.zeros(0, q.dtype)
        mask = cudnn.MaskType.PADDING_CAUSAL if causal else cudnn.MaskType.PADDING
        variable = [none, *(length.astype(jnp.int32) for length in lengths), none, none, none, none]
        options = {
            "scale": q.shape[-1] ** -0.5, "seed": 0, "dropout_rate": 0.0, "variadic_args": (False, False),
            "mask_type": mask, "layout": cudnn.AttentionLayout.BTNH.value, "sliding_window_length": None,
        }  # fmt: skip
        return variable, options

    def forward(self, q: Array, k: Array, v: Array, lengths: tuple[Array, Array], causal: bool) -> tuple[Array, Array]:
        from jax._src.cudnn import fused_attention_stablehlo as cudnn

        variable, options = self._arguments(q, lengths, causal)
        out, log_total = cudnn._dot_product_attention_fwd_p_wrapper.bind(
            q, k, v, *variable, **options, is_training=True
        )
        return out, log_total

    def backward(
        self, q: Array, k: Array, v: Array, lengths: tuple[Array, Array], causal: bool, out: Array, log_total: Array,
        pull: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        from jax._src.cudnn import fused_attention_stablehlo as cudnn

        variable, options = self._arguments(q, lengths, causal)
        of_q, of_k, of_v = cudnn._dot_product_attention_bwd_p_wrapper.bind(
            q, k, v, *variable, log_total, out, pull, **options
        )
        return of_q, of_k, of_v
