"""Groups to rows: a prompt once, its G responses behind it as branches, and what the loss needs of each token.

    row        prompt (vision, question)  | response 1 <|im_end|> | response 2 <|im_end|> | … | padding
    predicted                           x   x x x x …               (the first of every branch from the prompt's last)

Rows grow as P + G·C, not G·(P + C). Sizes are rounded up so that few programs serve a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vrjax.models.attention import Reach
from vrjax.models.qwen2_5_vl import VisionInputs
from vrjax.training.buckets import RowSize
from vrjax.training.policy.groups import Group
from vrjax.training.policy_loss import Counted, PolicyLossConfig, PolicyTargets, token_weights
from vrjax.training.rows import PackedText, empty_text, pack_text, pad_text

# Shares of the longest possible responses that rows are padded to: few programs, whatever is sampled.
LEVELS = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1)
MULTIPLE = 16


@dataclass(frozen=True, order=True)
class GroupSize:
    """Size of a row: tokens, predicted tokens, longest prompt, longest response, vision features."""

    length: int
    targets: int
    trunk: int
    branch: int
    features: int

    def joined(self, other: GroupSize) -> GroupSize:
        pairs = zip(self.as_tuple(), other.as_tuple(), strict=True)
        return GroupSize(*(max(pair) for pair in pairs))

    def as_tuple(self) -> tuple[int, int, int, int, int]:
        return self.length, self.targets, self.trunk, self.branch, self.features

    def padded(self, bucket: RowSize, max_tokens: int, responses: int, merge: int) -> GroupSize:
        """The size that rows of this one are padded to: one of LEVELS for each bucket of prompts.

        A pure function of the batch, so that a resumed run computes in the same shapes. bucket: of the prompts, each
        with room for one response of `max_tokens`; responses: of a row; merge: patches of a vision feature.
        """
        most = responses * max_tokens
        targets = next(up for up in (_up(most * level) for level in LEVELS) if up >= self.targets or up >= most)
        trunk = _up(bucket.length - max_tokens)
        features = bucket.frames * bucket.frame_patches // merge if self.features else 0
        size = GroupSize(trunk + targets, targets, trunk, _up(max_tokens), features)
        return size.joined(self)  # never smaller than what is there

    def key(self, rows: int, bucket: RowSize | None) -> tuple:
        """Tells apart the shapes of `rows` rows, for the ledger. bucket: where the tower is trained."""
        return (*self.as_tuple(), rows, bucket)

    @property
    def reach(self) -> Reach:
        return Reach(self.trunk, self.branch)

    @property
    def text(self) -> RowSize:
        return RowSize(self.length, self.targets, 1, 1, 1)


def _up(value: float) -> int:
    return -(-math.ceil(value) // MULTIPLE) * MULTIPLE


NO_ROW = GroupSize(1, 1, 1, 1, 0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GroupRows:
    """B rows as the programs read them.

    features: [B, M, D] where the tower is frozen (computed once, by the engine); vision: its inputs where it is
    trained; both None for text alone. place: of each predicted token within its response.
    """

    text: PackedText
    place: Int[np.ndarray, "B R"]
    features: Float[Array, "B M D"] | None
    vision: VisionInputs | None


@dataclass(frozen=True)
class RowPart:
    """One row before padding: responses `first` to `last` of a group."""

    group: Group
    first: int
    last: int

    @property
    def tokens(self) -> list[list[int]]:
        return [sample.tokens.tolist() for sample in self.group.samples[self.first : self.last]]

    def size(self, merge: int) -> GroupSize:
        prompt = self.group.item.prompt
        assert prompt is not None
        lengths = self.group.lengths[self.first : self.last]
        features = sum(item.grid[0] * item.grid[1] * item.grid[2] // merge for item in prompt.vision)
        return GroupSize(len(prompt) + sum(lengths), sum(lengths), len(prompt), max(lengths), features)


def split_groups(groups: Sequence[Group], parts: int) -> list[RowPart]:
    """Rows of `groups`, each group in `parts` rows that repeat its prompt."""
    rows = []
    for group in groups:
        count = len(group.samples) // parts
        rows += [RowPart(group, start, start + count) for start in range(0, count * parts, count)]
    return rows


def pack_part(part: RowPart, places: Sequence[np.ndarray], size: GroupSize, pad_id: int) -> PackedText:
    """The text side of one row; places: index of each vision's features in the row."""
    prompt = part.group.item.prompt
    assert prompt is not None
    tokens = part.tokens
    return pad_text(pack_text([prompt] * len(tokens), tokens, places), size.text, pad_id)


