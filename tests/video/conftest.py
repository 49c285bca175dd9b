"""Clips written for the tests. `coded` clips show their own frame number as ten light or dark bars."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import pytest

BITS, BAR = 10, 12


def coded_frame(number: int, height: int = 96) -> np.ndarray:
    frame = np.full((height, BITS * BAR + 8, 3), 30, np.uint8)
    for bit in range(BITS):
        if number >> bit & 1:
            frame[:, bit * BAR : (bit + 1) * BAR] = 220
    return frame


def frame_number(frame: np.ndarray) -> int:
    """Read the number back; works at any size."""
    scale = frame.shape[1] / (BITS * BAR + 8)
    middle = frame[frame.shape[0] // 2]
    return sum(int(middle[int((bit + 0.5) * BAR * scale)].mean() > 125) << bit for bit in range(BITS))


def write_clip(path, times, base=Fraction(1, 25), codec="libx264", height=96, gop=48):
    """Encode one coded frame for each presentation time (in units of `base` seconds)."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = BITS * BAR + 8, height, "yuv420p"
        stream.codec_context.gop_size = gop
        stream.time_base = stream.codec_context.time_base = base
        for number, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(coded_frame(number, height), format="rgb24")
            frame.pts, frame.time_base = int(time), base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_audio(path):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 16000, 0, Fraction(1, 16000)
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def variable_times(count=300):
    """Milliseconds with steps of 7 to 100."""
    steps = np.random.default_rng(0).choice([33, 40, 100, 7], count)
    return np.cumsum(steps) - steps[0]


@pytest.fixture(scope="session", name="frame_number")
def frame_number_fixture():
    return frame_number


@pytest.fixture(scope="session", name="write_clip")
def write_clip_fixture():
    return write_clip


@pytest.fixture(scope="session", name="variable_times")
def variable_times_fixture():
    return variable_times()


@pytest.fixture(scope="session")
def clips(tmp_path_factory):
    """Folder with cfr.mp4 (100 frames, 25 fps), vfr.mkv, vfr.mp4 (300), one.mp4, audio.mp4, cut.mp4, noindex.mp4."""
    folder = tmp_path_factory.mktemp("clips")
    write_clip(folder / "cfr.mp4", range(100))
    write_clip(folder / "vfr.mkv", variable_times() + 5000, Fraction(1, 1000))
    write_clip(folder / "vfr.mp4", variable_times(), Fraction(1, 1000))
    write_clip(folder / "one.mp4", [0])
    write_audio(folder / "audio.mp4")
    content = (folder / "cfr.mp4").read_bytes()
    (folder / "noindex.mp4").write_bytes(content[: len(content) // 2])
    # The same packets with the index in front, so that a cut file still opens.
    with (
        av.open(str(folder / "fast.mp4"), "w", options={"movflags": "faststart"}) as target,
        av.open(str(folder / "vfr.mp4")) as source,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.pts is not None:
                packet.stream = stream
                target.mux(packet)
    content = (folder / "fast.mp4").read_bytes()
    (folder / "cut.mp4").write_bytes(content[: int(len(content) * 0.7)])
    content = (folder / "vfr.mkv").read_bytes()
    (folder / "cut.mkv").write_bytes(content[: len(content) // 2])
    (folder / "text.mp4").write_text("this is no video\n" * 50)
    (folder / "empty.mp4").write_bytes(b"")
    return folder
