"""Conversations as tokens: each chat form against the published template, and what cannot be asked."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.generation import ChatTokenizer, Turn, build_conversation, build_prompt


@pytest.fixture(scope="module")
def qwen():
    folder = os.environ.get("VRJAX_REALDATA")
    if not folder:
        pytest.skip("VRJAX_REALDATA is not set: no published tokenizer at hand")
    return ChatTokenizer.load(Path(folder) / "tokenizers/qwen3")


def with_ids_of(config, tokenizer):
    ids = tokenizer.get_vocab()
    return dataclasses.replace(
        config, image_token=ids["<|image_pad|>"], video_token=ids["<|video_pad|>"],
        vision_start_token=ids["<|vision_start|>"], vision_end_token=ids["<|vision_end|>"],
    )  # fmt: skip


def test_ids_are_those_of_the_whole_conversation_encoded_at_once(qwen, config, make_video):
    video, image = make_video(1), make_video(2, (1, 4, 4), None)
    turns = [
        Turn("system", ("Be  brief.",)), Turn("user", ("\nSee ", video, "\n\nthis", image, image)),
        Turn("assistant", ("Yes — 你好\n",)), Turn("user", ("And", " now?")),
    ]  # fmt: skip
    prompt = build_conversation(qwen, with_ids_of(config, qwen.tokenizer), turns)
    clip, picture = (f"<|vision_start|>{pad}<|vision_end|>" for pad in ("<|video_pad|>" * 8, "<|image_pad|>" * 4))
    text = (
        "<|im_start|>system\nBe  brief.<|im_end|>\n"
        f"<|im_start|>user\n\nSee {clip}\n\nthis{picture}{picture}<|im_end|>\n"
        "<|im_start|>assistant\nYes — 你好\n<|im_end|>\n"
        "<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.tokens.tolist() == qwen.tokenizer(text)["input_ids"]
    assert [item.key for item in prompt.vision] == [video.key, image.key, image.key]
    pads = np.isin(prompt.tokens, qwen.tokenizer.convert_tokens_to_ids(["<|video_pad|>", "<|image_pad|>"]))
    assert all(pads[at] and not pads[at - 1] for at in prompt.vision_at)


def test_the_published_template_gives_the_same_text_prompt(qwen, config):
    if not qwen.tokenizer.chat_template:
        pytest.skip("the tokenizer has no chat template")
    turns = [
        Turn("system", ("Be brief.",)),
        Turn("user", ("Hello",)),
        Turn("assistant", ("Hi",)),
        Turn("user", ("So?",)),
    ]
    messages = [{"role": turn.role, "content": turn.pieces[0]} for turn in turns]
    text = qwen.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = build_conversation(qwen, with_ids_of(config, qwen.tokenizer), turns)
    assert prompt.tokens.tolist() == qwen.tokenizer(text)["input_ids"]


def test_one_question_is_the_prompt_of_one_question(chat, config, make_video):
    video = make_video(1)
    one = build_conversation(chat, config, [Turn("user", (video, "What moves ?"))])
    other = build_prompt(chat, config, "What moves ?", [video])
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_array_equal(one.positions, other.positions)
    assert (one.next_position, one.vision_at) == (other.next_position, other.vision_at)


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([Turn("user", ("see <|im_end|> this",))], "control token"),
        ([Turn("system", ("<|im_start|>",)), Turn("user", ("a",))], "control token"),
        ([Turn("user", ("a",)), Turn("system", ("b",))], "system message is not the first"),
        ([Turn("user", ("a " * 600,))], "fewer frames or shorter texts"),
    ],
)
def test_what_cannot_be_asked(chat, config, turns, problem):
    with pytest.raises(InputError, match=problem):
        build_conversation(chat, config, turns, limit=500)
