"""Which programs an engine may compile for requests of known lengths, grids and number.

They are what `Engine.generate` asks its ledger for, by name and key:

    vision    one for each padded grid, or number of images of one
    prefill   prompts at a time x padded length of the longest
    start     the same, x samples of a prompt
    decode    the same, and again for each narrower width that `columns_to_keep` may leave
    compact   from one width to another

What is drawn decides which of the narrower widths come up; how many there can be, it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vrjax.generation.buckets import bucket
from vrjax.generation.requests import EngineOptions
from vrjax.generation.sampling import SamplingOptions
from vrjax.generation.vision_features import batches, program_key
from vrjax.models.qwen2_5_vl.layout import Grid

Program = tuple[str, Any]


def engine_programs(
    options: EngineOptions,
    vision: Any,
    *,
    grids: Iterable[tuple[Grid, ...]],
    lengths: Iterable[int],
    requests: int,
    samples: int,
    sampling: SamplingOptions,
) -> set[Program]:
    """vision: configuration of the tower; grids: of each plan, its video's or all of its images'; lengths: of the
    prompts, in tokens; requests: most prompts of one call of `generate`, with `samples` samples each. For engines that
    keep no prefixes.
    """
    found: set[Program] = {("unstack", None)}
    for together in {tuple(part) for plan in set(grids) for part in batches(plan)}:
        found.add(("vision", program_key(together, vision, options.frame_multiple, options.patch_multiple)))
    most, capacity, kind = max(1, options.batch_rows // samples), bucket(sampling.max_tokens, 16), sampling.kind
    padded = {bucket(length, options.length_multiple) for length in lengths}
    for rows in {min(most, bucket(count, 1)) for count in range(1, requests + 1)}:
        for length in padded:
            rest = (length, capacity, kind)
            found |= {("prefill", (rows, length, True)), ("start", (rows, samples, *rest))}
            widths = [samples]
            if sampling.max_tokens > options.chunk:  # between two chunks finished samples are left behind
                widths += narrower(samples)
            found |= {("decode", (rows, width, *rest)) for width in widths}
            pairs = [(wide, narrow) for wide in widths for narrow in widths if narrow <= wide // 2]
            found |= {("compact", (rows, *pair, *rest)) for pair in pairs}
    return found


def narrower(width: int) -> list[int]:
    """Powers of two up to half of `width`: what `columns_to_keep` may leave of so many columns."""
    return [1 << power for power in range(width.bit_length()) if 1 << power <= width // 2]
