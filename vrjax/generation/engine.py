"""The engine: requests in, samples out. Vision, prefill and decode are separate compiled programs.

    requests → batches of like length → vision features (once per video) → prefill (once per prompt) → decode → text

The host decides all shapes; lengths fall into buckets, so that few programs serve any input.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.errors import InputError
from vrjax.generation import decode as decoding
from vrjax.generation import reading, searching
from vrjax.generation.beam_search import Beam, BeamOptions
from vrjax.generation.buckets import Padding, bucket
from vrjax.generation.continuations import Continuations, Reading
from vrjax.generation.decode import DecodeState, Drawn, VocabularyMasks, columns_to_keep
from vrjax.generation.kept_prefixes import BLOCK, KeptPrefixes, block_names
from vrjax.generation.prefix_cache import Prefix, prefill
from vrjax.generation.prefix_extension import prefill_from_kept, reusable
from vrjax.generation.prompts import Prompt, Vision
from vrjax.generation.requests import EngineOptions, Model, Request, Sample
from vrjax.generation.sampling import SamplingOptions, row_keys
from vrjax.generation.vision_features import VisionFeatures
from vrjax.ledger import Ledger
from vrjax.sharding import Placement, placement_of

MOST_UNROLLED_BYTES = 2 << 30
FEW_TOKENS = 1024


@dataclass
class Engine:
    """Answers requests with one model. placement: how its work is cut; by default as its weights lie (`placement_of`).

    progress: called with (samples done, samples in all).

    seconds: of each phase where `options.timed`; drawn: tokens drawn so far; turns: of the decode loops, by program;
    kept: prefixes of earlier prompts, or None.
    """

    model: InitVar[Model]
    options: EngineOptions = field(default_factory=EngineOptions)
    ledger: Ledger = field(default_factory=Ledger)
    placement: InitVar[Placement | None] = None
    progress: Callable[[int, int], None] | None = None
    padding: Padding = field(default_factory=Padding)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    drawn: int = 0
    turns: Counter[tuple[str, Any]] = field(default_factory=Counter)

    def __post_init__(self, model: Model, placement: Placement | None) -> None:
        self.config, self.graph, self.params, self.chat = model.config, model.graph, model.params, model.chat
        size = self.config.text.vocabulary
        allowed, ends = np.zeros(size, bool), np.zeros(size, bool)
        allowed[: len(self.chat.tokenizer)] = True
        allowed[[token for token in self.chat.control_ids if token < size]] = False
        ends[list(self.chat.end_ids)] = True
        allowed |= ends
        self.masks = VocabularyMasks(jnp.asarray(allowed), jnp.asarray(ends))
        unroll = self.options.unroll
        if unroll is None:
            size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.params["text"]))
            unroll = jax.default_backend() == "cpu" and size < MOST_UNROLLED_BYTES
        self.unroll = unroll
        self.axes = 1 if self.config.text.sections is None else 3
        if placement is None:
            placement = placement_of(self.params, self.config.text, self.options.attention)
        graph, (shard, attention) = self.graph, placement
        self.shard = shard

        def run_vision(params: Any, inputs: Any) -> Array:
            return nnx.merge(graph, params).encode(inputs, shard=shard)

        def run_prefill(params: Any, *arrays: Any) -> Prefix:
            return prefill(nnx.merge(graph, params), *arrays, shard=shard, attention=attention)

        def run_decode(kind: Any, params: Any, *arrays: Any) -> DecodeState:
            return decoding.decode(nnx.merge(graph, params), *arrays, kind=kind)

        def run_unstack(params: Any) -> tuple[Any, ...]:
            return nnx.merge(graph, params).text.unstack()

        self._vision_program = jax.jit(run_vision)
        self._prefill_program = jax.jit(run_prefill)
        self._start_programs: dict[Any, Any] = {}
        self._decode_programs: dict[Any, Any] = {}
        self._run_decode = run_decode
        self._unstack_program = jax.jit(run_unstack)
        self._compact_program = jax.jit(decoding.compact)
        self._layers: tuple[Any, ...] | None = None
        options = self.options
        self.kept = KeptPrefixes(options.prefix_cache_bytes) if options.prefix_cache_bytes else None
        self.vision = VisionFeatures(
            self.config.vision,
            lambda inputs: self.run("vision", inputs.shape_key, self._vision_program, self.params, inputs),
            self.padding,
            cache_bytes=options.feature_cache_bytes,
            frame_multiple=options.frame_multiple,
            patch_multiple=options.patch_multiple,
        )

    # ---------------------------------------------------------------- vision

    def encode(self, items: Sequence[Vision]) -> list[Float[Array, "M D"]]:
        """Features of each image or video, merged tokens in prompt order. Each is computed once and cached by key."""
        return self.vision.encode(items)

    def set_params(self, params: Any, *, vision_changed: bool = True) -> None:
        """Go on with other weights; cached vision features stay only where the tower's are the same."""
        self.params, self._layers = params, None
        if self.kept is not None:
            self.kept.forget()
        if vision_changed:
            self.forget_features()

    def forget_features(self) -> None:
        """Drop all cached vision features."""
        self.vision.forget()

    def run(self, phase: str, key: Any, program: Any, *arguments: Any) -> Any:
        """Run a program; where phases are timed, wait for it. Compilation does not count."""
        if not self.options.timed:
            return self.ledger.run(phase, key, program, *arguments)
        compiled = self.ledger.compiled(phase, key, program, *arguments)
        start = time.perf_counter()
        result = jax.block_until_ready(compiled(*arguments))
        self.seconds[phase] += time.perf_counter() - start
        return result

    # ---------------------------------------------------------------- prefill

    def prefill(self, prompts: Sequence[Prompt], rows: int | None = None) -> Prefix:
        """Run prompts once, padded to one bucket (and to `rows` rows, the last prompt repeated)."""
        rows = rows or len(prompts)
        padded = [*prompts, *[prompts[-1]] * (rows - len(prompts))]
        length = self.length_of(max(len(prompt) for prompt in prompts))
        tokens, positions, lengths, following = self.arrays(padded, length)
        features, index = self.vision.splice(padded, length)
        self.padding.count("prefill", sum(map(len, prompts)), rows * length)
        arguments = (self.params, tokens, positions, lengths, following, features, index, self.unrolled_layers())
        key = (rows, length, features is not None)
        return self.run("prefill", key, self._prefill_program, *arguments)

    def length_of(self, longest: int) -> int:
        """The bucket of a length in tokens."""
        if self.kept is None:
            return bucket(longest, self.options.length_multiple)
        # For a short length a program of its own costs more than padding does.
        return bucket(longest, self.options.length_multiple, fineness=1 if longest <= FEW_TOKENS else 4)

    def rows_of(self, count: int) -> int:
        """The bucket of a number of rows."""
        return bucket(count, 1) if self.kept is None else 1 << (count - 1).bit_length()

    def arrays(self, prompts: Sequence[Prompt], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Tokens [B, S], positions [A, B, S], lengths [B] and next positions [B] of prompts, right-padded."""
        tokens = np.full((len(prompts), length), self.chat.pad_id, np.int32)
        positions = np.zeros((self.axes, len(prompts), length), np.int32)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt.tokens
            positions[:, row, : len(prompt)] = prompt.positions[: self.axes]
        lengths = np.asarray([len(prompt) for prompt in prompts], np.int32)
        return tokens, positions, lengths, np.asarray([prompt.next_position for prompt in prompts], np.int32)

    @property
    def patches_per_token(self) -> int:
        return 1 if self.config.vision is None else self.config.vision.merge_size**2

    # ---------------------------------------------------------------- decode

    def decode(self, prefix: Prefix, keys: Array, sampling: SamplingOptions) -> Drawn:
        """Draw up to max_tokens for every row [B, G] of `keys`.

        Between chunks, where at most half of a prompt's samples go on, the finished ones are left behind, so that one
        long sample does not hold the rest.
        """
        state = self.start(prefix, keys, sampling)
        rows, group = keys.shape[:2]
        drawn, reached = Drawn.room(rows, group, state.tokens.shape[2]), 1
        for until in range(self.options.chunk, sampling.max_tokens + self.options.chunk, self.options.chunk):
            limit = min(until, sampling.max_tokens)
            state = self.go_on(prefix, state, sampling, limit)
            done, step = jax.device_get((state.done, state.step))
            self.turns["decode", _decode_key(prefix, state, sampling.kind)] += int(step) - reached
            reached = int(step)
            if done.all():
                break
            keep = columns_to_keep(done)
            if keep is not None and limit < sampling.max_tokens:
                drawn.write(state)
                drawn.place = np.take_along_axis(drawn.place, keep, 1)
                state = self.compact(prefix, state, sampling, keep)
        drawn.write(state)
        return drawn

    def start(self, prefix: Prefix, keys: Array, sampling: SamplingOptions) -> DecodeState:
        """Room for the longest responses, and the first token of each row [B, G] of `keys`."""
        kind, capacity = sampling.kind, bucket(sampling.max_tokens, 16)
        if (kind, capacity) not in self._start_programs:
            start = partial(decoding.start, kind=kind, capacity=capacity)
            self._start_programs[kind, capacity] = jax.jit(start)
        key = (*keys.shape[:2], prefix.mask.shape[1], capacity, kind)
        program = self._start_programs[kind, capacity]
        return self.ledger.run("start", key, program, prefix, keys, self.masks, sampling.numbers())

    def go_on(self, prefix: Prefix, state: DecodeState, sampling: SamplingOptions, limit: int) -> DecodeState:
        """Draw until each row of `state`, which is given up, is done or has `limit` tokens."""
        kind = sampling.kind
        if kind not in self._decode_programs:
            self._decode_programs[kind] = jax.jit(partial(self._run_decode, kind), donate_argnums=2)
        numbers, layers = sampling.numbers(), self.unrolled_layers()
        arguments = (self.params, prefix, state, self.masks, numbers, np.int32(limit), layers)
        return self.run("decode", _decode_key(prefix, state, kind), self._decode_programs[kind], *arguments)

    def compact(
        self, prefix: Prefix, state: DecodeState, sampling: SamplingOptions, keep: Int[np.ndarray, "B W"]
    ) -> DecodeState:
        """The columns `keep` of `state` (see `decode.columns_to_keep`)."""
        rows, columns, *rest = _decode_key(prefix, state, sampling.kind)
        key = (rows, columns, keep.shape[1], *rest)
        return self.ledger.run("compact", key, self._compact_program, state, keep)

    def unrolled_layers(self) -> tuple[Any, ...] | None:
        """The decoder's layers one by one where they are run unrolled; made once for a set of weights."""
        if self.unroll and self._layers is None:
            self._layers = self.ledger.run("unstack", None, self._unstack_program, self.params)
        return self._layers

    # ---------------------------------------------------------------- requests

    def generate(
        self,
        requests: Sequence[Request],
        sampling: SamplingOptions,
        *,
        seed: int = 0,
        step: int = 0,
        on_finished: Callable[[int, list[Sample]], None] | None = None,
    ) -> list[list[Sample]]:
        """Samples of each request, in order. The same request gives the same samples in any company.

        on_finished: called with a request's number and its samples as soon as they are there.

        Requests with one sample count go together, sorted by length, up to `batch_rows` rows at a time; those that go
        on from a kept prefix apart from those that do not, which have more to prefill. Raises InputError where a prompt
        and its response exceed the model's context.
        """
        for request in requests:
            if request.samples < 1:
                raise InputError(
                    f"{request.prompt.name}: {request.samples} samples were asked for. Ask for at least one."
                )
            self.check_context(request.prompt, sampling.max_tokens)
        new = [self._new_tokens(request.prompt) for request in requests]
        by_kind: dict[tuple[int, bool], list[int]] = {}
        for number, request in enumerate(requests):
            by_kind.setdefault((request.samples, new[number] < len(request.prompt)), []).append(number)
        results: list[list[Sample]] = [[] for _ in requests]
        done, total = 0, sum(request.samples for request in requests)
        for (samples, _), members in sorted(by_kind.items()):
            # Longest first, so that neighbours are alike and a last batch that is not full holds the short ones.
            members.sort(key=lambda number: (-new[number], -len(requests[number].prompt)))
            size = max(1, self.options.batch_rows // samples)
            rows = min(size, self.rows_of(len(members)))
            for first in range(0, len(members), size):
                batch = members[first : first + size]
                found = self._batch([requests[number] for number in batch], rows, sampling, seed, step)
                for number, drawn in zip(batch, found, strict=True):
                    results[number] = drawn
                    if on_finished is not None:
                        on_finished(number, drawn)
                done += len(batch) * samples
                if self.progress is not None:
                    self.progress(done, total)
        return results

    def _new_tokens(self, prompt: Prompt) -> int:
        """How many of a prompt's tokens would have to be prefilled now."""
        if self.kept is None or not len(self.kept):
            return len(prompt)
        return len(prompt) - BLOCK * reusable(self.kept, prompt, block_names(prompt), self.patches_per_token)

    def check_context(self, prompt: Prompt, max_tokens: int) -> None:
        """Raise InputError where the prompt with `max_tokens` more exceeds the model's context."""
        context = self.config.text.max_positions
        if len(prompt) + max_tokens > context:
            raise InputError(
                f"{prompt.name}: a prompt of {len(prompt)} tokens and a response of up to {max_tokens} exceed the "
                f"model's context of {context}. Use fewer frames or pixels."
            )

    def read(
        self, asked: Sequence[Continuations], ids: Sequence[int] = (), *, log_probs: bool = False
    ) -> list[list[Reading]]:
        """What the model makes of given continuations: logits of `ids` behind each, log-probs of their tokens, or both.

        All continuations of a prompt are read in one pass behind that prompt's one run. Rows go together, sorted by
        length, up to `batch_rows` continuations at a time. Raises InputError where a prompt with one of its
        continuations exceeds the model's context, or a continuation is empty.
        """
        return reading.read(self, asked, ids, log_probs)

    def beam_search(
        self,
        prompts: Sequence[Prompt],
        options: BeamOptions,
        *,
        on_finished: Callable[[int, list[Beam]], None] | None = None,
    ) -> list[list[Beam]]:
        """The best beams of each prompt, in the prompts' order, each best first (fewer where fewer exist).

        on_finished: called with a prompt's number and its beams as soon as they are there. Prompts go together, sorted
        by length, up to `batch_rows` beams at a time. Raises InputError where a prompt and its response exceed the
        model's context, or a banned id is none of the vocabulary.
        """
        return searching.search(self, prompts, options, on_finished)

    def _batch(
        self, requests: Sequence[Request], rows: int, sampling: SamplingOptions, seed: int, step: int
    ) -> list[list[Sample]]:
        samples = requests[0].samples
        addresses = [request.random_address for request in requests]
        addresses += addresses[-1:] * (rows - len(requests))
        keys = row_keys(seed, step, np.asarray(addresses, np.uint32), np.arange(samples, dtype=np.uint32))
        prompts = [request.prompt for request in requests]
        if self.kept is None:
            prefix = self.prefill(prompts, rows)
        else:
            prefix = prefill_from_kept(self, prompts, [request.keep for request in requests], rows)
        drawn = self.decode(prefix, keys, sampling)
        self.drawn += int(drawn.lengths[: len(requests)].sum())
        return [[self._sample(drawn, row, column) for column in range(samples)] for row in range(len(requests))]

    def _sample(self, drawn: Drawn, row: int, column: int) -> Sample:
        length = int(drawn.lengths[row, column])
        tokens = drawn.tokens[row, column, :length]
        return Sample(
            text=self.chat.decode(tokens.tolist()),
            tokens=tokens,
            raw_log_probs=drawn.raw[row, column, :length],
            processed_log_probs=drawn.processed[row, column, :length],
            finished=bool(drawn.done[row, column]),
        )


def _decode_key(prefix: Prefix, state: DecodeState, kind: tuple[bool, bool, bool]) -> tuple:
    return (*state.done.shape, prefix.mask.shape[1], state.tokens.shape[2], kind)
