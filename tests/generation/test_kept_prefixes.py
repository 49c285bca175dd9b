"""Prompts that begin as earlier ones did: the same logits, samples and answers as without, and far fewer tokens."""

from __future__ import annotations

import asyncio
import dataclasses
import io

import jax
import numpy as np
import pytest
from PIL import Image as Picture

from tests.generation.test_llama_against_transformers import chat as llama_chat  # noqa: F401  (fixture)
from tests.models.llama_reference import CONFIGS, VOCABULARY, build
from vrjax.generation import (
    Engine,
    EngineOptions,
    Prompt,
    Request,
    SamplingOptions,
    Turn,
    build_conversation,
)
from vrjax.generation.kept_prefixes import BLOCK, KeptPrefixes, block_names
from vrjax.generation.prefix_extension import prefill_from_kept, reusable, tail_of
from vrjax.llm import ChatRequest, Image, Message, NativeChat
from vrjax.loading import LoadedModel

GREEDY = SamplingOptions(max_tokens=8, temperature=0)
WORDS = ["What", "moves", "?", "The", "red", "circle", "square", "then", "stops", "and"]


def words(count: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


@pytest.fixture(scope="module")
def model(config, split_model, chat):
    longer = dataclasses.replace(config, text=dataclasses.replace(config.text, max_positions=8192))
    return LoadedModel(longer, *split_model, chat)


@pytest.fixture(scope="module")
def make(model):
    """A fresh engine with room for prefixes, and one without."""

    def engine(most: int = 1 << 28) -> Engine:
        return Engine(model, EngineOptions(prefix_cache_bytes=most))

    return engine


@pytest.fixture(scope="module")
def talk(model, make_video):
    """The first `turns` turns of a conversation about a video, with pictures shown on the way, as prompts."""

    def prompts(turns: int, seed: int = 0) -> list[Prompt]:
        said = [Turn("system", (words(60, seed),)), Turn("user", (make_video(seed), words(5, seed + 1)))]
        found = []
        for number in range(turns):
            found.append(build_conversation(model.chat, model.config, said, name=f"{seed}, {number}"))
            said.append(Turn("assistant", (words(9, seed + number),)))
            image = (make_video(seed + number, (1, 4, 4), None),) if number % 2 == 0 else ()
            said.append(Turn("user", (words(4, seed + number), *image, words(6, number))))
        return found

    return prompts


def test_blocks_are_named_by_all_that_stands_before_them(talk, make_video):
    one, other = talk(2)
    names, more = block_names(one), block_names(other)
    assert len(names) == len(one) // BLOCK
    whole = min(len(one), len(other)) // BLOCK - 1
    assert names[:whole] == more[:whole]
    changed = dataclasses.replace(one, vision=(make_video(7),))
    assert block_names(changed)[: one.vision_at[0] // BLOCK] == names[: one.vision_at[0] // BLOCK]
    assert not set(block_names(changed)[one.vision_at[0] // BLOCK :]) & set(names)
    moved = dataclasses.replace(one, positions=one.positions + 1)
    assert not set(block_names(moved)) & set(names)


def test_a_picture_is_run_whole_or_not_at_all(model, make_video):
    """Wherever a block may end, among a picture's tokens too."""
    within = 0
    for extra in range(BLOCK):
        turns = [Turn("system", (words(20 + extra, 1),)), Turn("user", (make_video(3, (2, 8, 8)), words(3, 2)))]
        prompt = build_conversation(model.chat, model.config, turns)
        kept, names = KeptPrefixes(1 << 20), block_names(prompt)
        for name in names:
            kept.keep(name, np.zeros(1), np.zeros(1))
        blocks, most = reusable(kept, prompt, names, unit=4), (len(prompt) - 1) // BLOCK
        first, last = prompt.vision_at[0], prompt.vision_at[0] + 32
        tail = tail_of(prompt, blocks * BLOCK)
        assert (tail.tokens == model.config.video_token).sum() == 32 * len(tail.vision)
        assert [place + blocks * BLOCK for place in tail.vision_at] in ([], [first])
        cut = first < most * BLOCK < last
        assert blocks == (first // BLOCK if cut else most)
        within += cut
    assert within > 2


def test_logits_equal_those_of_a_full_prefill(make, talk):
    """Two conversations of different lengths in one batch, turn after turn, videos and pictures among them."""
    engine, plain = make(), make(0)
    for pair in zip(talk(4), talk(4, seed=50), strict=True):
        prompts = [pair[0], dataclasses.replace(pair[1])]
        prefix = prefill_from_kept(engine, prompts, [True, True], 2)
        wanted = plain.prefill(prompts)
        np.testing.assert_allclose(np.asarray(prefix.logits), np.asarray(wanted.logits), atol=1e-4)
        assert np.asarray(wanted.logits).std() > 0.1
        np.testing.assert_array_equal(np.asarray(prefix.mask).sum(1), [len(prompt) for prompt in prompts])
    assert engine.kept is not None
    assert engine.kept.reused > 300
    assert [entry.program for entry in engine.ledger.entries].count("extend") > 0


@pytest.mark.parametrize("unroll", [True, False], ids=["unrolled", "scanned"])
def test_llamas_too(llama_chat, unroll):  # noqa: F811
    reference = build(CONFIGS["tied, scaled"], seed=3)
    model = LoadedModel(reference.config, reference.graph, reference.params, llama_chat)
    engine = Engine(model, EngineOptions(prefix_cache_bytes=1 << 26, unroll=unroll))
    tokens = np.random.default_rng(0).integers(0, VOCABULARY - 1, 100).astype(np.int32)
    for length in (40, 61, 100):
        prompt = Prompt(tokens[:length], np.arange(length, dtype=np.int32)[None], length)
        prefix = prefill_from_kept(engine, [prompt], [True], 1)
        wanted = reference.torch_logits([tokens[:length]])[0, -1]
        assert np.abs(np.asarray(prefix.logits)[0] - wanted).max() <= 1e-4 * max(1.0, wanted.std())
    assert engine.kept is not None
    assert engine.kept.reused == 32 + 48


@pytest.mark.slow
def test_eight_steps_prefill_little_more_than_the_last_prompt(make, model):
    """A prompt of 1,000 tokens and eight steps: at most 1.3 times the final history, where all is about 5 times."""
    engine = make()
    said = [Turn("system", (words(990, 1),)), Turn("user", (words(6, 2),))]
    lengths = []
    for step in range(8):
        prompt = build_conversation(model.chat, model.config, said, name="agent")
        lengths.append(len(prompt))
        sample = engine.generate([Request(prompt=prompt, keep=True)], GREEDY)[0][0]
        said += [Turn("assistant", (words(30, step),)), Turn("user", (words(50, step),))]
    shares = {name: sum(part.values()) / lengths[-1] for name, part in
              (("used", engine.padding.used), ("computed", engine.padding.computed))}  # fmt: skip
    print(f"prefilled over the last prompt: {shares}, without reuse {sum(lengths) / lengths[-1]:.2f}")
    assert lengths[0] > 1000
    assert engine.padding.used["prefill"] <= 1.3 * lengths[-1]
    assert engine.padding.computed["prefill"] <= 1.5 * lengths[-1]
    assert sum(lengths) > 5 * lengths[-1]
    assert engine.kept is not None
    assert engine.kept.reused == sum(lengths) - engine.padding.used["prefill"]
    np.testing.assert_array_equal(sample.tokens, make(0).generate([Request(prompt=prompt)], GREEDY)[0][0].tokens)


@pytest.mark.slow
def test_traces_in_a_batch_are_those_run_alone(make, talk):
    traces = [talk(2, seed) for seed in (0, 50, 90)]
    sampling = SamplingOptions(max_tokens=8, temperature=0.7)
    together, alone = make(), make()
    for turn in zip(*traces, strict=True):
        requests = [Request(prompt=prompt, keep=True, samples=2) for prompt in turn]
        batch = together.generate(requests, sampling, seed=3)
        for request, samples in zip(requests, batch, strict=True):
            (wanted,) = alone.generate([request], sampling, seed=3)
            for one, two in zip(samples, wanted, strict=True):
                np.testing.assert_array_equal(one.tokens, two.tokens)
                np.testing.assert_allclose(one.raw_log_probs, two.raw_log_probs, atol=1e-4)


def test_room_is_bounded_and_new_weights_forget(make, talk, model):
    prompts = talk(3)
    engine = make()
    assert engine.kept is not None
    engine.generate([Request(prompt=prompts[0])], GREEDY)
    assert len(engine.kept) == 0  # nobody asked for it
    engine.generate([Request(prompt=prompts[-1], keep=True)], GREEDY)
    size, count = engine.kept.bytes, len(engine.kept)
    assert count == len(prompts[-1]) // BLOCK
    small = make(size // 2)
    assert small.kept is not None
    small.generate([Request(prompt=prompts[-1], keep=True)], GREEDY)
    assert small.kept.bytes <= size // 2
    assert small.kept.dropped == count - len(small.kept) > 0
    names = block_names(prompts[-1])
    assert small.kept.leading(names) == len(small.kept)  # a prompt's end goes before its beginning
    engine.set_params(jax.tree.map(lambda x: x * 1.1, model.params))
    assert (len(engine.kept), engine.kept.bytes) == (0, 0)


@pytest.mark.slow
def test_a_chat_goes_on_from_its_own_history_and_encodes_a_picture_once(model):
    png = io.BytesIO()
    Picture.fromarray(np.random.default_rng(0).integers(0, 255, (56, 56, 3), np.uint8)).save(png, "PNG")
    picture = Image(png.getvalue())
    turns = [Message.system(words(50, 1)), Message.user(picture, words(4, 2)), Message.assistant(words(5, 3)),
             Message.user(words(4, 4), picture)]  # fmt: skip
    asked = [turns[:2], turns[:4], turns[1:2], turns[1:4]]
    with NativeChat(model) as reusing, NativeChat(model, prefix_bytes=0) as plain:
        for messages in asked:
            request = ChatRequest(messages=tuple(messages), max_tokens=8)
            replies = [asyncio.run(one.complete(request)) for one in (reusing, plain)]
            assert replies[0].texts == replies[1].texts
        kept = reusing.engine.kept
        assert kept is not None
        assert plain.engine.kept is None
        assert kept.reused > 50
        patches = reusing.engine.padding.used["vision"]
    assert patches == plain.engine.padding.used["vision"] == 4 * 4
