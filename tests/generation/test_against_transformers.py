"""A prompt, then 64 greedy steps: the same ids as transformers would take, and the same logits on the way."""

import numpy as np
import pytest

from tests.models.reference import Prompt as ReferencePrompt
from tests.models.reference import build_reference, compose, tiny_config
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import ChatTokenizer, Prompt, Vision
from vrjax.generation.requests import Request
from vrjax.generation.sampling import SamplingOptions
from vrjax.loading import LoadedModel

STEPS = 64
MARKS = {190: "<|image_pad|>", 191: "<|video_pad|>", 192: "<|vision_start|>", 193: "<|vision_end|>",
         194: "<|im_start|>", 195: "<|im_end|>", 196: "<|endoftext|>"}  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def reference(request):
    return build_reference(tiny_config(tied=request.param, layers=4, full_layers=(1, 3)), seed=3)


@pytest.fixture(scope="module")
def chat():
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {MARKS.get(index, f"w{index}"): index for index in range(200)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS.values()])
    return ChatTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=tokenizer))


def as_prompt(prompt: ReferencePrompt, reference) -> Prompt:
    positions, following = prompt.positions(reference.config)
    vision = [Vision(clip.patches, clip.grid, clip.seconds, f"clip {n}") for n, clip in enumerate(prompt.clips)]
    pads = np.isin(prompt.tokens, (reference.config.image_token, reference.config.video_token))
    starts = np.flatnonzero(pads & ~np.concatenate([[False], pads[:-1]]))
    return Prompt(prompt.tokens, positions, following, tuple(vision), tuple(starts.tolist()))


@pytest.mark.parametrize(
    "parts",
    [(24,), (5, ((3, 10, 12), 1.0), 9), (3, ((1, 6, 6), None), 4, ((2, 8, 8), 0.7), 6)],
    ids=["text", "video", "image and video"],
)
def test_64_greedy_tokens_and_their_logits(reference, chat, parts):
    prompt = compose(reference.config, 11, *parts)
    engine = Engine(LoadedModel(reference.config, reference.graph, reference.params, chat))
    options = SamplingOptions(max_tokens=STEPS, min_tokens=STEPS, temperature=0)
    sample = engine.generate([Request(prompt=as_prompt(prompt, reference))], options)[0][0]
    assert len(sample.tokens) == STEPS

    whole = ReferencePrompt(np.concatenate([prompt.tokens, sample.tokens]), prompt.clips)
    logits = reference.torch_logits([whole])[0][len(prompt.tokens) - 1 : -1]
    allowed = np.asarray(engine.masks.allowed & ~engine.masks.ends)
    # Each step's best allowed token of transformers, given the tokens before it, is the one that was taken.
    np.testing.assert_array_equal(sample.tokens, np.where(allowed, logits, -np.inf).argmax(-1))
    top = logits.max(-1, keepdims=True)
    log_probs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    difference = np.abs(sample.raw_log_probs - log_probs[np.arange(STEPS), sample.tokens]).max()
    assert difference <= 1e-4 * logits.std()
