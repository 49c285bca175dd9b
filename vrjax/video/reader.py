"""Frames and patches of a plan, by default decoded in a process that is killed at a time limit.

Pass a `ReaderPool` to keep processes between calls; without one, a process is started for the call and ended with it.
`isolated=False` decodes in this process, for callers that can themselves be killed, such as data-loading workers.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from vrjax.errors import VideoError
from vrjax.video.clock import draw_clock
from vrjax.video.decoding import check_file, decode_frames, probe_file
from vrjax.video.frame_plan import FramePlan, VideoInfo
from vrjax.video.patches import frames_to_patches, resize_frames, to_patches
from vrjax.video.pool import ReaderPool

CHUNK_BYTES = 128 * 2**20  # decoded frames held at once, at source size


def probe(
    path: str | Path, *, time_limit_s: float = 60.0, isolated: bool = True, pool: ReaderPool | None = None
) -> VideoInfo:
    """Read what a file holds. Raises VideoError with its kind; `hang` after `time_limit_s` seconds."""
    check_file(path)
    if pool is None and not isolated:
        return probe_file(path)
    reply, timestamps = _ask(pool, time_limit_s, "probe", str(path), {})
    fields: dict[str, Any] = {**reply, "notes": tuple(reply["notes"])}
    return VideoInfo(**fields, timestamps=timestamps)


def read_frames(
    plan: FramePlan,
    *,
    resized: bool = True,
    time_limit_s: float = 60.0,
    isolated: bool = True,
    pool: ReaderPool | None = None,
) -> UInt8[np.ndarray, "n H W 3"]:
    """Decode the plan's frames, at the plan's size or (`resized=False`) the file's; the clock is drawn where asked.

    Raises VideoError; `hang` after `time_limit_s` seconds, `changed` where the file is not the one that was planned.
    """
    check_file(plan.path)
    if pool is None and not isolated:
        return frames_here(plan, resized)
    return _ask(pool, time_limit_s, "frames", plan, {"resized": resized})[1]


def load_patches(
    plan: FramePlan, *, time_limit_s: float = 60.0, isolated: bool = True, pool: ReaderPool | None = None
) -> UInt8[np.ndarray, "N D"]:
    """Decode, resize and cut the plan's frames: N = plan.patch_count rows of D = 3·temporal_patch_size·patch_size².

    With `frames_as_images` each frame fills its own temporal patch, repeated. Raises as `read_frames` does.
    """
    check_file(plan.path)
    if pool is None and not isolated:
        return patches_here(plan)
    return _ask(pool, time_limit_s, "patches", plan, {})[1]


def frames_here(plan: FramePlan, resized: bool = True, threads: int = 1) -> UInt8[np.ndarray, "n H W 3"]:
    """`read_frames` in this process."""
    height, width = (plan.height, plan.width) if resized else (plan.source_height, plan.source_width)
    out = np.empty((len(plan.indices), height, width, 3), np.uint8)
    for first, frames in _chunks(plan, threads):
        part = resize_frames(frames, height, width, threads)
        if plan.options.draw_clock:
            part = draw_clock(part, plan.timestamps[first : first + len(part)])
        out[first : first + len(part)] = part
    return out


def patches_here(plan: FramePlan, threads: int = 1) -> UInt8[np.ndarray, "N D"]:
    """`load_patches` in this process."""
    options = plan.options
    sizes = (options.patch_size, options.temporal_patch_size, options.merge_size)
    out = np.empty((plan.patch_count, 3 * options.temporal_patch_size * options.patch_size**2), np.uint8)
    row = 0
    for first, frames in _chunks(plan, threads):
        if options.draw_clock:
            frames = resize_frames(frames, plan.height, plan.width, threads)
            frames = draw_clock(frames, plan.timestamps[first : first + len(frames)])
        if options.frames_as_images:
            frames = np.repeat(frames, options.temporal_patch_size, axis=0)
        if options.draw_clock:
            part = to_patches(frames, *sizes)
        else:
            part = frames_to_patches(frames, plan.height, plan.width, *sizes, threads=threads)
        out[row : row + len(part)] = part
        row += len(part)
    return out


def _chunks(plan: FramePlan, threads: int) -> Iterator[tuple[int, UInt8[np.ndarray, "n H W 3"]]]:
    """Yield (position of the first frame, frames) in whole temporal patches, so that memory stays bounded."""
    status = os.stat(plan.path)
    if plan.file_size and (status.st_size, status.st_mtime_ns) != (plan.file_size, plan.file_mtime_ns):
        raise VideoError(f"{plan.path}: changed since it was planned. Plan it again.", "changed")
    temporal = plan.options.temporal_patch_size
    frame_bytes = 3 * plan.source_height * plan.source_width
    size = max(1, CHUNK_BYTES // (frame_bytes * temporal)) * temporal
    held: list[np.ndarray] = []
    first = 0
    for frame in decode_frames(plan.path, plan.indices, plan.codec, plan.total_frames, threads):
        if frame.shape[:2] != (plan.source_height, plan.source_width):
            raise VideoError(
                f"{plan.path}: frame {plan.indices[first + len(held)]} is {frame.shape[1]}x{frame.shape[0]}, "
                f"the file says {plan.source_width}x{plan.source_height}. Re-encode it.",
                "size_changes",
            )
        held.append(frame)
        if len(held) == size:
            yield first, np.stack(held)
            first += size
            held = []
    if held:
        yield first, np.stack(held)


def _ask(
    pool: ReaderPool | None, time_limit_s: float, task: str, subject: Any, options: dict
) -> tuple[dict, np.ndarray]:
    if pool is not None:
        return pool.run(task, subject, options)
    with ReaderPool(workers=1, time_limit_s=time_limit_s) as own:
        return own.run(task, subject, options)


def describe(info: VideoInfo) -> dict[str, Any]:
    """A VideoInfo without its timestamps, for JSON."""
    fields = {field.name: getattr(info, field.name) for field in dataclasses.fields(info) if field.name != "timestamps"}
    return dict(fields, notes=list(info.notes))
