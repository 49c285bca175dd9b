"""Searching: prompts in batches through the engine's beam search (`beam_search` is the search itself)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from vrjax.errors import InputError
from vrjax.generation.beam_search import Beam, BeamOptions, Hypotheses
from vrjax.generation.beam_search import search as search_beams
from vrjax.generation.buckets import bucket
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.decode import VocabularyMasks
from vrjax.generation.prompts import Prompt

if TYPE_CHECKING:
    from vrjax.generation.engine import Engine


def search(
    engine: Engine,
    prompts: Sequence[Prompt],
    options: BeamOptions,
    on_finished: Callable[[int, list[Beam]], None] | None,
) -> list[list[Beam]]:
    """See `Engine.beam_search`."""
    vocabulary = engine.config.text.vocabulary
    for prompt in prompts:
        engine.check_context(prompt, options.max_tokens)
    if wrong := [token for token in options.banned if not 0 <= token < vocabulary]:
        raise InputError(f"banned ids {wrong} are not in the vocabulary of {vocabulary} tokens.")
    masks = engine.masks
    if options.banned:
        masks = VocabularyMasks(masks.allowed.at[np.asarray(options.banned)].set(False), masks.ends)
    order = sorted(range(len(prompts)), key=lambda number: -len(prompts[number]))
    size = max(1, engine.options.batch_rows // options.beams)
    rows = min(size, bucket(len(prompts), 1))
    results: list[list[Beam]] = [[] for _ in prompts]
    for first in range(0, len(order), size):
        batch = order[first : first + size]
        found = _search(engine, [prompts[number] for number in batch], rows, options, masks)
        for row, number in enumerate(batch):
            results[number] = _beams(engine.chat, found, row, options)
            if on_finished is not None:
                on_finished(number, results[number])
        if engine.progress is not None:
            engine.progress(first + len(batch), len(prompts))
    return results


def _search(
    engine: Engine, prompts: Sequence[Prompt], rows: int, options: BeamOptions, masks: VocabularyMasks
) -> Hypotheses:
    """Hypotheses of a batch, on the host."""
    prefix = engine.prefill(prompts, rows)
    sizes = {
        "beams": options.beams,
        "candidates": max(2, 1 + len(engine.chat.end_ids)) * options.beams,
        "capacity": bucket(options.max_tokens, 16),
    }
    graph = engine.graph

    def run(params: Any, *arrays: Any) -> Hypotheses:
        return search_beams(nnx.merge(graph, params), *arrays, **sizes)

    arguments = (engine.params, prefix, masks, options.numbers(), engine.unrolled_layers())
    shape = (rows, prefix.mask.shape[1], *sizes.values())
    found = jax.device_get(engine.run("beam_search", shape, jax.jit(run), *arguments))
    engine.drawn += int(found.lengths[: len(prompts)].sum())
    return found


def _beams(chat: ChatTokenizer, found: Hypotheses, row: int, options: BeamOptions) -> list[Beam]:
    results = []
    for number in range(options.returned or options.beams):
        if not np.isfinite(found.scores[row, number]):
            break
        length = int(found.lengths[row, number])
        tokens = np.asarray(found.tokens)[row, number, :length]
        results.append(
            Beam(
                text=chat.decode(tokens.tolist()),
                tokens=tokens,
                log_probs=np.asarray(found.log_probs)[row, number, :length],
                score=float(found.scores[row, number]),
                finished=bool(found.ended[row, number]),
            )
        )
    return results
