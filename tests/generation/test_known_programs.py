"""What an engine is said to compile, against what its ledger holds after generating."""

import re

import jax
import numpy as np

from vrjax.generation.known_programs import engine_programs, narrower
from vrjax.generation.prompts import build_prompt
from vrjax.generation.requests import Request
from vrjax.generation.sampling import SamplingOptions


def test_all_that_is_compiled_was_known(make_engine, chat, config, make_video):
    grids = [(2, 4, 4), (3, 6, 10), (1, 4, 8)]
    engine = make_engine(fresh=True, chunk=4, batch_rows=12, length_multiple=16)
    prompts = [
        build_prompt(chat, config, "What moves ? " + "red " * count, [make_video(count, grid)], name=str(count))
        for count, grid in zip((1, 12, 30), grids, strict=True)
    ]
    sampling = SamplingOptions(max_tokens=24, temperature=1.0)
    for seed, asked in enumerate((prompts, prompts[:1], prompts[1:], prompts)):
        engine.generate([Request(prompt=prompt, samples=6) for prompt in asked], sampling, seed=seed)
    known = engine_programs(
        engine.options, config.vision, grids=[(grid,) for grid in grids], lengths=[len(prompt) for prompt in prompts],
        requests=3, samples=6, sampling=sampling,
    )  # fmt: skip
    compiled = set(engine.ledger.asked)
    assert {name for name, _ in compiled} >= {"vision", "prefill", "start", "decode", "compact"}
    assert compiled <= known, compiled - known


def test_widths_that_finished_samples_can_leave():
    assert narrower(8) == [1, 2, 4]
    assert narrower(6) == [1, 2]
    assert narrower(1) == []


def test_no_word_with_the_host_while_tokens_are_drawn(make_engine, chat, config):
    """24 tokens in chunks of 8 are 3 calls of one program, in which nothing leaves the device."""
    engine = make_engine(fresh=True, chunk=8, batch_rows=4)
    prompt = build_prompt(chat, config, "What moves ?", [], name="text")
    sampling = SamplingOptions(max_tokens=24, min_tokens=24, temperature=1.0)
    (samples,) = engine.generate([Request(prompt=prompt, samples=2)], sampling)
    assert [len(sample.tokens) for sample in samples] == [24, 24]
    (decode,) = [(program, calls) for program, calls in engine.ledger.asked.items() if program[0] == "decode"]
    assert decode[1] == 24 // 8
    assert engine.turns == {decode[0]: 23}  # the first token comes with the start
    assert not host_words(engine.ledger.text(*decode[0]))

    def talks(x):
        jax.debug.callback(lambda value: None, x)
        return x + 1

    assert host_words(jax.jit(talks).lower(np.float32(1)).compile().as_text())


def host_words(text: str) -> list[str]:
    return re.findall(r"infeed|outfeed|send\(|recv\(|callback|host_compute", text)
