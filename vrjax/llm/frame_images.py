"""Frames of a video as encoded images with their times, for models behind an endpoint."""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from vrjax.llm.chat import Frames, Image
from vrjax.video import ReaderPool, plan_frames, read_frames

JPEG_QUALITY = 90


@dataclass(frozen=True)
class TimedImage:
    """An image and its true presentation time in seconds."""

    seconds: float
    image: Image


def frame_images(part: Frames, pool: ReaderPool | None = None) -> list[TimedImage]:
    """Plan and read the frames, and encode each as JPEG at the plan's size. Blocks; call it in a thread.

    Raises VideoError (an InputError) naming the file.
    """
    from PIL import Image as Picture

    plan = plan_frames(part.video, part.options, pool=pool)
    images = []
    for seconds, frame in zip(plan.timestamps, read_frames(plan, pool=pool), strict=True):
        buffer = io.BytesIO()
        Picture.fromarray(frame).save(buffer, "JPEG", quality=JPEG_QUALITY)
        images.append(TimedImage(seconds, Image(buffer.getvalue(), "image/jpeg")))
    return images


def time_label(seconds: float) -> str:
    """`MM:SS.d`: minutes and seconds as in the evidence format, with tenths so that near frames differ."""
    tenths = round(seconds * 10)
    return f"{tenths // 600:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"


class FrameImages:
    """`frame_images` with the last few videos kept, so that questions about one video share one reading.

    Safe between threads: those that ask for the same video at the same time wait for one of them to read it.
    """

    def __init__(self, pool: ReaderPool, keep: int = 4) -> None:
        self._pool, self._keep = pool, keep
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Future[list[TimedImage]]] = OrderedDict()

    def read(self, part: Frames) -> list[TimedImage]:
        """The frames. Blocks, and raises, as `frame_images` does; a failure is not kept."""
        try:
            status = os.stat(part.video)
        except OSError:
            return frame_images(part, self._pool)  # which says what is wrong
        key = (part, status.st_size, status.st_mtime_ns)
        with self._lock:
            future = self._kept.get(key)
            mine = future is None
            if future is None:
                future = self._kept[key] = Future()
            self._kept.move_to_end(key)
            while len(self._kept) > self._keep:
                self._kept.popitem(last=False)
        if mine:
            try:
                future.set_result(frame_images(part, self._pool))
            except BaseException as error:
                with self._lock:
                    self._kept.pop(key, None)
                future.set_exception(error)
        return future.result()
