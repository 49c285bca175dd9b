"""Models that read text alone as chats: from a directory, in their own chat form, and what they are not asked."""

import asyncio
import io

import numpy as np
import pytest
from PIL import Image as Picture

from tests.checkpoints.test_llama_loading import make_tokenizer
from tests.models.llama_reference import CONFIGS, build
from tests.video.conftest import write_clip
from vrjax.errors import InputError
from vrjax.evaluation.responder import Ask, Responder
from vrjax.generation import ChatTokenizer, Engine, Request, SamplingOptions, Turn, build_conversation
from vrjax.llm import ChatClient, ChatReply, ChatRequest, Frames, Image, Message, parse_llm
from vrjax.loading import LoadedModel, load, save


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A tiny Llama with a tokenizer in Llama 3's form; its template has no default system text."""
    folder = tmp_path_factory.mktemp("llama") / "model"
    reference = build(CONFIGS["tied, scaled"], seed=8)
    save(LoadedModel(reference.config, reference.graph, reference.params, ChatTokenizer.of(make_tokenizer())), folder)
    return folder


@pytest.fixture(scope="module")
def native(directory):
    with parse_llm(f"native:{directory}") as found:
        yield found


def ask(native, *messages: Message, **options):
    request = ChatRequest(messages=messages, **{"max_tokens": 8, **options})
    return asyncio.run(native.complete(request))


def test_replies_are_those_of_the_engine_on_the_conversation(native, directory):
    model = load(directory)
    turns = [Turn("system", ("w1 w2",)), Turn("user", ("w3",)), Turn("assistant", ("w4",)), Turn("user", ("w5 w6",))]
    prompt = build_conversation(model.chat, model.config, turns)
    tokens = model.chat.tokenizer.convert_ids_to_tokens(prompt.tokens.tolist())
    assert tokens[:5] == ["<|begin_of_text|>", "<|start_header_id|>", "system", "<|end_header_id|>", "w1"]
    (sample,) = Engine(model).generate([Request(prompt=prompt)], SamplingOptions(max_tokens=8, temperature=0))[0]
    messages = [Message(turn.role, Message.user(*turn.pieces).parts) for turn in turns]
    reply = ask(native, *messages)
    assert reply.text == sample.text
    assert reply.usage.prompt_tokens == len(prompt)
    assert ask(native, Message.user("w3"), temperature=1.0, seed=1).text != reply.text


def test_images_and_frames_are_refused_and_touch_nobody_else(native, tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", range(8))
    png = io.BytesIO()
    Picture.fromarray(np.zeros((28, 28, 3), np.uint8)).save(png, "PNG")
    requests = [
        ChatRequest(messages=(Message.user(*parts),), max_tokens=4)
        for parts in (("w3",), (Image(png.getvalue()), "w3"), (Frames(clip), "w3"), ("w4",))
    ]
    replies = asyncio.run(ChatClient(native, timeout_s=None).complete_all(requests))
    assert [isinstance(reply, ChatReply) for reply in replies] == [True, False, False, True]
    for reply in replies[1:3]:
        assert reply.kind == "bad_request"
        assert "the model reads text alone" in str(reply)


def test_the_context_is_the_model_s(native):
    with pytest.raises(InputError, match="fit the model's context"):
        ask(native, Message.user("w3 " * 4100))


def test_a_responder_says_what_a_text_model_cannot_see(directory, tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", range(8))
    asks = [Ask("seen", "w3 w4", clip), Ask("text", "w3 w4", None)]
    seen, text = Responder(load(directory)).ask(asks, SamplingOptions(max_tokens=4, temperature=0))
    assert "the model reads text alone" in str(seen.problem)
    assert text.problem is None
    assert len(text.samples) == 1
