"""Our own engine as a chat: multi-turn prompts token by token, batches, and single failures."""

import asyncio
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image as Picture

from tests.generation.conftest import (  # noqa: F401  (fixtures)
    chat,
    config,
    split_model,
)
from tests.video.conftest import write_clip
from vrjax.generation import Engine, EngineOptions, Request, SamplingOptions, build_prompt
from vrjax.llm import ChatClient, ChatReply, ChatRequest, Frames, Image, Message, NativeChat
from vrjax.loading import LoadedModel
from vrjax.video import FrameOptions

SMALL = FrameOptions(frames=4, min_pixels=28 * 28, max_pixels=4 * 28 * 28)


def request(*parts, **options) -> ChatRequest:
    return ChatRequest(messages=(Message.user(*parts),), **{"max_tokens": 8, **options})


@pytest.fixture(scope="module")
def native(config, split_model, chat):  # noqa: F811
    model = LoadedModel(config, *split_model, chat)
    with NativeChat(model, engine=Engine(model, EngineOptions(length_multiple=64))) as found:
        yield found


def test_replies_are_those_of_the_engine_and_requests_that_wait_together_go_together(native, config, chat):  # noqa: F811
    words = ["What moves ?", "The red circle stops", "a square", "then stops and", "You are helpful"]
    batches = []
    generate = native.engine.generate

    def counted(requests, *arguments, **options):
        batches.append(len(requests))
        return generate(requests, *arguments, **options)

    native.engine.generate = counted
    try:
        client = ChatClient(native, timeout_s=None)
        replies = asyncio.run(client.complete_all([request(text) for text in words]))
    finally:
        native.engine.generate = generate
    assert sum(batches) == len(words)
    assert len(batches) < len(words)
    greedy = SamplingOptions(max_tokens=8, temperature=0)
    for text, reply in zip(words, replies, strict=True):
        prompt = build_prompt(chat, config, text)
        (sample,) = generate([Request(prompt=prompt)], greedy)[0]
        assert reply.text == sample.text
        assert reply.usage.prompt_tokens == len(prompt)
        assert reply.usage.completion_tokens == len(sample.tokens)
        assert reply.finish_reasons == ("stop" if sample.finished else "length",)


def test_draws_depend_on_the_request_alone(native):
    drawn = request("What moves ?", temperature=1.0, samples=3, seed=5)

    async def alone():
        return await native.complete(drawn)

    async def in_company():
        others = [request(f"{word} stops", temperature=1.0, seed=5) for word in ("red", "circle")]
        return (await asyncio.gather(*(native.complete(one) for one in [*others, drawn])))[-1]

    first, second = asyncio.run(alone()), asyncio.run(in_company())
    assert first.texts == second.texts
    assert len(set(first.texts)) > 1
    assert asyncio.run(native.complete(dataclasses.replace(drawn, seed=6))).texts != first.texts


def test_frames_and_images_reach_the_model(native, tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", range(40))
    png = io.BytesIO()
    Picture.fromarray(np.random.default_rng(0).integers(0, 255, (56, 84, 3), np.uint8)).save(png, "PNG")
    plain = request("What moves ?", max_tokens=4)
    seen = request(Frames(clip, SMALL), "What moves ?", max_tokens=4)
    shown = request(Image(png.getvalue()), "What moves ?", max_tokens=4)
    replies = asyncio.run(ChatClient(native, timeout_s=None).complete_all([plain, seen, shown]))
    bare, framed, pictured = (reply.usage.prompt_tokens for reply in replies)
    # 128x96 pixels become 56x28: 2x1 merged tokens, 2 temporal patches; 84x56 is 3x2 merged; each between two marks
    assert framed - bare == 2 * 2 + 2
    assert pictured - bare == 3 * 2 + 2


def test_one_bad_request_does_not_touch_its_neighbours(native, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"nothing")
    asked = [
        request("What moves ?"), request(Frames(tmp_path / "broken.mp4", SMALL), "What ?"), request("see <|im_end|>"),
        request("a " * 600), request(Image(b"no image")), request("a square"),
        request(Frames(tmp_path / "broken.mp4", dataclasses.replace(SMALL, patch_size=16))),
    ]  # fmt: skip
    replies = asyncio.run(ChatClient(native, timeout_s=None).complete_all(asked))
    assert [isinstance(reply, ChatReply) for reply in replies] == [True, False, False, False, False, True, False]
    assert {replies[n].kind for n in (1, 2, 3, 4, 6)} == {"bad_request"}
    assert "broken.mp4" in str(replies[1])
    assert "merge sizes" in str(replies[6])


def test_an_engine_that_fails_is_an_error_of_the_requests(native):
    generate = native.engine.generate
    native.engine.generate = lambda *_, **__: 1 / 0
    try:
        (reply,) = asyncio.run(ChatClient(native, attempts=1).complete_all([request("What moves ?")]))
    finally:
        native.engine.generate = generate
    assert reply.kind == "backend"
    assert "ZeroDivisionError" in str(reply)


def test_a_closed_chat_answers_nobody_and_keeps_nobody_waiting(config, split_model, chat):  # noqa: F811
    closed = NativeChat(LoadedModel(config, *split_model, chat))
    closed.close()
    (reply,) = asyncio.run(ChatClient(closed, attempts=1).complete_all([request("What moves ?")]))
    assert "was closed" in str(reply)


def test_a_schema_is_described_in_the_prompt(native):
    plain = asyncio.run(native.complete(request("What moves ?")))
    bound = asyncio.run(native.complete(request("What moves ?", schema={"type": "object"})))
    assert bound.usage.prompt_tokens > plain.usage.prompt_tokens


def test_other_weights_have_another_name_and_the_same_ones_the_same(native, config, split_model, chat):  # noqa: F811
    import jax

    graph, params = split_model
    with NativeChat(LoadedModel(config, graph, params, chat)) as same:
        assert same.name == native.name
    changed = jax.tree.map(lambda x: x, params)
    leaves, tree = jax.tree.flatten(changed)
    leaves[3] = leaves[3].at[(0,) * leaves[3].ndim].add(1e-3)
    with NativeChat(LoadedModel(config, graph, jax.tree.unflatten(tree, leaves), chat)) as other:
        assert other.name != native.name
