"""Beams of random Qwen2.5-VL weights: ids and scores of transformers' beam search, with the same rules."""

import numpy as np
import pytest
import torch

from tests.generation.test_against_transformers import MARKS, as_prompt
from tests.models.reference import build_reference, compose, tiny_config
from vrjax.generation.beam_search import BeamOptions
from vrjax.generation.engine import Engine
from vrjax.generation.prompts import ChatTokenizer
from vrjax.loading import LoadedModel

TOKENS = 24
ENDS = tuple(range(3, 120, 4))


@pytest.fixture(scope="module")
def reference():
    return build_reference(tiny_config(tied=False, layers=3, full_layers=(1,)), seed=4)


@pytest.fixture(scope="module")
def engine(reference):
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {MARKS.get(index, f"w{index}"): index for index in range(200)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS.values()])
    chat = ChatTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=tokenizer), ENDS)
    return Engine(LoadedModel(reference.config, reference.graph, reference.params, chat))


def transformers_beams(reference, engine, prompts, options: BeamOptions, ends) -> list[list[tuple[list[int], float]]]:
    """Sequences and scores of one prompt at a time."""
    banned = np.flatnonzero(~np.asarray(engine.masks.allowed)).tolist()
    if not ends:
        banned += ENDS  # ours may not end before the last token, and so never draws them
    found = []
    for prompt in prompts:
        tokens = torch.tensor(prompt.tokens, dtype=torch.long)[None]
        more = {}
        if prompt.clips:
            more = {
                "pixel_values": torch.cat([clip.pixels() for clip in prompt.clips]),
                "image_grid_thw": torch.tensor([clip.grid for clip in prompt.clips]),
                "mm_token_type_ids": (tokens == reference.config.image_token).long(),
            }
        with torch.no_grad():
            out = reference.torch_model.generate(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                do_sample=False,
                num_beams=options.beams,
                num_return_sequences=options.beams,
                max_new_tokens=options.max_tokens,
                min_new_tokens=options.min_tokens if ends else None,
                eos_token_id=list(ends) or None,
                pad_token_id=0,
                length_penalty=options.length_penalty,
                early_stopping=options.early_stopping,
                suppress_tokens=banned,
                output_scores=True,
                return_dict_in_generate=True,
                **more,
            )
        beams = []
        for row, score in zip(out.sequences[:, tokens.shape[1] :].tolist(), out.sequences_scores.tolist(), strict=True):
            end = next((n + 1 for n, token in enumerate(row) if token in ends), len(row))
            beams.append((row[:end], score))
        found.append(beams)
    return found


@pytest.mark.parametrize("beams", [3, 5, 7])
@pytest.mark.parametrize(
    ("ends", "penalty", "rule"),
    [((), 1.0, False), (ENDS, 1.0, False), (ENDS, 0.0, True), (ENDS, 2.0, "never"), (ENDS, -0.5, "never")],
    ids=["no end ids", "plain", "first finished", "never", "short ones"],
)
def test_ids_and_scores(reference, engine, beams, ends, penalty, rule):
    prompts = [
        compose(reference.config, 11, 24),
        compose(reference.config, 12, 5, ((1, 6, 8), None), 9),
        compose(reference.config, 13, 3),
    ]
    options = BeamOptions(
        beams=beams, max_tokens=TOKENS, min_tokens=2 if ends else TOKENS, length_penalty=penalty, early_stopping=rule
    )
    found = engine.beam_search([as_prompt(prompt, reference) for prompt in prompts], options)
    for mine, theirs in zip(found, transformers_beams(reference, engine, prompts, options, ends), strict=True):
        assert [beam.tokens.tolist() for beam in mine] == [tokens for tokens, _ in theirs]
        np.testing.assert_allclose([beam.score for beam in mine], [score for _, score in theirs], atol=1e-4)
        assert all(len(beam.tokens) > options.min_tokens for beam in mine if beam.finished)
    assert any(beam.finished for beams in found for beam in beams) == bool(ends)
