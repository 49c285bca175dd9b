"""Llamas in the engine: the tokens that transformers' generate takes, alone and in a batch, scanned and unrolled."""

import numpy as np
import pytest
import torch

from tests.models.llama_reference import CONFIGS, VOCABULARY, build
from vrjax.generation import BeamOptions, ChatTokenizer, Engine, EngineOptions, Prompt, Request, SamplingOptions
from vrjax.loading import LoadedModel

STEPS, END = 64, VOCABULARY - 1
MANY_ENDS = tuple(range(3, VOCABULARY, 4))


@pytest.fixture(scope="module", params=CONFIGS)
def reference(request):
    return build(CONFIGS[request.param], seed=3)


@pytest.fixture(scope="module")
def chat():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({f"w{index}": index for index in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return ChatTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=f"w{END}"))


def prompt_of(length: int) -> Prompt:
    tokens = np.random.default_rng(length).integers(0, END, length).astype(np.int32)
    return Prompt(tokens, np.arange(length, dtype=np.int32)[None], length, name=f"{length} tokens")


@torch.no_grad()
def generated(reference, prompt: Prompt) -> list[int]:
    tokens = torch.tensor(prompt.tokens[None]).long()
    out = reference.torch_model.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, min_new_tokens=STEPS, max_new_tokens=STEPS,
        eos_token_id=END, pad_token_id=0,
    )  # fmt: skip
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("unroll", [True, False], ids=["unrolled", "scanned"])
def test_64_greedy_tokens_and_their_log_probs(reference, chat, unroll):
    model = LoadedModel(reference.config, reference.graph, reference.params, chat)
    prompts = [prompt_of(length) for length in (1, 21, 90)]
    options = SamplingOptions(max_tokens=STEPS, min_tokens=STEPS, temperature=0)
    engine = Engine(model, EngineOptions(unroll=unroll, chunk=24))
    samples = [found[0] for found in engine.generate([Request(prompt=prompt) for prompt in prompts], options)]
    for prompt, sample in zip(prompts, samples, strict=True):
        assert sample.tokens.tolist() == generated(reference, prompt)
        logits = reference.torch_logits([np.concatenate([prompt.tokens, sample.tokens])])[0, len(prompt) - 1 : -1]
        log_probs = torch.log_softmax(torch.tensor(logits), -1).numpy()[np.arange(STEPS), sample.tokens]
        assert np.abs(sample.raw_log_probs - log_probs).max() <= 1e-4 * logits.std()


def test_small_models_run_unrolled_on_cpus_by_themselves(reference, chat):
    assert Engine(LoadedModel(reference.config, reference.graph, reference.params, chat)).unroll


@torch.no_grad()
def beams_of(reference, prompt: Prompt, options: BeamOptions, ends: tuple[int, ...], banned: list[int]):
    """Tokens up to the end id, and the score, of each of transformers' beams."""
    tokens = torch.tensor(prompt.tokens[None]).long()
    out = reference.torch_model.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, num_beams=options.beams,
        num_return_sequences=options.beams, max_new_tokens=options.max_tokens,
        min_new_tokens=options.min_tokens if ends else None, eos_token_id=list(ends) or None, pad_token_id=0,
        length_penalty=options.length_penalty, early_stopping=options.early_stopping,
        suppress_tokens=banned or None, output_scores=True, return_dict_in_generate=True,
    )  # fmt: skip
    found = []
    for row, score in zip(out.sequences[:, len(prompt) :].tolist(), out.sequences_scores.tolist(), strict=True):
        end = next((number + 1 for number, token in enumerate(row) if token in ends), len(row))
        found.append((row[:end], score))
    return found


@pytest.mark.parametrize("beams", [3, 5, 7])
@pytest.mark.parametrize("ends", [(), MANY_ENDS], ids=["no end ids", "many end ids"])
def test_beams_have_the_ids_and_scores_of_transformers(reference, chat, beams, ends):
    chat = ChatTokenizer.of(chat.tokenizer, MANY_ENDS)
    engine = Engine(LoadedModel(reference.config, reference.graph, reference.params, chat))
    prompts = [prompt_of(length) for length in (1, 21, 90)]
    least = 2 if ends else 24  # ours never ends before that many, and so draws none of the ids it could end with
    options = BeamOptions(beams=beams, max_tokens=24, min_tokens=least)
    banned = [*np.flatnonzero(~np.asarray(engine.masks.allowed)).tolist(), *(() if ends else MANY_ENDS)]
    compared = 0
    for prompt, mine in zip(prompts, engine.beam_search(prompts, options), strict=True):
        theirs = beams_of(reference, prompt, options, ends, banned)
        scores = np.asarray([score for _, score in theirs])
        np.testing.assert_allclose([beam.score for beam in mine], scores, atol=1e-4)
        for beam, (tokens, score) in zip(mine, theirs, strict=True):
            if (np.abs(scores - score) < 1e-5).sum() == 1:  # beams that score the same may stand in either order
                assert beam.tokens.tolist() == tokens
                compared += 1
    assert compared >= 2 * beams  # of 3 prompts
