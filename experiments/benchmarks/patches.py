"""Frames to patches, beside transformers' Qwen2-VL video processor: the same decoded frames, runs taken in turn.

    python -m experiments.benchmarks.patches [--json FILE] [--runs 7] [--video CLIP.mp4]

Ours emits uint8 patches, as training and serving use them (the device normalises); transformers' side emits float32,
its normalisation included. So that the difference in output hides nothing, rows ending in `_float` measure ours with
the normalisation on the host. The peer is `Qwen2VLVideoProcessor` where torchvision is installed, otherwise the only
Qwen2-VL processor that runs without it, `Qwen2VLImageProcessorPil`, which also repeats each frame in time (twice the
patches): the row names which. Bytes moved per second stand beside the machine's own copy rate.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from experiments.benchmarks.rows import Row, in_turn, run_benchmark
from vrjax.video import frames_to_patches, normalise, smart_resize

VIDEO_BUDGET = (128 * 28 * 28, 768 * 28 * 28)
SMALL_BUDGET = (16 * 28 * 28, 100_352)


def measure(runs: int = 7, video: str | None = None) -> list[Row]:
    """Compare at the default budget (640x360, 32 frames) and at a small one (1280x720), or for frames of `video`."""
    if video is None:
        cases = [
            ("patches_vs_transformers", made_frames(32, 360, 640), VIDEO_BUDGET),
            ("patches_small_vs_transformers", made_frames(32, 720, 1280), SMALL_BUDGET),
        ]
    else:
        frames = decoded_frames(video, 32)
        cases = [
            ("patches_vs_transformers", frames, VIDEO_BUDGET),
            ("patches_small_vs_transformers", frames, SMALL_BUDGET),
        ]
    peer_name, build_peer = find_peer()
    return [row for name, frames, budget in cases for row in compare(name, frames, budget, peer_name, build_peer, runs)]


def compare(
    name: str,
    frames: np.ndarray,
    budget: tuple[int, int],
    peer_name: str,
    build_peer: Callable[[tuple[int, int]], Callable[[np.ndarray], object]],
    runs: int,
) -> list[Row]:
    height, width = smart_resize(frames.shape[1], frames.shape[2], *budget)
    sides: list[Callable[[], object]] = [
        lambda: frames_to_patches(frames, height, width),
        lambda: normalise(frames_to_patches(frames, height, width)),
    ]
    peer = build_peer(budget)
    sides.append(lambda: peer(frames))
    ours, ours_float, theirs = in_turn(sides, runs)
    size = f"{len(frames)} frames {frames.shape[2]}x{frames.shape[1]} to {width}x{height}"
    moved = frames.nbytes + len(frames) * height * width * 3
    floor = f"at least {moved / copy_rate() * 1e3:.1f} ms of memory traffic"
    return [
        Row(
            name,
            ours,
            peer_name,
            theirs,
            theirs / ours,
            peak_mb(sides[0]),
            f"{size}, ours uint8, peer float32; {floor}",
        ),
        Row(
            f"{name}_float",
            ours_float,
            peer_name,
            theirs,
            theirs / ours_float,
            peak_mb(sides[1]),
            f"{size}, both float32, normalised on the host",
        ),
    ]


def find_peer() -> tuple[str, Callable[[tuple[int, int]], Callable[[np.ndarray], object]]]:
    """The fastest Qwen2-VL processor of transformers that can be imported here, by name, and how to build it."""
    try:
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    except (ImportError, RuntimeError):
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        def build_pil(budget: tuple[int, int]) -> Callable[[np.ndarray], object]:
            size = {"shortest_edge": budget[0], "longest_edge": budget[1]}
            processor = Qwen2VLImageProcessorPil(size=size)
            return lambda frames: processor(list(frames), return_tensors="np")

        return "transformers Qwen2VLImageProcessorPil (no torchvision here)", build_pil

    def build_video(budget: tuple[int, int]) -> Callable[[np.ndarray], object]:
        size = {"shortest_edge": budget[0], "longest_edge": budget[1]}
        processor = Qwen2VLVideoProcessor(size=size, cap_pixels_per_frame=False)
        return lambda frames: processor([frames], return_tensors="pt")

    return "transformers Qwen2VLVideoProcessor", build_video


def made_frames(count: int, height: int, width: int) -> np.ndarray:
    """Moving gradients with noise: resizing takes the same time for any content."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, :width]
    frames = np.empty((count, height, width, 3), np.uint8)
    for number in range(count):
        for channel in range(3):
            wave = np.sin(rows / (20 + channel) + number) + np.cos(columns / (30 + channel))
            frames[number, :, :, channel] = np.clip(128 + 50 * wave + rng.normal(0, 8, wave.shape), 0, 255)
    return frames


def decoded_frames(path: str, count: int) -> np.ndarray:
    from vrjax.video import FrameOptions, plan_frames, read_frames

    return read_frames(plan_frames(path, FrameOptions(frames=count)), resized=False)


def copy_rate() -> float:
    """Bytes a second of one thread's copy of 64 MB, read plus written."""
    source = np.ones(64 * 2**20, np.uint8)
    target = np.empty_like(source)
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        taken.append(time.perf_counter() - start)
    return 2 * source.nbytes / min(taken)


def peak_mb(side: Callable[[], object]) -> float:
    tracemalloc.start()
    side()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> int:
    def extra(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--video", help="take 32 frames of this file instead of made ones")

    return run_benchmark(__doc__, lambda options: measure(options.runs, options.video), runs=7, extra=extra)


if __name__ == "__main__":
    raise SystemExit(main())
