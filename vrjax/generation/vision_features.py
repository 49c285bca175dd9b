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

IMAGES_AT_ONCE = 32


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
        """Features of each image or video, merged tokens in prompt order. Each is computed once and cached by key.

        A plan's images run together, all of them again where one has been dropped, so that their bits depend on nothing
        else that is asked for.
        """
        missing = {item.together or item.key for item in items if item.key not in self._kept}
        held: dict[str, Array] = {}
        batches: dict[str, dict[str, Vision]] = {}
        for item in items:
            name = item.together or item.key
            if name in missing:
                batches.setdefault(name, {})[item.key] = item
            else:
                held[item.key] = self._kept[item.key]
        for batch in batches.values():
            held |= self._encode_together(list(batch.values()))
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

    def _encode_together(self, items: Sequence[Vision]) -> dict[str, Array]:
        """Features by key. Images go up to `IMAGES_AT_ONCE` at a time; a video goes alone."""
        found: dict[str, Array] = {}
        for part in batches(items):
            grids = [item.grid for item in part]
            sizes = padded_shape(grids, self.config, self.frame_multiple, self.patch_multiple)
            inputs, places = vision_inputs([item.patches for item in part], grids, self.config, *sizes)
            self.padding.count("vision", sum(len(item.patches) for item in part), sizes[0] * sizes[1])
            features = self.run(inputs)
            for item, place in zip(part, places, strict=True):
                found[item.key] = features[jnp.asarray(place)]
        return found


def batches(items: Sequence[Any]) -> list[Sequence[Any]]:
    """What runs together of a plan's images (or of their grids)."""
    return [items[start : start + IMAGES_AT_ONCE] for start in range(0, len(items), IMAGES_AT_ONCE)]


def padded_shape(grids: Sequence[Grid], config: Any, frame_multiple: int, patch_multiple: int) -> tuple[int, int, int]:
    """Frames, patches and windows of a frame that images, or a video, of these grids are padded to together."""
    patches, windows = map(max, zip(*(frame_shape(grid, config) for grid in grids), strict=True))
    if not all(has_whole_windows(grid, config) for grid in grids):
        patches = bucket(patches, max(patch_multiple, config.merge_size**2))
        windows = bucket(windows, 1, fineness=4)
    return bucket(sum(grid[0] for grid in grids), frame_multiple), patches, windows


def program_key(grids: Sequence[Grid], config: Any, frame_multiple: int, patch_multiple: int) -> tuple:
    """The key of the tower's program for `grids` (`VisionInputs.shape_key`), known without their pixels."""
    frames, patches, windows = padded_shape(grids, config, frame_multiple, patch_multiple)
    places = windows * window_slots(config)
    whole = all(has_whole_windows(grid, config) for grid in grids) and patches == places
    return frames, patches, None if whole else places
