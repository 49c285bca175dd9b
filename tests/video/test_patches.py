import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.video import (
    CLIP_STD,
    FrameOptions,
    frames_to_patches,
    normalise,
    plan_frames,
    read_frames,
    resize_frames,
    smart_resize,
    to_patches,
)


def torch_resize(frames, height, width):
    """What torchvision, and so transformers' video processor, calls for uint8 frames."""
    torch = pytest.importorskip("torch")
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(pixels, size=(height, width), mode="bicubic", antialias=True)
    return resized.permute(0, 2, 3, 1).numpy()


def random_frames(count, height, width, seed=0, binary=False):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 2, (count, height, width, 3)).astype(np.uint8) * 255
        if binary
        else rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    )


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.integers(1, 130)] * 4), st.booleans())
def test_resizing_is_torchs(sides, binary):
    height, width, new_height, new_width = sides
    frames = random_frames(2, height, width, binary=binary)
    ours = resize_frames(frames, new_height, new_width).astype(int)
    assert np.abs(ours - torch_resize(frames, new_height, new_width)).max() <= 1


def test_threads_and_sizes_beyond_a_band():
    frames = random_frames(5, 200, 300)
    one = resize_frames(frames, 364, 644, threads=1)
    np.testing.assert_array_equal(one, resize_frames(frames, 364, 644, threads=3))
    assert np.abs(one.astype(int) - torch_resize(frames, 364, 644)).max() <= 1


def naive_patches(frames, p=14, t=2, m=2):
    frames = list(frames) + [frames[-1]] * (-len(frames) % t)
    rows, columns = frames[0].shape[0] // p, frames[0].shape[1] // p
    out = []
    for first in range(0, len(frames), t):
        for block_row in range(rows // m):
            for block_column in range(columns // m):
                for row in range(block_row * m, block_row * m + m):
                    for column in range(block_column * m, block_column * m + m):
                        cut = [f[row * p : row * p + p, column * p : column * p + p] for f in frames[first : first + t]]
                        out.append(np.stack(cut).transpose(3, 0, 1, 2).ravel())
    return np.stack(out)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_patch_order(count):
    frames = random_frames(count, 56, 84)
    np.testing.assert_array_equal(to_patches(frames), naive_patches(frames))


def test_other_patch_sizes():
    frames = random_frames(17, 64, 32)
    got = to_patches(frames, patch_size=16, temporal_patch_size=4)
    assert len(got) == 5 * 4 * 2  # 17 frames fill five temporal patches of 4
    np.testing.assert_array_equal(got, naive_patches(frames, 16, 4))
    one_pass = frames_to_patches(frames, 96, 64, patch_size=16, temporal_patch_size=4)
    np.testing.assert_array_equal(one_pass, to_patches(resize_frames(frames, 96, 64), 16, 4))


@pytest.mark.parametrize("count", [1, 3, 4])
def test_one_pass_equals_two(count):
    frames = random_frames(count, 90, 160)
    np.testing.assert_array_equal(frames_to_patches(frames, 140, 224), to_patches(resize_frames(frames, 140, 224)))


def test_wrong_arrays_are_refused():
    with pytest.raises(InputError, match="28"):
        to_patches(random_frames(2, 30, 56))
    with pytest.raises(InputError, match="float32"):
        resize_frames(np.zeros((1, 8, 8, 3), np.float32), 28, 28)  # pyright: ignore


def grey_levels(difference):
    """Undo the normalisation of a difference of pixel values [N, 1176]."""
    return np.abs(difference).reshape(len(difference), 3, -1) * np.array(CLIP_STD)[:, None] * 255


@pytest.fixture(
    scope="module", params=["bigbuckbunny", "bikes", "carphone_pristine", "carphone_distorted", "scene_cuts"]
)
def real_frames(request):
    folder = os.environ.get("VRJAX_REALDATA")
    if not folder:
        pytest.skip("VRJAX_REALDATA is not set")
    plan = plan_frames(Path(folder) / "videos" / f"{request.param}.mp4", FrameOptions(frames=6), isolated=False)
    return read_frames(plan, resized=False, isolated=False)


@pytest.mark.parametrize("budget", [(128 * 784, 768 * 784), (16 * 784, 128 * 784)])
def test_transformers_picture_processor(real_frames, budget):
    processors = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = processors.Qwen2VLImageProcessorPil(size={"shortest_edge": budget[0], "longest_edge": budget[1]})
    want = processor(list(real_frames), return_tensors="np")
    height, width = smart_resize(*real_frames.shape[1:3], *budget)
    assert want["image_grid_thw"].tolist() == [[1, height // 14, width // 14]] * len(real_frames)
    # A picture is its frame twice, so frame by frame repeated is the same layout.
    ours = normalise(frames_to_patches(np.repeat(real_frames, 2, axis=0), height, width))
    off = grey_levels(ours - want["pixel_values"])
    assert off.mean() <= 1
    assert off.max() <= 8
    assert off.max() < 2  # what is reached


@pytest.mark.parametrize("budget", [(128 * 784, 768 * 784), (16 * 784, 128 * 784)])
def test_transformers_video_processor(real_frames, budget):
    try:
        from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    except (ImportError, RuntimeError):
        pytest.skip("transformers' video processor needs a working torchvision")
    size = {"shortest_edge": budget[0], "longest_edge": budget[1]}
    want = Qwen2VLVideoProcessor(size=size, cap_pixels_per_frame=False)([real_frames], return_tensors="pt")
    height, width = smart_resize(*real_frames.shape[1:3], *budget)
    assert want["video_grid_thw"].tolist() == [[3, height // 14, width // 14]]
    off = grey_levels(normalise(frames_to_patches(real_frames, height, width)) - want["pixel_values_videos"].numpy())
    assert off.mean() <= 1
    assert off.max() < 2
