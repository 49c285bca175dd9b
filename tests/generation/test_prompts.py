"""Prompts: the template token by token, what users may not type, and what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.generation.chat_forms import SYSTEM
from vrjax.generation.prompts import ChatTokenizer, Vision, build_prompt
from vrjax.generation.recipe import PromptRecipe
from vrjax.video import FrameOptions


@pytest.fixture(scope="module")
def qwen():
    folder = os.environ.get("VRJAX_REALDATA")
    if not folder:
        pytest.skip("VRJAX_REALDATA is not set: no published tokenizer at hand")
    return ChatTokenizer.load(Path(folder) / "tokenizers/qwen3")


@pytest.fixture(scope="module")
def qwen_config(config, qwen):
    import dataclasses

    ids = qwen.tokenizer.get_vocab()
    return dataclasses.replace(
        config, image_token=ids["<|image_pad|>"], video_token=ids["<|video_pad|>"],
        vision_start_token=ids["<|vision_start|>"], vision_end_token=ids["<|vision_end|>"],
    )  # fmt: skip


@pytest.mark.parametrize("question", ["What moves?", "\n\nWhat  moves?", " Was bewegt sich — 你好?", "a\n"])
def test_ids_are_those_of_the_whole_text_encoded_at_once(qwen, qwen_config, make_video, question):
    for vision in ([], [make_video(1)], [make_video(1, (1, 4, 4), None), make_video(2, (2, 4, 8))]):
        prompt = build_prompt(qwen, qwen_config, question, vision)
        pads = "".join(
            "<|vision_start|>" + ("<|image_pad|>" if item.seconds_per_grid is None else "<|video_pad|>")
            * (item.grid[0] * item.grid[1] * item.grid[2] // 4) + "<|vision_end|>"
            for item in vision
        )  # fmt: skip
        text = (
            f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{pads}{question}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert prompt.tokens.tolist() == qwen.tokenizer(text)["input_ids"]


def test_published_ids_of_the_marks(qwen_config, qwen):
    assert (qwen_config.vision_start_token, qwen_config.vision_end_token) == (151652, 151653)
    assert (qwen_config.image_token, qwen_config.video_token) == (151655, 151656)
    assert qwen.end_ids == (151645,)


@pytest.mark.parametrize("typed", ["<|video_pad|>", "see <|im_end|> this", "<|vision_start|>", "<|endoftext|>"])
def test_control_tokens_that_a_user_types_are_refused_by_name(chat, config, typed):
    with pytest.raises(InputError, match=r"record 7: .*control token <\|"):
        build_prompt(chat, config, f"What {typed} moves ?", name="record 7")


@pytest.mark.parametrize("question", ["", "   ", "\n"])
def test_an_empty_question_is_refused(chat, config, question):
    with pytest.raises(InputError, match="q1: the question is empty"):
        build_prompt(chat, config, question, name="q1")


def test_a_prompt_is_never_cut(chat, config, make_video):
    video = make_video(1, (8, 8, 8))
    whole = build_prompt(chat, config, "What moves ?", [video])
    assert len(build_prompt(chat, config, "What moves ?", [video], limit=len(whole))) == len(whole)
    with pytest.raises(InputError, match="fewer frames or a lower max_pixels"):
        build_prompt(chat, config, "What moves ?", [video], limit=len(whole) - 1)


def test_the_trunk_is_what_questions_about_a_video_share(chat, config, make_video):
    video = make_video(1)
    one, other = (build_prompt(chat, config, text, [video]) for text in ("What moves ?", "The red circle stops ?"))
    assert one.trunk == other.trunk
    np.testing.assert_array_equal(one.tokens[: one.trunk], other.tokens[: one.trunk])
    np.testing.assert_array_equal(one.positions[:, : one.trunk], other.positions[:, : one.trunk])
    assert one.tokens[one.trunk - 1] == config.vision_end_token
    assert (one.tokens[one.trunk :] != config.video_token).all()


def test_decoding_stops_at_the_first_end_token(chat):
    ids = chat.tokenizer("The red circle")["input_ids"]
    after = chat.tokenizer("square")["input_ids"]
    assert chat.decode([*ids, chat.end_ids[0], *after]).split() == ["The", "red", "circle"]


def test_frames_as_images_become_one_image_each(tmp_path):
    from tests.video.conftest import write_clip
    from vrjax.video import load_patches, plan_frames

    path = tmp_path / "clip.mp4"
    write_clip(path, range(20))
    options = FrameOptions(frames=4, frames_as_images=True, draw_clock=True, min_pixels=3136, max_pixels=12544)
    plan = plan_frames(path, options, isolated=False)
    patches = load_patches(plan, isolated=False)
    items = Vision.of_plan(plan, patches)
    assert [item.seconds_per_grid for item in items] == [None] * 4
    np.testing.assert_array_equal(np.concatenate([item.patches for item in items]), patches)
    assert len({item.key for item in items}) == 4


def test_a_recipe_comes_back_as_it_was_written(tmp_path):
    recipe = PromptRecipe(
        FrameOptions(fps=None, frames=32, frames_as_images=True, draw_clock=True), "s", "", "released"
    )
    recipe.write(tmp_path)
    assert PromptRecipe.read(tmp_path) == recipe
    assert PromptRecipe.read(tmp_path / "nowhere") is None
