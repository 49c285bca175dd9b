"""Frames of one video for the tools: planned once, decoded once, kept as JPEG up to a bound."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vrjax.agents.video_handle import Video
from vrjax.errors import VideoError
from vrjax.llm import Image
from vrjax.video import FrameOptions, FramePlan, ReaderPool, SamplingError, VideoInfo, plan_frames, probe, read_frames

JPEG_QUALITY = 85
DECODED_AT_ONCE = 32


@dataclass(frozen=True)
class Sampling:
    """Frames that a tool looks at: fps of them a second, at least `least` in a range that has them, each of at most
    max_pixels. most: of one range; a longer one is sampled more thinly.
    """

    fps: float = 1.0
    least: int = 8
    most: int = 20_000
    max_pixels: int = 128 * 28 * 28


@dataclass(frozen=True)
class StoredFrame:
    """seconds: its true presentation time. index: its number in the file."""

    seconds: float
    index: int
    image: Image


class FrameStore:
    """Safe between threads. decoded: how many frames were decoded so far; each once, unless it fell out of the cache.

    most_bytes: of encoded frames kept; the longest unused go first. Raises VideoError as `vrjax.video.probe` does.
    """

    def __init__(
        self,
        path: Path,
        sampling: Sampling | None = None,
        *,
        most_bytes: int = 256 * 2**20,
        pool: ReaderPool | None = None,
    ) -> None:
        self.path, self.sampling, self._pool, self._most = Path(path), sampling or Sampling(), pool, most_bytes
        self.info: VideoInfo = probe(path, pool=pool)
        self.decoded = 0
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0
        self._lock, self._decoding = threading.Lock(), threading.Lock()

    @property
    def whole(self) -> Video:
        return Video(0.0, self.info.duration)

    def plan(self, part: Video, most: int | None = None) -> FramePlan:
        """Which frames of a part to look at, at most `most`. Raises ValueError where it holds none."""
        sampling = self.sampling
        options = FrameOptions(
            fps=sampling.fps,
            min_frames=min(sampling.least, most or sampling.least),
            max_frames=min(sampling.most, most or sampling.most),
            min_pixels=4 * 28 * 28,
            max_pixels=sampling.max_pixels,
            total_pixels=None,
            start=part.start,
            end=part.end,
            frames_as_images=True,
        )
        try:
            return plan_frames(self.info, options)
        except SamplingError as error:
            raise ValueError(str(error)) from None

    def read(self, plan: FramePlan, which: Sequence[int] | None = None) -> list[StoredFrame]:
        """The frames of a plan, or those at the places `which`, in order. Raises VideoError; blocks while decoding.

        A frame that a clip is too short to have twice is given once.
        """
        places = range(len(plan.indices)) if which is None else which
        wanted = dict.fromkeys((plan.indices[place], plan.timestamps[place]) for place in places)
        found: dict[int, bytes] = {}
        with self._decoding:  # two tools that want the same frames decode them once
            missing = []
            with self._lock:
                for index, seconds in wanted:
                    if index in self._kept:
                        self._kept.move_to_end(index)
                        found[index] = self._kept[index]
                    else:
                        missing.append((index, seconds))
            for first in range(0, len(missing), DECODED_AT_ONCE):
                found.update(self._decode(plan, missing[first : first + DECODED_AT_ONCE]))
        return [StoredFrame(seconds, index, Image(found[index], "image/jpeg")) for index, seconds in wanted]

    def _decode(self, plan: FramePlan, frames: Sequence[tuple[int, float]]) -> dict[int, bytes]:
        from PIL import Image as Picture

        indices, times = tuple(index for index, _ in frames), tuple(seconds for _, seconds in frames)
        pixels = read_frames(replace(plan, indices=indices, timestamps=times), pool=self._pool)
        if len(pixels) != len(indices):
            raise VideoError(
                f"{self.path}: {len(pixels)} of {len(indices)} frames were read. Re-encode it.", "truncated"
            )
        encoded = {}
        for index, frame in zip(indices, pixels, strict=True):
            buffer = io.BytesIO()
            Picture.fromarray(frame).save(buffer, "JPEG", quality=JPEG_QUALITY)
            encoded[index] = buffer.getvalue()
        with self._lock:
            self.decoded += len(encoded)
            for index, data in encoded.items():
                if index not in self._kept:
                    self._size += len(data)
                self._kept[index] = data
            while self._size > self._most and self._kept:
                _, dropped = self._kept.popitem(last=False)
                self._size -= len(dropped)
        return encoded
