"""Beam search against a list-based one, exhaustive search, greedy decoding, and transformers' beams."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from vrjax.errors import InputError
from vrjax.generation.beam_search import RULES, BeamOptions, top_continuations
from vrjax.generation.chat_forms import PLAIN
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import ChatTokenizer, Prompt, build_prompt
from vrjax.generation.requests import EngineOptions, Request
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import LoadedModel
from vrjax.models.attention import Visibility, row_attention
from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig, VisionConfig


def toy_engine(words: int, ends: tuple[int, ...], seed: int = 0, **options) -> Engine:
    """A real decoder over a handful of tokens, with logits far enough apart that beams differ."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    chat = ChatTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer), ends, 0, PLAIN, frozenset())
    config = Qwen2_5VLConfig(
        text=DecoderConfig(
            vocabulary=words, width=16, layers=2, heads=2, kv_heads=1, head_size=8, mlp=24, norm_eps=1e-6,
            rope_theta=1e4, tied=False, qkv_bias=True, max_positions=128, sections=(1, 2, 1),
        ),
        vision=VisionConfig(
            layers=1, width=16, heads=2, mlp=24, out_width=16, full_layers=(0,), window=4, tokens_per_second=2
        ),
        image_token=0, video_token=0, vision_start_token=0, vision_end_token=0,
    )  # fmt: skip
    graph, params = nnx.split(Qwen2_5VL(config, nnx.Rngs(seed)))
    keys = iter(jax.random.split(jax.random.key(seed), 100))
    params = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(keys), x.shape), params)
    return Engine(LoadedModel(config, graph, params, chat), EngineOptions(**options))


def toy_prompt(*tokens: int) -> Prompt:
    positions = np.broadcast_to(np.arange(len(tokens), dtype=np.int32), (3, len(tokens)))
    return Prompt(np.asarray(tokens, np.int32), positions, len(tokens), name=str(tokens))


def log_prob_table(engine: Engine, prompt: Prompt, length: int) -> dict[tuple[int, ...], np.ndarray]:
    """Log-probs of the next token behind every response shorter than `length`, each from a full forward pass."""
    words = engine.config.text.vocabulary
    table = {}

    @jax.jit
    def forward(tokens):
        model = nnx.merge(engine.graph, engine.params)
        visibility = Visibility(jnp.ones_like(tokens), jnp.zeros_like(tokens))
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), (3, *tokens.shape))
        hidden, _ = model.text.run(
            model.text.embed(tokens), model.text.tables(positions),
            lambda q, k, v, memory: (row_attention(q, k, v, visibility), None),
        )  # fmt: skip
        return jax.nn.log_softmax(model.text.logits(hidden[:, -1]))

    for n in range(length):
        responses = list(itertools.product(range(words), repeat=n))
        tokens = np.array([[*prompt.tokens, *response] for response in responses], np.int32)
        for response, row in zip(responses, np.asarray(forward(tokens), np.float64), strict=True):
            table[response] = row
    return table


def naive_beams(table, ends, k, length, penalty, rule) -> list[tuple[float, tuple[int, ...]]]:
    """Beam search as a person would write it, on lists."""
    running, finished = [(0.0, ())], []
    for step in range(1, length + 1):
        grown = [
            (total + log_prob, (*response, token))
            for total, response in running
            for token, log_prob in enumerate(table[response])
        ]
        grown.sort(key=lambda pair: -pair[0])
        running = []
        for rank, (total, response) in enumerate(grown):
            if response[-1] in ends or step == length:
                if rank < k:
                    finished.append((total / step**penalty, response))
            elif len(running) < k:
                running.append((total, response))
        finished = sorted(finished, key=lambda pair: -pair[0])[:k]
        if not running:
            break
        if len(finished) == k:
            final = length if rule == "never" and penalty > 0 else step
            if rule is True or finished[-1][0] >= running[0][0] / final**penalty:
                break
    return finished


def check(found, want) -> None:
    assert [tuple(beam.tokens.tolist()) for beam in found] == [response for _, response in want]
    np.testing.assert_allclose([beam.score for beam in found], [score for score, _ in want], atol=1e-5)


