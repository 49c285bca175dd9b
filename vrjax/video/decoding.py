"""Opening files and decoding frames, in the process that calls. `reader` runs this where it can be killed.

PyAV reads the packets' presentation times, which are the truth about when a frame is shown. decord decodes the pixels
of the codecs it knows; PyAV decodes the others, and all of them where decord is not installed. Frames are numbered in
presentation order.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vrjax.errors import VideoError
from vrjax.video.frame_plan import VideoInfo

# decord 0.6 carries an old FFmpeg: AV1 and later codecs fail in it, or give no frame.
DECORD_CODECS = frozenset({"h264", "hevc", "mpeg4", "vp8", "vp9", "mpeg1video", "mpeg2video"})


def check_file(path: str | Path) -> os.stat_result:
    """Raise VideoError (`missing`, `not_a_file`, `unreadable`, `empty`) unless `path` is a regular file with content.

    Opening a pipe or a device could wait for ever, so it is never opened.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise VideoError(f"{path}: there is no such file. Check the path.", "missing") from None
    except (OSError, ValueError) as error:
        raise VideoError(f"{path}: cannot be opened ({error}). Check path and rights.", "unreadable") from None
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(f"{path}: is not a regular file (a folder, pipe or device). Give a video file.", "not_a_file")
    if not os.access(path, os.R_OK):
        raise VideoError(f"{path}: may not be read. Change its permissions.", "unreadable")
    if status.st_size == 0:
        raise VideoError(f"{path}: is empty (0 bytes). Fetch it again.", "empty")
    return status


