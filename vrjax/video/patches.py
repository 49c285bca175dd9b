"""Frames to the patches that the vision tower reads, as uint8. The device normalises them with CLIP_MEAN and CLIP_STD.

Order of patches (merge blocks): t, then blocks of merge_size² patches row by row, then within a block row by row.
Order within a patch: (channel, frame of the temporal patch, row, column). Both are those of transformers'
`Qwen2VLVideoProcessor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float32, UInt8

from vrjax.errors import InputError
from vrjax.video.resizing import Resizer

# OpenAI CLIP's normalisation, on values scaled to 0–1.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


def resize_frames(
    frames: UInt8[np.ndarray, "n H W 3"], height: int, width: int, threads: int | None = None
) -> UInt8[np.ndarray, "n h w 3"]:
    """Resize to (height, width) pixels, bicubic and antialiased, within one grey level of torch's uint8 result.

    `threads` None: one for each core that this process may use.
    """
    _check_frames(frames)
    if frames.shape[1:3] == (height, width):
        return frames
    out = np.empty((len(frames), height, width, 3), np.uint8)

    def write(resizer: Resizer, number: int) -> None:
        for top, band in resizer.bands(frames[number]):
            np.copyto(out[number, top : top + band.shape[1]], band.transpose(1, 2, 0), casting="unsafe")

    _each_frame(frames, (height, width), write, threads)
    return out


def to_patches(
    frames: UInt8[np.ndarray, "n h w 3"],
    patch_size: int = 14,
    temporal_patch_size: int = 2,
    merge_size: int = 2,
) -> UInt8[np.ndarray, "N D"]:
    """Cut frames into N = ⌈n/temporal_patch_size⌉·h/patch_size·w/patch_size patches of D = 3·temporal·patch² values.

    Where n is no multiple of temporal_patch_size the last frame is repeated. Raises InputError where a side is no
    multiple of patch_size·merge_size.
    """
    _check_frames(frames)
    count, height, width, _ = frames.shape
    view, patches = _empty_patches(count, height, width, patch_size, temporal_patch_size, merge_size)
    blocks = (height // (patch_size * merge_size), merge_size, patch_size)
    columns = (width // (patch_size * merge_size), merge_size, patch_size)
    cut = frames.reshape(count, *blocks, *columns, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    for number in range(-(-count // temporal_patch_size) * temporal_patch_size):
        source = cut[min(number, count - 1)]
        np.copyto(view[number // temporal_patch_size, :, :, :, :, :, number % temporal_patch_size], source)
    return patches


def frames_to_patches(
    frames: UInt8[np.ndarray, "n H W 3"],
    height: int,
    width: int,
    patch_size: int = 14,
    temporal_patch_size: int = 2,
    merge_size: int = 2,
    threads: int | None = None,
) -> UInt8[np.ndarray, "N D"]:
    """`to_patches(resize_frames(frames, height, width))` in one pass: bands go to their patches while in cache."""
    _check_frames(frames)
    side = patch_size * merge_size
    if frames.shape[1:3] == (height, width):
        return to_patches(frames, patch_size, temporal_patch_size, merge_size)
    if side != 28:  # a band holds whole rows of merge blocks only for this side
        resized = resize_frames(frames, height, width, threads)
        return to_patches(resized, patch_size, temporal_patch_size, merge_size)
    count = len(frames)
    view, patches = _empty_patches(count, height, width, patch_size, temporal_patch_size, merge_size)

    def write(resizer: Resizer, number: int) -> None:
        for top, band in resizer.bands(frames[number]):
            first, rows = top // side, band.shape[1] // side
            cut = band.reshape(3, rows, merge_size, patch_size, width // side, merge_size, patch_size)
            target = view[number // temporal_patch_size, first : first + rows, :, :, :, :, number % temporal_patch_size]
            np.copyto(target, cut.transpose(1, 4, 2, 5, 0, 3, 6), casting="unsafe")

    _each_frame(frames, (height, width), write, threads)
    for number in range(count, len(view) * temporal_patch_size):
        last = (count - 1) % temporal_patch_size
        view[-1, :, :, :, :, :, number % temporal_patch_size] = view[-1, :, :, :, :, :, last]
    return patches


def normalise(patches: UInt8[np.ndarray, "N D"]) -> Float32[np.ndarray, "N D"]:
    """What the device computes from uint8 patches, on the host: (value/255 − mean) / std for each channel."""
    scale = np.float32(1 / 255) / np.asarray(CLIP_STD, np.float32)
    shift = -np.asarray(CLIP_MEAN, np.float32) / np.asarray(CLIP_STD, np.float32)
    by_channel = patches.reshape(len(patches), 3, -1)
    out = np.multiply(by_channel, scale[:, None], dtype=np.float32)
    out += shift[:, None]
    return out.reshape(patches.shape)


def _check_frames(frames: np.ndarray) -> None:
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8 or 0 in frames.shape:
        raise InputError(f"Frames must be uint8 [n, height, width, 3], not {frames.dtype} {list(frames.shape)}.")


def _empty_patches(
    count: int, height: int, width: int, patch_size: int, temporal: int, merge: int
) -> tuple[np.ndarray, np.ndarray]:
    """(view [t, h/merge, w/merge, merge, merge, 3, temporal, patch, patch], the same memory as [N, D])."""
    side = patch_size * merge
    if height % side or width % side:
        raise InputError(f"Frames of {width}x{height} pixels do not divide into blocks of {side}. Use smart_resize.")
    shape = (-(-count // temporal), height // side, width // side, merge, merge, 3, temporal, patch_size, patch_size)
    view = np.empty(shape, np.uint8)
    return view, view.reshape(-1, 3 * temporal * patch_size**2)


def _each_frame(
    frames: np.ndarray, target: tuple[int, int], write: Callable[[Resizer, int], None], threads: int | None
) -> None:
    """Call write(resizer, number) for every frame, in threads that each own a resizer (NumPy and BLAS drop the GIL)."""
    source = (frames.shape[1], frames.shape[2])
    # macOS has no affinity to ask for.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(threads or cores, len(frames))

    def work(first: int) -> None:
        resizer = Resizer(source, target)
        for number in range(first, len(frames), threads):
            write(resizer, number)

    if threads == 1:
        work(0)
        return
    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(work, range(threads)))