@pytest.mark.parametrize(
    ("ends", "widths", "lengths"),
    [
        ((1, 4), (1, 3, 5), (1, 4, 6)),
        pytest.param((1, 4), range(1, 6), range(1, 7), marks=pytest.mark.slow),
        pytest.param((4,), range(1, 6), range(1, 7), marks=pytest.mark.slow),
    ],
    ids=["some", "two ends", "one end"],
)
def test_five_tokens_against_lists(ends, widths, lengths):
    engine = toy_engine(5, ends, seed=len(ends))
    prompts = [toy_prompt(0, 2, 3), toy_prompt(3, 3, 1, 0, 2)]
    tables = [log_prob_table(engine, prompt, 6) for prompt in prompts]
    stopped_early = 0
    for k, length, penalty, rule in itertools.product(widths, lengths, (0.0, 0.5, 1.0, 2.0), RULES):
        options = BeamOptions(beams=k, max_tokens=length, length_penalty=penalty, early_stopping=rule)
        for found, table in zip(engine.beam_search(prompts, options), tables, strict=True):
            want = naive_beams(table, ends, k, length, penalty, rule)
            check(found, want)
            stopped_early += all(len(response) < length for _, response in want)
            for beam in found:
                response = tuple(beam.tokens.tolist())
                each = [table[response[:n]][token] for n, token in enumerate(response)]
                np.testing.assert_allclose(beam.log_probs, each, atol=1e-5)
                assert beam.finished == (response[-1] in ends)
    assert stopped_early > 10


def test_every_prefix_held_is_exhaustive_search():
    ends, length, penalty = (2,), 4, 0.7
    engine = toy_engine(3, ends, seed=5)
    table = log_prob_table(engine, toy_prompt(0, 1), length)
    every = []
    for n in range(1, length + 1):
        for response in itertools.product(range(3), repeat=n):
            if not set(response[:-1]) & set(ends) and (response[-1] in ends or n == length):
                total = sum(table[response[:i]][token] for i, token in enumerate(response))
                every.append((total / n**penalty, response))
    options = BeamOptions(beams=81, max_tokens=length, length_penalty=penalty)
    found = engine.beam_search([toy_prompt(0, 1)], options)[0]
    check(found, sorted(every, reverse=True))
    assert len(found) == 1 + 2 + 4 + 24


def test_one_beam_is_greedy(make_engine, chat, config, make_video):
    engine = make_engine()
    prompts = [build_prompt(chat, config, f"What moves {word} ?", [make_video(1)]) for word in ("then", "red", "01")]
    greedy = engine.generate(
        [Request(prompt=prompt) for prompt in prompts], SamplingOptions(max_tokens=12, temperature=0)
    )
    for found, want in zip(engine.beam_search(prompts, BeamOptions(beams=1, max_tokens=12)), greedy, strict=True):
        np.testing.assert_array_equal(found[0].tokens, want[0].tokens)
        np.testing.assert_allclose(found[0].log_probs, want[0].raw_log_probs, atol=1e-5)


@pytest.mark.parametrize("unroll", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_batches_change_nothing(make_engine, chat, config, make_video, unroll):
    engine = make_engine(unroll=unroll, batch_rows=6)
    prompts = [
        build_prompt(chat, config, "What ?", [make_video(1)]),
        build_prompt(chat, config, "What moves then ? red red red", [make_video(2, (3, 6, 10))]),
        build_prompt(chat, config, "What stops ?", []),
    ]
    options = BeamOptions(beams=3, max_tokens=9, returned=2)
    seen: list[int] = []
    together = engine.beam_search(prompts, options, on_finished=lambda number, _: seen.append(number))
    assert sorted(seen) == [0, 1, 2]
    for prompt, found in zip(prompts, together, strict=True):
        alone = engine.beam_search([prompt], options)[0]
        assert [beam.text for beam in found] == [beam.text for beam in alone]
        assert len(found) == 2
        assert found[0].score >= found[1].score


def test_min_tokens_and_banned_ids():
    engine = toy_engine(5, (4,), seed=1)
    prompt = toy_prompt(0, 2)
    for beam in engine.beam_search([prompt], BeamOptions(beams=4, max_tokens=6, min_tokens=5, banned=(0, 3)))[0]:
        assert not set(beam.tokens.tolist()) & {0, 3}
        assert 4 not in beam.tokens[:5].tolist()


def test_bad_options_are_named():
    engine = toy_engine(5, (4,))
    with pytest.raises(InputError, match="must be at least 1"):
        BeamOptions(beams=0)
    with pytest.raises(InputError, match="k >= n"):
        BeamOptions(beams=2, returned=3)
    with pytest.raises(InputError, match="early_stopping 'always'"):
        BeamOptions(early_stopping="always")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="finite"):
        BeamOptions(length_penalty=float("nan"))
    with pytest.raises(InputError, match=r"\[7\] are not in the vocabulary"):
        engine.beam_search([toy_prompt(0)], BeamOptions(banned=(7,), max_tokens=3))
    with pytest.raises(InputError, match="exceed the model's context of 128"):
        engine.beam_search([toy_prompt(0)], BeamOptions(max_tokens=128))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.sampled_from([1, 4, 15]), levels=st.sampled_from([2, 50, 10**6]))
def test_top_continuations_are_the_sorted_ones(seed, count, levels):
    """Also among many equal numbers: those that stand first win."""
    scores = np.random.default_rng(seed).integers(0, levels, (2, 40 * 128 - 17)).astype(np.float32)
    values, place = top_continuations(jnp.asarray(scores), count)
    want = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(place, want)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, want, 1))
