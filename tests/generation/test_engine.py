"""The engine against a plain full forward pass, one row and one token at a time."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from vrjax.errors import InputError, RunError
from vrjax.generation.buckets import bucket
from vrjax.generation.prompts import build_prompt
from vrjax.generation.requests import Request
from vrjax.generation.sampling import SamplingOptions
from vrjax.models.attention import Visibility, row_attention
from vrjax.models.qwen2_5_vl import vision_inputs

GREEDY = SamplingOptions(max_tokens=12, temperature=0)
WARM = SamplingOptions(max_tokens=12, temperature=0.7)


PADDED = 160  # one length for all reference passes, so that they share a program


@partial(jax.jit, static_argnums=0)
def forward(graph, params, tokens, positions, segment, features, index):
    model = nnx.merge(graph, params)
    visibility = Visibility(segment, jnp.zeros_like(segment))
    hidden, _ = model.text.run(
        model.embed(tokens, features, index),
        model.text.tables(positions),
        lambda q, k, v, memory: (row_attention(q, k, v, visibility), None),
    )
    return model.text.logits(hidden)


@partial(jax.jit, static_argnums=0)
def encode(graph, params, inputs):
    return nnx.merge(graph, params).encode(inputs)


def full_log_probs(engine, prompt, response, temperature=1.0):
    """Log-softmax of prompt and response in one pass: the reference for everything the engine records."""
    tokens = np.concatenate([prompt.tokens, response])
    extra = prompt.next_position + np.arange(len(response))
    positions = np.concatenate([prompt.positions, np.broadcast_to(extra, (3, len(response)))], axis=1)
    index = np.full(PADDED, -1)
    features = np.zeros((PADDED, engine.config.text.width), np.float32)
    if prompt.vision:
        inputs, places = vision_inputs(
            [item.patches for item in prompt.vision], [item.grid for item in prompt.vision], engine.config.vision
        )
        found = np.asarray(encode(engine.graph, engine.params, inputs))
        features[: len(found)] = found
        index[: len(prompt)] = prompt.feature_index(places)
    more = PADDED - len(tokens)
    segment = np.concatenate([np.ones(len(tokens), np.int32), np.zeros(more, np.int32)])
    logits = forward(
        engine.graph, engine.params, np.pad(tokens, (0, more))[None], np.pad(positions, ((0, 0), (0, more)))[:, None],
        segment[None], features, index[None],
    )  # fmt: skip
    logits = np.asarray(logits)[0, len(prompt) - 1 : len(tokens) - 1] / temperature
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


@pytest.fixture
def prompts(chat, config, make_video):
    return [
        build_prompt(chat, config, "What moves ?", [make_video(1)], name="one"),
        build_prompt(chat, config, "What moves then ? red red red", [make_video(2, (3, 6, 10))], name="two"),
        build_prompt(chat, config, "What stops ?", [], name="text"),
        build_prompt(chat, config, "What ?", [make_video(3, (1, 4, 8), None), make_video(1)], name="image and video"),
    ]


@pytest.mark.parametrize("unroll", [True, False])
def test_recorded_log_probs_equal_a_full_pass(make_engine, prompts, unroll):
    engine = make_engine(unroll=unroll, chunk=5)
    results = engine.generate([Request(prompt=prompt, samples=3) for prompt in prompts], WARM, seed=4)
    for prompt, samples in zip(prompts, results, strict=True):
        for sample in samples:
            wanted = full_log_probs(engine, prompt, sample.tokens, WARM.temperature)
            chosen = wanted[np.arange(len(sample.tokens)), sample.tokens]
            np.testing.assert_allclose(sample.raw_log_probs, chosen, atol=1e-5)


def test_greedy_follows_the_arg_max_of_a_full_pass(make_engine, prompts):
    engine = make_engine()
    allowed = np.asarray(engine.masks.allowed)
    for prompt in prompts:
        sample = engine.generate([Request(prompt=prompt)], GREEDY)[0][0]
        wanted = np.where(allowed, full_log_probs(engine, prompt, sample.tokens), -np.inf).argmax(-1)
        np.testing.assert_array_equal(sample.tokens, wanted)


def test_company_padding_and_chunks_change_nothing(make_engine, prompts):
    together = make_engine(chunk=3).generate([Request(prompt=p, samples=2) for p in prompts], WARM, seed=9)
    for prompt, expected in zip(prompts, together, strict=True):
        alone = make_engine(chunk=64, length_multiple=128).generate([Request(prompt=prompt, samples=2)], WARM, seed=9)
        for one, other in zip(alone[0], expected, strict=True):
            np.testing.assert_array_equal(one.tokens, other.tokens)
            np.testing.assert_allclose(one.raw_log_probs, other.raw_log_probs, atol=1e-5)


def test_order_of_results_is_the_order_of_requests(make_engine, prompts):
    engine = make_engine(batch_rows=2)
    forward = engine.generate([Request(prompt=p) for p in prompts], WARM, seed=1)
    backward = engine.generate([Request(prompt=p) for p in prompts[::-1]], WARM, seed=1)
    for one, other in zip(forward, backward[::-1], strict=True):
        np.testing.assert_array_equal(one[0].tokens, other[0].tokens)


def test_any_of_several_end_ids_stops_and_is_kept(make_engine, chat, prompts):
    engine = make_engine(fresh=True)
    free = engine.generate([Request(prompt=prompts[0], samples=8)], WARM, seed=2)[0]
    ends = {int(free[0].tokens[3]), int(free[1].tokens[5]), *chat.end_ids}
    engine.chat = dataclasses.replace(chat, end_ids=tuple(ends))
    engine.masks = dataclasses.replace(
        engine.masks, ends=jnp.isin(jnp.arange(len(engine.masks.ends)), np.array([*ends]))
    )
    stopped = engine.generate([Request(prompt=prompts[0], samples=8)], WARM, seed=2)[0]
    for before, after in zip(free, stopped, strict=True):
        hits = [i for i, token in enumerate(before.tokens.tolist()) if token in ends]
        length = hits[0] + 1 if hits else len(before.tokens)
        np.testing.assert_array_equal(after.tokens, before.tokens[:length])
        assert after.finished == bool(hits)
    assert any(int(sample.tokens[-1]) not in chat.end_ids for sample in stopped if sample.finished)


def test_finished_samples_are_left_behind_and_nothing_else_changes(make_engine, chat, prompts):
    """With ends as common as one token in eight, chunks of two tokens: few of sixteen columns run to the last one."""
    ends = jnp.arange(len(np.asarray(make_engine().masks.ends))) % 8 == 3
    options = SamplingOptions(max_tokens=24, temperature=3.0)
    requests = [Request(prompt=prompt, samples=16) for prompt in prompts[:2]]

    def drawn(chunk: int):
        engine = make_engine(fresh=True, chunk=chunk)
        engine.masks = dataclasses.replace(engine.masks, ends=ends)
        found = engine.generate(requests, options, seed=4)
        widths = [entry.shapes for entry in engine.ledger.entries if entry.program == "compact"]
        return found, widths

    at_once, none = drawn(64)
    compacted, widths = drawn(2)
    assert not none
    assert len(widths) >= 2
    for group, other in zip(at_once, compacted, strict=True):
        assert len({len(sample.tokens) for sample in group}) > 4
        for one, two in zip(group, other, strict=True):
            np.testing.assert_array_equal(one.tokens, two.tokens)
            np.testing.assert_allclose(one.raw_log_probs, two.raw_log_probs, atol=1e-5)
            assert one.finished == two.finished


def test_pads_and_unused_ids_are_never_drawn(make_engine, chat, config, prompts):
    options = SamplingOptions(max_tokens=64, temperature=5.0)
    samples = make_engine().generate([Request(prompt=prompts[0], samples=16)], options)[0]
    drawn = {int(token) for sample in samples for token in sample.tokens}
    assert not drawn & {config.video_token, config.image_token, config.vision_start_token, config.vision_end_token}
    assert max(drawn) < len(chat.tokenizer)
    assert len(drawn) > 10


def test_vision_runs_once_for_a_video_that_comes_again(make_engine, chat, config, make_video):
    engine = make_engine(fresh=True)
    calls = []
    original = engine.vision._encode_together
    engine.vision._encode_together = lambda items: calls.extend(item.key for item in items) or original(items)
    video = make_video(1)
    prompts = [build_prompt(chat, config, text, [video], name=text) for text in ("What ?", "What moves ?")]
    engine.generate([Request(prompt=p, samples=2) for p in prompts], WARM)
    engine.generate([Request(prompt=prompts[0])], WARM)
    assert calls == [video.key]


def test_images_of_a_plan_run_together_as_they_would_alone(make_engine, make_video):
    """One program for all of them, without a padded frame for each; all of them again where one has been dropped."""
    images = [dataclasses.replace(make_video(n, (1, 4, 4)), key=f"plan/{n}", together="plan") for n in range(5)]
    alone = [make_engine(fresh=True).encode([dataclasses.replace(image, together="")])[0] for image in images]
    engine = make_engine(fresh=True)
    shapes = []
    original = engine.vision.run
    engine.vision.run = lambda inputs: shapes.append(inputs.patches.shape[0]) or original(inputs)
    together = engine.encode(images)
    assert shapes == [6]
    for mine, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    engine.vision._kept.pop("plan/3")
    again = engine.encode(images)
    assert shapes == [6, 6]
    for mine, theirs in zip(again, together, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_no_compilation_after_warm_up_within_the_buckets(make_engine, chat, config, make_video):
    engine = make_engine(fresh=True)
    engine.ledger.on_unexpected = "stop"
    text = "What moves ? The red circle then stops and moves then stops"
    engine.generate([Request(prompt=build_prompt(chat, config, text, [make_video(1, (4, 4, 4))]))], WARM)
    engine.ledger.freeze()
    engine.generate([Request(prompt=build_prompt(chat, config, text, [make_video(2, (3, 4, 4))]))], WARM)
    with pytest.raises(RunError, match="compiled again"):
        engine.generate([Request(prompt=build_prompt(chat, config, "What ?", [make_video(3, (4, 20, 20))]))], WARM)


@pytest.mark.slow
def test_mixed_clip_lengths_compile_nothing_new_and_pad_little(make_engine, chat, config, make_video):
    """Warm-up on clips of 8 to 40 temporal patches; then clips of lengths that were not among them."""
    engine = make_engine(fresh=True, length_multiple=16, batch_rows=4)
    words = ["What moves ?", "What moves then ? The red circle", "The red square then stops and moves ?"]

    def ask(lengths, seed):
        prompts = [
            build_prompt(chat, config, words[n % 3], [make_video(seed + n, (t, 4, 8))], name=f"{seed} {n}")
            for n, t in enumerate(lengths)
        ]
        engine.generate([Request(prompt=prompt) for prompt in prompts], SamplingOptions(max_tokens=4))

    ask([t for t in range(8, 42, 2) for _ in range(4)], seed=0)
    engine.ledger.freeze()
    engine.ledger.on_unexpected = "stop"
    engine.padding.used.clear()
    engine.padding.computed.clear()
    held_out = np.random.default_rng(5).integers(8, 41, 60).tolist()
    ask(held_out, seed=1000)
    assert not engine.ledger.unexpected()
    assert engine.padding.share <= 0.20


def test_a_prompt_beyond_the_context_is_refused_by_name(make_engine, chat, config, make_video):
    prompt = build_prompt(chat, config, "What ?", [make_video(1, (60, 8, 8))], name="long one")
    with pytest.raises(InputError, match=r"long one.*exceed the model's context of 512"):
        make_engine().generate([Request(prompt=prompt)], GREEDY)


@pytest.mark.parametrize("length", [1, 31, 33, 300, 1090, 7000, 100_000])
def test_buckets_pad_by_at_most_an_eighth(length):
    size = bucket(length, 32)
    assert length <= size < length + 32 or (size - length) / size <= 1 / 8