def probe_file(path: str | Path) -> VideoInfo:
    """Read a file's stream facts and each frame's presentation time from its packets; decode only the first frame.

    Raises VideoError with a kind: those of `check_file`, `unreadable`, `no_video_stream`, `unsupported_codec`,
    `truncated`, `no_frames`, `zero_fps`.
    """
    from av import error as av_errors
    from av.codec import Codec

    path = str(path)
    status = check_file(path)
    with _open(path) as container:
        if not container.streams.video:
            raise VideoError(f"{path}: holds no video stream (audio only?). Leave it out.", "no_video_stream")
        stream = container.streams.video[0]
        codec = stream.codec_context
        try:
            name = codec.name if codec is not None else "unknown"
            Codec(name, "r")
        except (ValueError, av_errors.FFmpegError):
            name = "unknown"
        if name == "unknown":
            raise VideoError(f"{path}: no decoder for its codec. Re-encode it, e.g. as H.264.", "unsupported_codec")
        base = stream.time_base
        times: list[tuple[int, int]] = []
        unbroken = True
        try:
            for packet in container.demux(stream):
                if packet.pts is not None and packet.size and not packet.is_discard:
                    times.append((packet.pts, packet.duration or 0))
        except av_errors.FFmpegError:
            unbroken = False  # the container breaks off; counted below as truncated
        announced, rate = int(stream.frames or 0), float(stream.average_rate or 0)
        length = _announced_seconds(container, stream)
    if not times or base is None:
        raise VideoError(f"{path}: its video stream holds no frame. Leave it out.", "no_frames")
    height, width = _upright_size(path)
    times.sort()
    points = np.array([point for point, _ in times], dtype=np.int64)
    timestamps = (points - points[0]) * float(base)
    total = len(points)
    short = total < announced - max(1, announced // 100)
    early = length is not None and total > 1 and timestamps[-1] < length * 0.98 - 2 * timestamps[-1] / (total - 1)
    if short or early or not unbroken:
        what = f"{total} of {announced} frames" if announced else f"frames up to {timestamps[-1]:.2f} s"
        if length is not None and not announced:
            what += f" of {length:.2f} s"
        raise VideoError(f"{path}: is truncated, it holds {what}. Fetch or encode it again.", "truncated")

    notes: list[str] = []
    last = times[-1][1] * float(base) or (timestamps[-1] / (total - 1) if total > 1 else (1 / rate if rate else 0.0))
    duration = float(timestamps[-1] + last)
    if total > 1 and timestamps[-1] <= 0:
        raise VideoError(f"{path}: all {total} frames have the same time (zero fps). Re-encode it.", "zero_fps")
    # Containers guess a rate for variable frame rates (Matroska often says 25): the packets decide.
    if total > 1 and abs(rate * duration - total) > max(1.0, 0.01 * total):
        rate = total / duration
        notes.append("fps_from_timestamps")
    return VideoInfo(
        path=path,
        total_frames=total,
        fps=rate,
        width=width,
        height=height,
        duration=duration,
        timestamps=timestamps,
        codec=name,
        notes=tuple(notes),
        announced_frames=announced,
        file_size=status.st_size,
        file_mtime_ns=status.st_mtime_ns,
    )


def _upright_size(path: str) -> tuple[int, int]:
    """(height, width) of the first frame as it is shown: phones store upright clips lying, with a rotation."""
    from av import error as av_errors

    with _open(path) as container:
        try:
            frame = next(container.decode(container.streams.video[0]))
        except (StopIteration, av_errors.FFmpegError) as error:
            why = _first_line(error) or "the stream gives none"
            raise VideoError(
                f"{path}: its first frame cannot be decoded ({why}). Re-encode it.", "unreadable"
            ) from None
    lying = frame.rotation % 180 == 90
    return (frame.width, frame.height) if lying else (frame.height, frame.width)


def _announced_seconds(container, stream) -> float | None:
    """The video stream's length by its container's header; None where only the whole file's (with audio) is known."""
    if stream.duration is not None:
        return None  # MP4 and kin also announce a frame count, which is exact
    text = stream.metadata.get("DURATION", "")
    try:
        hours, minutes, seconds = text.split(":")
        length = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        if container.duration is None or len(container.streams) != 1:
            return None
        length = container.duration / 1e6
    return length - (container.start_time or 0) / 1e6


def decode_frames(
    path: str, indices: Sequence[int], codec: str, total_frames: int, threads: int = 1
) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """Yield the frames `indices` (ascending, repeats allowed) one by one.

    Raises VideoError (`truncated`) where a frame cannot be had, with its number.
    """
    check_file(path)
    if codec in DECORD_CODECS and _decord() is not None:
        yield from _decode_with_decord(path, indices, total_frames, threads)
    else:
        yield from _decode_with_av(path, indices, threads)


def _decord():
    try:
        import decord
    except ImportError:
        return None
    return decord


def _decode_with_decord(path: str, indices: Sequence[int], total: int, threads: int) -> Iterator[np.ndarray]:
    decord = _decord()
    assert decord is not None
    try:
        reader = decord.VideoReader(path, num_threads=threads)
    except Exception as error:  # decord raises RuntimeError and its own kinds alike
        raise VideoError(f"{path}: cannot be opened ({_first_line(error)}). Re-encode it.", "unreadable") from None
    if len(reader) != total:
        # decord counts other frames than the packets' times tell (edit lists, for one): its numbers cannot be used.
        del reader
        yield from _decode_with_av(path, indices, threads)
        return
    number = -1
    try:
        for number in indices:
            yield reader[number].asnumpy()
    except GeneratorExit:
        raise
    except Exception as error:
        raise VideoError(f"{path}: frame {number} cannot be decoded ({_first_line(error)}).", "truncated") from None


def _decode_with_av(path: str, indices: Sequence[int], threads: int) -> Iterator[np.ndarray]:
    from av import error as av_errors

    wanted = list(indices)
    with _open(path) as container:
        stream = container.streams.video[0]
        packets = [
            (p.pts, p.is_keyframe) for p in container.demux(stream) if p.pts is not None and p.size and not p.is_discard
        ]
    points = sorted(point for point, _ in packets)
    keys = np.array(sorted(point for point, key in packets if key) or points[:1])
    if wanted and wanted[-1] >= len(points):
        raise VideoError(f"{path}: frame {wanted[-1]} is missing, it holds {len(points)}.", "truncated")
    with _open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = threads
        stream.thread_type = "AUTO"
        decoded = container.decode(stream)
        at: int | None = None  # presentation point of `picture`, the last frame decoded
        picture: np.ndarray | None = None
        for number in wanted:
            target = points[number]
            key = int(keys[max(0, np.searchsorted(keys, target, side="right") - 1)])
            if (at is None and key > points[0]) or (at is not None and key > at):
                # The frame's own key frame lies ahead: jump there. Otherwise going on is as short.
                container.seek(key, stream=stream, backward=True)
                decoded = container.decode(stream)
            try:
                while at is None or at < target or picture is None:
                    frame = next(decoded)
                    if frame.pts is None or frame.pts < target:
                        at = frame.pts if frame.pts is not None else at
                        picture = None
                        continue
                    pixels = frame.to_ndarray(format="rgb24")
                    at, picture = frame.pts, np.ascontiguousarray(np.rot90(pixels, frame.rotation // 90 % 4))
            except (StopIteration, av_errors.FFmpegError) as error:
                why = _first_line(error) or "the stream ends before it"
                raise VideoError(f"{path}: frame {number} cannot be decoded ({why}).", "truncated") from None
            if at != target:
                raise VideoError(f"{path}: frame {number} at {target} was not found, next is {at}.", "truncated")
            yield picture


def check_ends(info: VideoInfo) -> None:
    """Decode the first frame, the middle one and the last. Raises VideoError (`truncated`, `unreadable`)."""
    wanted = sorted({0, info.total_frames // 2, info.total_frames - 1})
    for frame in decode_frames(info.path, wanted, info.codec, info.total_frames):
        del frame


def _open(path: str):
    import av
    from av import error as av_errors

    try:
        return av.open(path)
    except av_errors.InvalidDataError as error:
        if _lacks_index(path):
            raise VideoError(
                f"{path}: is truncated, an MP4 whose index (moov) is missing. Fetch it again.", "truncated"
            ) from None
        raise VideoError(f"{path}: is not a video ({_first_line(error)}).", "unreadable") from None
    except (av_errors.FFmpegError, OSError) as error:
        raise VideoError(f"{path}: cannot be opened ({_first_line(error)}).", "unreadable") from None


def _lacks_index(path: str) -> bool:
    """Whether a file begins as an MP4 does and yet FFmpeg found nothing to read in it: its end was cut off."""
    with open(path, "rb") as file:
        return file.read(12)[4:8] == b"ftyp"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""
