"""SmolLM2-135M's real weights: logits and greedy text against transformers, and as a chat."""

import asyncio
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vrjax
from tests.models.llama_reference import forward
from vrjax.generation import Engine, Request, SamplingOptions, Turn, build_conversation
from vrjax.llm import ChatRequest, Message, NativeChat

pytestmark = pytest.mark.slow
QUESTIONS = ["Tell me how bread is baked, step by step.", "What is 12 + 7? Explain.", "Write a short poem on the sea."]


@pytest.fixture(scope="module")
def model(smollm2):
    return vrjax.load(smollm2)


@pytest.fixture(scope="module")
def peer(smollm2):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


def test_logits_on_512_real_tokens(model, peer, record_property):
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    tokens = np.asarray(model.chat.marks(text)[:512], np.int32)[None]
    assert tokens.shape == (1, 512)
    run = jax.jit(lambda params, *arrays: forward(nnx.merge(model.graph, params), *arrays))
    ours = np.asarray(run(model.params, tokens, jnp.ones_like(tokens)))
    with torch.no_grad():
        theirs = peer(input_ids=torch.tensor(tokens).long()).logits.numpy()
    found = float(np.abs(ours - theirs).max())
    record_property("logits", found)
    assert theirs.std() > 3
    assert found <= 1e-3
    # A language model, not noise: a text that is everywhere costs it far less than log 49,152 = 10.8 a token.
    log_probs = torch.log_softmax(torch.tensor(ours[0, :-1]), -1).numpy()
    assert -log_probs[np.arange(511), tokens[0, 1:]].mean() < 3


def test_128_greedy_tokens_are_those_of_transformers(model, peer):
    """Three questions in one batch; its own chat template writes the same prompts."""
    engine = Engine(model)
    assert engine.unroll
    prompts = [build_conversation(model.chat, model.config, [Turn("user", (text,))]) for text in QUESTIONS]
    options = SamplingOptions(max_tokens=128, temperature=0)
    samples = [found[0] for found in engine.generate([Request(prompt=prompt) for prompt in prompts], options)]
    for question, prompt, sample in zip(QUESTIONS, prompts, samples, strict=True):
        messages = [{"role": "user", "content": question}]
        inputs = model.chat.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        assert inputs["input_ids"][0].tolist() == prompt.tokens.tolist()
        with torch.no_grad():
            out = peer.generate(**inputs, do_sample=False, max_new_tokens=128)[0, len(prompt) :]
        assert sample.tokens.tolist() == out.tolist()
        assert sample.text == model.chat.tokenizer.decode(out, skip_special_tokens=True)
        assert len(sample.tokens) == 128 or sample.finished


def test_it_answers_as_a_chat(model):
    with NativeChat(model) as native:
        request = ChatRequest(messages=(Message.user("What is the capital of France?"),), max_tokens=32)
        reply = asyncio.run(native.complete(request))
    assert "Paris" in reply.text
