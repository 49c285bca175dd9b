"""Vision features: each image or video is encoded once, kept for when it comes again, and spliced into prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vrjax.generation.buckets import Padding, bucket
from vrjax.generation.prompts import Prompt, Vision
from vrjax.models.qwen2_5_vl import vision_inputs
from vrjax.models.qwen2_5_vl.layout import Grid, frame_shape, has_whole_windows, window_slots


class VisionFeatures:
    """Features of one model's vision tower, `config` (None: it has none), at most `cache_bytes` of them kept.

    run: the tower on prepared inputs (`vision_inputs`). *_multiple: smallest steps of the buckets. The least recently
    used features are dropped first.
    """

    def __init__(
        self,
        config: Any,
        run: Callable[[Any], Array],
        padding: Padding,
        *,
        cache_bytes: int,
        frame_multiple: int,
        patch_multiple: int,
    ) -> None:
        self.config, self.run, self.padding = config, run, padding
        self.cache_bytes, self.frame_multiple, self.patch_multiple = cache_bytes, frame_multiple, patch_multiple
        self._kept: OrderedDict[str, Array] = OrderedDict()

    def encode(self, items: Sequence[Vision]) -> list[Float[Array, "M D"]]:
        """Features of each image or video, merged tokens in prompt order. Each is computed once and cached by key."""
        fresh = {item.key: item for item in items if item.key not in self._kept}
        held: dict[str, Array] = {item.key: self._kept[item.key] for item in items if item.key not in fresh}
        for item in fresh.values():
            held[item.key] = self._encode_one(item)
        for key, value in held.items():
            self._kept[key] = value
            self._kept.move_to_end(key)
        total = sum(value.nbytes for value in self._kept.values())
        while total > self.cache_bytes and len(self._kept) > 1:
            total -= self._kept.popitem(last=False)[1].nbytes
        return [held[item.key] for item in items]

    def forget(self) -> None:
        """Drop all that is kept."""
        self._kept.clear()

    def splice(self, prompts: Sequence[Prompt], length: int) -> tuple[Array | None, Int[np.ndarray, "B S"] | None]:
        """Vision features of all prompts, each video's once, and the one in place of each of a row's `length` tokens.

        None for both where there is no vision.
        """
        unique: OrderedDict[str, Vision] = OrderedDict()
        for prompt in prompts:
            for item in prompt.vision:
                unique.setdefault(item.key, item)
        if not unique:
            return None, None
        features, offsets, total = self.encode(list(unique.values())), {}, 0
        for key, value in zip(unique, features, strict=True):
            offsets[key] = total
            total += value.shape[0]
        index = np.full((len(prompts), length), -1, np.int32)
        unit = self.config.merge_size**2
        for row, prompt in enumerate(prompts):
            counts = [item.grid[0] * item.grid[1] * item.grid[2] // unit for item in prompt.vision]
            places = [offsets[item.key] + np.arange(count) for item, count in zip(prompt.vision, counts, strict=True)]
            index[row, : len(prompt)] = prompt.feature_index(places)
        # Room for as many as there are tokens: the program's shape then depends on rows and length alone.
        return jnp.pad(jnp.concatenate(features), ((0, len(prompts) * length - total), (0, 0))), index

    def _encode_one(self, item: Vision) -> Array:
        frames, patches, windows = padded_shape(item.grid, self.config, self.frame_multiple, self.patch_multiple)
        inputs, places = vision_inputs([item.patches], [item.grid], self.config, frames, patches, windows)
        self.padding.count("vision", len(item.patches), frames * patches)
        return self.run(inputs)[jnp.asarray(places[0])]


def padded_shape(grid: Grid, config: Any, frame_multiple: int, patch_multiple: int) -> tuple[int, int, int]:
    """Frames, patches and windows of a frame that an image or video of `grid` is padded to, one at a time."""
    patches, windows = frame_shape(grid, config)
    if not has_whole_windows(grid, config):
        patches = bucket(patches, max(patch_multiple, config.merge_size**2))
        windows = bucket(windows, 1, fineness=4)
    return bucket(grid[0], frame_multiple), patches, windows


def program_key(grid: Grid, config: Any, frame_multiple: int, patch_multiple: int) -> tuple:
    """The key of the tower's program for `grid` (`VisionInputs.shape_key`), known without its pixels."""
    frames, patches, windows = padded_shape(grid, config, frame_multiple, patch_multiple)
    places = windows * window_slots(config)
    whole = has_whole_windows(grid, config) and patches == places
    return frames, patches, None if whole else places
