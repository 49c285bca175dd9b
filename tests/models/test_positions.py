"""mRoPE positions: published examples for rule `released`, transformers' own function for rule `transformers_5`."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vrjax.models.qwen2_5_vl import prompt_positions, temporal_ids

from .reference import Reference, compose, pack, tiny_config

CONFIG = tiny_config(tied=False, layers=4, full_layers=(1, 3))


@pytest.mark.parametrize(
    ("seconds_per_grid", "want"),
    [
        (0.25, [0, 0, 1, 1, 2, 2]),  # a cast of the seconds to an integer would make all of them 0
        (0.5, [0, 1, 2, 3, 4, 5]),
        (1.5, [0, 3, 6, 9, 12, 15]),
        (2.0, [0, 4, 8, 12, 16, 20]),
    ],
)
def test_temporal_ids(seconds_per_grid: float, want: list[int]):
    assert temporal_ids(6, seconds_per_grid, 2).tolist() == want


def test_temporal_ids_keep_the_frame_rate():
    """The same frames taken at 1 and at 30 frames a second stand at different times."""
    slow, fast = temporal_ids(40, 2 / 1, 2), temporal_ids(40, 2 / 30, 2)
    assert slow.tolist() == list(range(0, 160, 4))
    # 4 i / 30 truncated; whole numbers (i = 15, 30) are exact in float32 as well
    assert fast.tolist() == [4 * index // 30 for index in range(40)]


def prompt_of(pre: int, grid: tuple[int, int, int], post: int) -> np.ndarray:
    pads = grid[0] * grid[1] * grid[2] // 4
    return np.array([1] * pre + [CONFIG.video_token] * pads + [2] * post)


@pytest.mark.parametrize(
    ("pre", "grid", "seconds", "post", "time", "height", "width", "delta"),
    [
        (
            *(3, (2, 4, 4), 1.0, 2),
            [0, 1, 2, 3, 3, 3, 3, 5, 5, 5, 5, 6, 7],
            [0, 1, 2, 3, 3, 4, 4, 3, 3, 4, 4, 6, 7],
            [0, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 6, 7],
            -5,
        ),
        (
            *(3, (8, 4, 6), 1.0, 2),
            [0, 1, 2, *[3 + 2 * frame for frame in range(8) for _ in range(6)], 18, 19],
            [0, 1, 2, *[3, 3, 3, 4, 4, 4] * 8, 18, 19],
            [0, 1, 2, *[3, 4, 5, 3, 4, 5] * 8, 18, 19],
            -33,
        ),
        (
            *(1, (4, 4, 4), 0.5, 1),
            [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5],
            [0, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 5],
            [0, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 5],
            -12,
        ),
    ],
)
def test_released_rule(pre, grid, seconds, post, time, height, width, delta):
    tokens = prompt_of(pre, grid, post)
    positions, following = prompt_positions(tokens, [grid], [seconds], CONFIG)
    assert positions.tolist() == [time, height, width]
    assert following - len(tokens) == delta


def test_the_rules_differ_after_a_long_video():
    tokens = prompt_of(3, (8, 4, 6), 2)
    positions, _ = prompt_positions(tokens, [(8, 4, 6)], [1.0], CONFIG, rule="transformers_5")
    assert positions[:, -2:].tolist() == [[6, 7]] * 3


side = st.integers(1, 6).map(lambda merged: 2 * merged)
video = st.tuples(
    st.tuples(st.integers(1, 9), side, side),
    st.one_of(st.sampled_from([0.25, 0.5, 1.0, 2.0, 1 / 3]), st.integers(1, 512).map(lambda n: n / 64)),
)
image = st.tuples(st.tuples(st.just(1), side, side), st.none())


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(st.one_of(st.integers(1, 12), video, image), min_size=1, max_size=6), last=st.integers(0, 9))
def test_transformers_rule(periodic: Reference, parts, last: int):
    """Positions of a prompt and of a further text token, as transformers' get_rope_index gives them."""
    prompt = compose(CONFIG, 0, *parts, last)
    positions, following = prompt.positions(CONFIG, rule="transformers_5")
    tokens = np.append(prompt.tokens, 1).astype(np.int64)
    grids = {
        kind: [clip.grid for clip in prompt.clips if (clip.seconds is None) == (kind == "image")]
        for kind in ("image", "video")
    }
    seconds = [clip.seconds for clip in prompt.clips if clip.seconds is not None]
    theirs, delta = periodic.torch_model.model.get_rope_index(
        torch.tensor(tokens[None]),
        torch.tensor((tokens == CONFIG.image_token) + 2 * (tokens == CONFIG.video_token))[None],
        torch.tensor(grids["image"]) if grids["image"] else None,
        torch.tensor(grids["video"]) if grids["video"] else None,
        torch.tensor(seconds) if seconds else None,
    )
    assert positions.tolist() == theirs[:, 0, :-1].tolist()
    assert theirs[:, 0, -1].tolist() == [following] * 3
    # While decoding, transformers goes on at the largest position instead, so it leaves its own rule after a prompt
    # whose text ends before its video does. vrjax keeps to the rule: decoding and scoring agree.
    if positions.max() <= following:
        assert following + 1 == len(tokens) + int(delta)


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(st.one_of(st.integers(1, 12), video, image), min_size=1, max_size=6), last=st.integers(1, 9))
def test_released_rule_goes_on_after_everything(parts, last: int):
    """Text after a video is later than anything in it; the next token is one further than the last."""
    prompt = compose(CONFIG, 0, *parts, last)
    positions, following = prompt.positions(CONFIG)
    is_text = ~np.isin(prompt.tokens, [CONFIG.image_token, CONFIG.video_token])
    for index in np.flatnonzero(is_text):
        assert len(set(positions[:, index].tolist())) == 1
        assert positions[0, index] == (positions[:, :index].max() + 1 if index else 0)
    assert following == positions.max() + 1


def test_positions_do_not_depend_on_packing():
    parts = [(5, ((3, 6, 4), 0.7), 4), (2, ((1, 4, 4), None), 7)]
    prompts = [compose(CONFIG, seed, *part) for seed, part in enumerate(parts)]
    first = len(prompts[0].tokens)
    packed, padded = pack(CONFIG, [prompts]), pack(CONFIG, [[prompt] for prompt in prompts])
    assert (packed.positions[:, 0, :first] == padded.positions[:, 0, :first]).all()
    second = len(prompts[1].tokens)
    assert (packed.positions[:, 0, first:] == padded.positions[:, 1, :second]).all()


def test_disagreement_of_pads_and_grids_is_refused():
    tokens = prompt_of(3, (2, 4, 4), 2)
    with pytest.raises(ValueError, match="fills 16 tokens, but the prompt has 8 pads"):
        prompt_positions(tokens, [(4, 4, 4)], [1.0], CONFIG)
    with pytest.raises(ValueError, match="only 0 images and videos"):
        prompt_positions(tokens, [], [], CONFIG)
    with pytest.raises(ValueError, match="has pads for 1"):
        prompt_positions(tokens, [(2, 4, 4), (2, 4, 4)], [1.0, 1.0], CONFIG)
