"""The FramePlan: which frames of a file, at which true seconds, at what size. Made once; everything else follows it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from vrjax.errors import VideoError
from vrjax.video.sampling import SamplingError, clip_range, frame_count, frame_indices, smart_resize

if TYPE_CHECKING:
    from pathlib import Path

    from vrjax.video.pool import ReaderPool

# qwen-vl-utils' VIDEO_TOTAL_PIXELS: 90% of a 128,000 token context, at 28x28 pixels a token.
VIDEO_TOTAL_PIXELS = int(128_000 * 28 * 28 * 0.9)


@dataclasses.dataclass(frozen=True)
class VideoInfo:
    """What a file holds. `timestamps` [total_frames] are true presentation times in seconds, sorted, the first is 0.

    `fps` is frames per second on average, `duration` seconds to the end of the last frame. `notes` names what had to be
    derived because the container lacks it or contradicts its own packets. `announced_frames` is the container's own
    count, 0 where it has none. Size and modification time identify the file's content.
    """

    path: str
    total_frames: int
    fps: float
    width: int
    height: int
    duration: float
    timestamps: np.ndarray
    codec: str
    notes: tuple[str, ...] = ()
    announced_frames: int = 0
    file_size: int = 0
    file_mtime_ns: int = 0


@dataclasses.dataclass(frozen=True)
class FrameOptions:
    """How to sample and size frames. Pixels are per frame; `start` and `end` are seconds from the first frame.

    `frames`, where given, takes the place of `fps`. `total_pixels` is the budget of all frames of a native video
    (None: no such budget). `frames_as_images` gives each frame as a picture of its own; `draw_clock` draws its time.
    """

    fps: float | None = 2.0
    frames: int | None = None
    min_frames: int = 4
    max_frames: int = 768
    min_pixels: int = 128 * 28 * 28
    max_pixels: int = 768 * 28 * 28
    total_pixels: int | None = VIDEO_TOTAL_PIXELS
    start: float | None = None
    end: float | None = None
    frames_as_images: bool = False
    draw_clock: bool = False
    patch_size: int = 14
    temporal_patch_size: int = 2
    merge_size: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.min_pixels <= self.max_pixels:
            raise SamplingError(f"min_pixels {self.min_pixels} and max_pixels {self.max_pixels} leave no size between.")
        if self.total_pixels is not None and self.total_pixels < 1:
            raise SamplingError(f"total_pixels is {self.total_pixels}. Give a number above 0, or None.")
        if min(self.patch_size, self.temporal_patch_size, self.merge_size) < 1:
            raise SamplingError("patch_size, temporal_patch_size and merge_size must be 1 or more.")


@dataclasses.dataclass(frozen=True)
class FramePlan:
    """Frames of one file, chosen. Immutable; `hash` names it in caches and logs.

    - `indices`, `timestamps`: frame numbers and their true presentation seconds, relative to the file's first frame.
    - `height`, `width`: pixels after resizing; `source_height`, `source_width`: pixels in the file.
    - `grid`: (t, h, w) in patches: of the native video, or of one frame (t = 1) for `frames_as_images`; see `grids`.
    - `sample_fps`: chosen frames per second by the released formula, count / total · fps, with the clip's total.
    - `notes`: named substitutions: `frames_reduced` (fewer frames there than asked), `frames_rounded` (an odd number
      asked), `frame_repeated` (one-frame clip), `frame_padded` (last frame repeated to fill a temporal patch),
      `clip_start_clamped`, `clip_end_clamped`, and those of VideoInfo.
    """

    path: str
    options: FrameOptions
    indices: tuple[int, ...]
    timestamps: tuple[float, ...]
    height: int
    width: int
    source_height: int
    source_width: int
    grid: tuple[int, int, int]
    sample_fps: float
    total_frames: int
    codec: str
    notes: tuple[str, ...] = ()
    file_size: int = 0
    file_mtime_ns: int = 0

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """One grid for a native video, one per frame for `frames_as_images`."""
        return [self.grid] * (len(self.indices) if self.options.frames_as_images else 1)

    @property
    def patch_count(self) -> int:
        """Patches in all grids together (rows of `load_patches`)."""
        return sum(t * h * w for t, h, w in self.grids)

    @property
    def seconds_per_grid(self) -> float:
        """Seconds between two temporal patches by the released formula, temporal_patch_size / sample_fps."""
        return self.options.temporal_patch_size / self.sample_fps

    @property
    def hash(self) -> str:
        """SHA-256 of the file's identity (path, size, modification time), the options and the frame indices."""
        identity = [self.path, self.file_size, self.file_mtime_ns]
        content = [identity, dataclasses.asdict(self.options), list(self.indices)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def plan_frames(
    source: str | Path | VideoInfo,
    options: FrameOptions | None = None,
    *,
    time_limit_s: float = 60.0,
    isolated: bool = True,
    pool: ReaderPool | None = None,
) -> FramePlan:
    """Choose frames of a file (opened in a killable process, see `reader.probe`) or of a VideoInfo (no file touched).

    Raises VideoError with the file's name where the file cannot be read, and SamplingError for impossible options.
    """
    from vrjax.video.reader import probe

    options = options or FrameOptions()
    info = source
    if not isinstance(info, VideoInfo):
        info = probe(info, time_limit_s=time_limit_s, isolated=isolated, pool=pool)
    first, last = clip_range(info.timestamps, options.start, options.end, info.path)
    total = last - first + 1
    notes = list(info.notes)
    if options.start is not None and options.start < 0:
        notes.append("clip_start_clamped")
    if options.end is not None and options.end > info.duration + 1e-6:
        notes.append("clip_end_clamped")

    if not info.fps > 0:
        raise VideoError(
            f"{info.path}: the frame rate is zero and no frame times are stored. Re-encode it.", "zero_fps"
        )
    try:
        count = frame_count(
            total,
            info.fps,
            frames=options.frames,
            fps=None if options.frames is not None else options.fps,
            min_frames=options.min_frames,
            max_frames=options.max_frames,
        )
    except SamplingError as error:
        raise SamplingError(f"{info.path}: {error}") from None
    notes += _count_notes(options, total, info.fps, count)
    indices = frame_indices(first, last, count)

    height, width = smart_resize(
        info.height,
        info.width,
        min_pixels=options.min_pixels,
        max_pixels=_pixels_per_frame(options, count),
        factor=options.patch_size * options.merge_size,
        name=info.path,
    )
    temporal = 1 if options.frames_as_images else -(-count // options.temporal_patch_size)
    if not options.frames_as_images and count % options.temporal_patch_size:
        notes.append("frame_padded")
    return FramePlan(
        path=info.path,
        options=options,
        indices=indices,
        timestamps=tuple(float(info.timestamps[index]) for index in indices),
        height=height,
        width=width,
        source_height=info.height,
        source_width=info.width,
        grid=(temporal, height // options.patch_size, width // options.patch_size),
        sample_fps=count / total * info.fps,
        total_frames=info.total_frames,
        codec=info.codec,
        notes=tuple(notes),
        file_size=info.file_size,
        file_mtime_ns=info.file_mtime_ns,
    )


def _pixels_per_frame(options: FrameOptions, count: int) -> int:
    """The upper pixel budget of a frame: qwen-vl-utils' share of the total, but at least 1.05 of the lower budget."""
    if options.total_pixels is None or options.frames_as_images:
        return options.max_pixels
    share = int(options.total_pixels / count * options.temporal_patch_size)
    return max(min(options.max_pixels, share), int(options.min_pixels * 1.05))


def _count_notes(options: FrameOptions, total: int, video_fps: float, count: int) -> list[str]:
    if total == 1:
        return ["frame_repeated"]
    if options.frames is not None:
        asked = round(options.frames / 2) * 2
        if count < asked:
            return ["frames_reduced"]
        return ["frames_rounded"] if asked != options.frames else []
    # A rate or a minimum that the clip is too short for; the cut to an even count alone is the formula, no event.
    wanted = min(max(total / video_fps * (options.fps or 2.0), options.min_frames), options.max_frames)
    return ["frames_reduced"] if wanted > total else []
