import dataclasses

import numpy as np
import pytest

from vrjax.errors import VideoError
from vrjax.video import FrameOptions, VideoInfo, plan_frames


def info(total, fps, width=640, height=360, timestamps=None, **more):
    times = np.arange(total) / fps if timestamps is None else timestamps
    return VideoInfo("a.mp4", total, fps, width, height, total / fps, times, "h264", **more)


@pytest.mark.parametrize(
    ("total", "fps", "count", "sample_fps", "per_grid", "start", "end"),
    [
        (250, 25, 20, 2.0, 1.0, [0, 13, 26, 39], [236, 249]),
        (132, 25, 10, 1.893939, 1.056, [0, 15, 29, 44], [116, 131]),
        (7, 30, 4, 17.142857, 0.116667, [0, 2, 4, 6], [4, 6]),
        (300, 29.97, 20, 1.998, 1.001001, [0, 16, 31, 47], [283, 299]),
        (54000, 30, 768, 0.426667, 4.6875, [0, 70, 141, 211], [53929, 53999]),
        (5, 30, 4, 24.0, 0.083333, [0, 1, 3, 4], [3, 4]),
        (4, 1, 4, 1.0, 2.0, [0, 1, 2, 3], [2, 3]),
    ],
)
def test_released_sampling(total, fps, count, sample_fps, per_grid, start, end):
    plan = plan_frames(info(total, fps))
    assert len(plan.indices) == count
    assert plan.sample_fps == pytest.approx(sample_fps, abs=1e-6)
    assert plan.seconds_per_grid == pytest.approx(per_grid, abs=1e-6)
    assert list(plan.indices[:4]) == start
    assert list(plan.indices[-2:]) == end
    assert plan.grid[0] == count // 2


def test_true_times_do_not_drift():
    times = np.arange(14434) * 1001 / 30000
    plan = plan_frames(info(14434, 29.970029949287216, timestamps=times), FrameOptions(frames=8))
    assert plan.indices == (0, 2062, 4124, 6186, 8247, 10309, 12371, 14433)
    # A table of another implementation gives the same to .1 s; frame · 1001/30000 by hand gives these.
    assert plan.timestamps[1] == pytest.approx(68.802, abs=1e-3)
    assert plan.timestamps[-1] == pytest.approx(481.581, abs=1e-3)


def test_substitutions_are_named():
    assert plan_frames(info(31, 30), FrameOptions(frames=32)).notes == ("frames_reduced",)
    assert plan_frames(info(31, 30), FrameOptions(frames=7)).notes == ("frames_rounded",)
    one = plan_frames(info(1, 30))
    assert (one.indices, one.notes) == ((0, 0), ("frame_repeated",))
    assert plan_frames(info(300, 30)).notes == ()
    clipped = plan_frames(info(300, 30), FrameOptions(start=-1, end=11))
    assert clipped.notes == ("clip_start_clamped", "clip_end_clamped")


def test_clip_keeps_the_files_own_seconds():
    plan = plan_frames(info(300, 30), FrameOptions(start=1, end=2))
    assert (plan.indices[0], plan.indices[-1]) == (30, 60)
    assert (plan.timestamps[0], plan.timestamps[-1]) == (1.0, 2.0)
    assert plan.sample_fps == pytest.approx(4 / 31 * 30)


def test_total_budget_shrinks_frames_of_long_videos():
    short, long = plan_frames(info(250, 25, 1920, 1080)), plan_frames(info(54000, 30, 1920, 1080))
    assert (short.height, short.width) == (560, 1008)
    # 768 frames: share 128000·784·.9/768·2 = 235,200 pixels; sqrt(2073600/235200) = 2.969; floor(1080/2.969/28) = 12
    assert (long.height, long.width) == (336, 644)
    free = plan_frames(info(54000, 30, 1920, 1080), FrameOptions(total_pixels=None))
    assert (free.height, free.width) == (560, 1008)


def test_frames_as_images():
    options = FrameOptions(frames=32, frames_as_images=True, min_pixels=75264, max_pixels=100352)
    plan = plan_frames(info(320, 25, 1280, 720), options)
    assert (plan.height, plan.width) == (224, 420)
    assert plan.grids == [(1, 16, 30)] * 32
    assert plan.patch_count == 32 * 16 * 30


def test_hash_follows_file_options_and_frames():
    base = info(250, 25)
    same = plan_frames(base).hash
    assert plan_frames(base).hash == same
    others = [
        plan_frames(base, FrameOptions(fps=1)).hash,
        plan_frames(base, FrameOptions(draw_clock=True)).hash,
        plan_frames(dataclasses.replace(base, file_mtime_ns=1)).hash,
        plan_frames(dataclasses.replace(base, path="b.mp4")).hash,
        plan_frames(base, FrameOptions(end=5)).hash,
    ]
    assert len({same, *others}) == 6


def test_zero_rate_is_an_error_that_names_the_file():
    broken = dataclasses.replace(info(250, 25), fps=0.0)
    with pytest.raises(VideoError, match=r"a\.mp4") as caught:
        plan_frames(broken)
    assert caught.value.kind == "zero_fps"
