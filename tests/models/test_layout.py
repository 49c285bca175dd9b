"""Window order against transformers and the published example; padding to buckets."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.vision_utils import get_vision_window_index

from vrjax.models.qwen2_5_vl.layout import frame_layout, frame_shape, has_whole_windows

from .reference import tiny_config

CONFIG = tiny_config(tied=False, layers=4, full_layers=(1, 3)).vision


def test_window_order_of_a_2_x_8_x_8_video():
    """Two frames of 4 x 4 merged tokens: one window each, order unchanged, ends at 64 and 128 patches."""
    layout = frame_layout(4, 4, 4)
    assert [frame * 16 + index for frame in range(2) for index in layout.order.tolist()] == list(range(32))
    assert np.cumsum([4 * size for _ in range(2) for size in layout.window_sizes]).tolist() == [64, 128]


def test_drawn_example():
    layout = frame_layout(3, 5, 4)
    assert layout.order.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 4, 9, 14]
    assert layout.window_sizes == (12, 3)
    assert layout.order[layout.inverse].tolist() == list(range(15))


@settings(max_examples=60, deadline=None)
@given(t=st.integers(1, 4), h=st.integers(1, 13), w=st.integers(1, 13))
def test_window_order_equals_that_of_transformers(t: int, h: int, w: int):
    layout, grid = frame_layout(h, w, 4), (t, 2 * h, 2 * w)
    index, ends = get_vision_window_index(torch.tensor([grid]), 2, window_size=112, patch_size=14)
    assert (np.arange(t)[:, None] * h * w + layout.order).reshape(-1).tolist() == index.tolist()
    mine = np.cumsum([0, *[4 * size for _ in range(t) for size in layout.window_sizes]])
    assert mine.tolist() == ends.tolist()
    assert frame_shape(grid, CONFIG) == (4 * h * w, len(layout.window_sizes))
    assert has_whole_windows(grid, CONFIG) == (set(layout.window_sizes) == {16})
