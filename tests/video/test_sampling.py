"""Right values: qwen-vl-utils' own arithmetic, worked out by hand, and the values users reported as right."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrjax.errors import InputError, VideoError
from vrjax.video import clip_range, frame_count, smart_resize

VIDEO = {"min_pixels": 128 * 784, "max_pixels": 768 * 784}


@pytest.mark.parametrize(
    ("size", "budget", "want"),
    [
        ((1080, 1920), {}, (1092, 1932)),
        ((360, 640), {}, (364, 644)),
        ((720, 1280), {"min_pixels": 12544, "max_pixels": 100352}, (224, 420)),
        ((27, 27), {}, (56, 56)),
        ((70, 70), {}, (56, 56)),  # 2.5 → 2, half to even
        ((126, 126), {}, (112, 112)),  # 4.5 → 4
        ((98, 98), {}, (112, 112)),  # 3.5 → 4
        ((28, 5600), {}, (28, 5600)),  # an aspect ratio of exactly 200
        ((31, 639), {"max_pixels": 15680}, (28, 560)),  # never a zero side
        ((240, 320), VIDEO, (280, 392)),
        ((1080, 1920), VIDEO, (560, 1008)),
        ((64, 64), VIDEO, (336, 336)),
        ((144, 176), VIDEO, (308, 364)),
        ((272, 640), VIDEO, (280, 644)),
        ((10, 10), {"min_pixels": 4 * 784, "max_pixels": 16384 * 784}, (56, 56)),
        ((30, 500), {}, (28, 504)),
        ((480, 854), {}, (476, 840)),
        ((4000, 6000), {}, (2912, 4368)),
    ],
)
def test_smart_resize(size, budget, want):
    assert smart_resize(*size, **budget) == want


def test_aspect_ratio_above_200_names_the_file():
    with pytest.raises(VideoError, match=r"wide\.mp4") as caught:
        smart_resize(28, 5601, name="wide.mp4")
    assert caught.value.kind == "aspect_ratio"


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_sides_are_positive_multiples(height, width):
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(VideoError):
            smart_resize(height, width)
    else:
        rows, columns = smart_resize(height, width, **VIDEO)
        assert rows >= 28
        assert columns >= 28
        assert rows % 28 == columns % 28 == 0


@pytest.mark.parametrize(
    ("total", "fps", "request_", "want"),
    [
        (1, 30, {}, 2),
        (2, 30, {}, 2),
        (4, 30, {}, 4),
        (5, 30, {}, 4),
        (90, 30, {}, 6),
        (300, 29.97, {}, 20),
        (30, 30, {"fps": 0.5}, 4),
        (100, 30, {"fps": 60}, 100),
        (31, 30, {"frames": 5}, 4),
        (31, 30, {"frames": 7}, 8),
        (31, 30, {"frames": 32}, 30),
        (3000, 30, {"fps": 2, "max_frames": 15}, 14),
        (60, 30, {"fps": 2, "min_frames": 8}, 8),
        (6, 30, {"fps": 2, "min_frames": 8}, 6),
        (100000, 25, {}, 768),
        (250, 25, {}, 20),
        (7, 30, {}, 4),
        (54000, 30, {}, 768),
        (3, 30, {}, 2),
    ],
)
def test_frame_count(total, fps, request_, want):
    assert frame_count(total, fps, **request_) == want


def test_frame_count_refuses_one_frame_and_zero_rate():
    with pytest.raises(ValueError, match="Ask for 2"):
        frame_count(31, 30, frames=1)
    with pytest.raises(VideoError) as caught:
        frame_count(300, 0.0, fps=2)
    assert caught.value.kind == "zero_fps"
    with pytest.raises(InputError):
        frame_count(300, 30, fps=2, frames=4)


@given(st.integers(1, 10**5), st.floats(0.1, 240), st.floats(0.01, 240), st.integers(1, 20), st.integers(20, 999))
def test_frame_count_is_even_and_there(total, video_fps, fps, low, high):
    count = frame_count(total, video_fps, fps=fps, min_frames=low, max_frames=high)
    assert count % 2 == 0
    assert 2 <= count <= max(2, min(total, high))


def test_clip_range():
    times = np.arange(300) / 30
    assert clip_range(times, 1.0, 2.0) == (30, 60)
    assert clip_range(times, -3, 1) == (0, 30)
    assert clip_range(times, None, None) == (0, 299)
    assert clip_range(times, 9.5, 100) == (285, 299)
    for start, end in ((5, 5), (6, 5), (20, 30)):
        with pytest.raises(InputError, match=r"a\.mp4"):
            clip_range(times, start, end, "a.mp4")
