"""Write frames as an mp4 file that any player and any reader opens."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
from jaxtyping import UInt8

from vrjax.errors import RunError

# One thread and no dates in the file: the same frames give the same bytes. A low rate factor keeps colours within a
# few grey levels; without B frames, presentation and decoding order agree from the first frame on.
_X264_OPTIONS = {"crf": "16", "preset": "veryfast", "bf": "0", "threads": "1"}


def encode_mp4(frames: UInt8[np.ndarray, "T H W 3"], path: Path, fps: int) -> None:
    """Encode `frames` (RGB; even height and width) with H.264 at `fps` frames a second.

    The file appears under its name only when it is whole. Raises RunError naming the file where it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with av.open(str(partial), "w", format="mp4", container_options={"fflags": "+bitexact"}) as container:
            stream = container.add_stream("libx264", rate=fps, options=_X264_OPTIONS)
            stream.height, stream.width = frames.shape[1:3]
            stream.pix_fmt = "yuv420p"
            stream.codec_context.thread_count = 1
            for frame in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
        os.replace(partial, path)
    except OSError as error:  # av's errors are OSErrors too
        partial.unlink(missing_ok=True)
        raise RunError(f"{path}: the clip cannot be written ({error}). Check the folder and the free space.") from error