def empty_part(size: GroupSize, pad_id: int) -> PackedText:
    return empty_text(size.text, pad_id)


def feature_places(part: RowPart, merge: int) -> list[np.ndarray]:
    """Features of a prompt's images and videos lie one after the other."""
    prompt = part.group.item.prompt
    assert prompt is not None
    counts = [item.grid[0] * item.grid[1] * item.grid[2] // merge for item in prompt.vision]
    starts = np.cumsum([0, *counts])
    return [np.arange(a, a + n, dtype=np.int32) for a, n in zip(starts, counts, strict=False)]


@dataclass(frozen=True)
class Judged:
    """What the loss makes of each response of a batch, [prompts][group]."""

    advantages: Sequence[Sequence[float]]
    weights: Sequence[Sequence[float]]
    kl_weights: Sequence[Sequence[float]]


def judge(
    lengths: Sequence[Sequence[int]],
    counted: Sequence[Sequence[bool]],
    advantages: Float[np.ndarray, "B G"],
    total: Counted,
    config: PolicyLossConfig,
) -> Judged:
    """Weights of a process's responses; `counted` are those that take part in the loss, `total` over all processes."""
    weights = token_weights(lengths, counted, total, config)
    kl = weights
    if not config.kl_on_equal_groups:
        kl = [[w if any(a) else 0.0 for w in row] for row, a in zip(weights, advantages.tolist(), strict=True)]
    return Judged(advantages.tolist(), weights, kl)


def pack_targets(
    parts: Sequence[RowPart | None], places: Sequence[int], judged: Judged, size: GroupSize
) -> PolicyTargets:
    """Advantages and weights of every predicted token, [B, R]; places: number of each row's group in `judged`."""
    shape = (len(parts), size.targets)
    arrays = {name: np.zeros(shape, np.float32) for name in ("advantages", "weights", "kl_weights")}
    response = np.zeros(shape, np.int32)
    for row, (part, place) in enumerate(zip(parts, places, strict=True)):
        if part is None:
            continue
        lengths = part.group.lengths[part.first : part.last]
        count = sum(lengths)
        for name, array in arrays.items():
            values = getattr(judged, name)[place][part.first : part.last]
            array[row, :count] = np.repeat(np.asarray(values, np.float32), lengths)
        response[row, :count] = np.repeat(np.arange(len(lengths)), lengths)
    return PolicyTargets(arrays["advantages"], arrays["weights"], arrays["kl_weights"], response)


def token_places(parts: Sequence[RowPart | None], size: GroupSize) -> Int[np.ndarray, "B R"]:
    """Place of every predicted token within its response."""
    out = np.zeros((len(parts), size.targets), np.int32)
    for row, part in enumerate(parts):
        if part is not None:
            places = np.concatenate([np.arange(n) for n in part.group.lengths[part.first : part.last]])
            out[row, : len(places)] = places
    return out


def recorded(parts: Sequence[RowPart | None], size: GroupSize, field: str) -> Float[np.ndarray, "B R"]:
    """Log-probs that the sampler recorded (`raw_log_probs`, `processed_log_probs`), in the rows' places."""
    out = np.zeros((len(parts), size.targets), np.float32)
    for row, part in enumerate(parts):
        if part is not None:
            values = np.concatenate([getattr(s, field) for s in part.group.samples[part.first : part.last]])
            out[row, : len(values)] = values
    return out


def stack_features(
    features: Sequence[Sequence[Float[Array, "M D"]]], size: GroupSize, width: int
) -> Float[Array, "B M D"] | None:
    """Features of B rows, each row's one after the other, padded with zeros."""
    if not size.features:
        return None
    rows = []
    for row in features:
        joined = jnp.concatenate(row) if row else jnp.zeros((0, width))
        rows.append(jnp.pad(joined, ((0, size.features - joined.shape[0]), (0, 0))))
    return jnp.stack(rows)
