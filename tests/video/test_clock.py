import numpy as np
import pytest

from vrjax.video import draw_clock
from vrjax.video.clock import clock_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00"), (59.99, "00:59"), (60, "01:00"), (2.9999999, "00:03"), (4500, "75:00"), (6000, "100:00")],
)
def test_text(seconds, text):
    assert clock_text(seconds) == text


def test_drawn_top_right_in_white_with_a_black_edge():
    frames = np.full((2, 224, 420, 3), 128, np.uint8)
    out = draw_clock(frames, [0.0, 75.0])
    assert (frames == 128).all()
    changed = np.argwhere((out[0] != 128).any(axis=-1))
    assert changed[:, 0].max() < 224 / 4
    assert changed[:, 1].min() > 420 / 2
    colours = out[0].reshape(-1, 3)
    assert (colours == 255).all(axis=1).any()
    assert (colours == 0).all(axis=1).any()
    assert (out[0] != out[1]).any()
