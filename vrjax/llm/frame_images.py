"""Frames of a video as encoded images with their times, for models behind an endpoint."""

from __future__ import annotations

import io
from dataclasses import dataclass

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
