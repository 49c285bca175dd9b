"""The engine: requests in, samples out. Vision, prefill and decode are separate compiled programs.

    requests → batches of like length → vision features (once per video) → prefill (once per prompt) → decode → text

The host decides all shapes; lengths fall into buckets, so that few programs serve any input.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.errors import InputError
from vrjax.generation import beam_search as beams
from vrjax.generation import decode as decoding
from vrjax.generation.beam_search import Beam, BeamOptions, Hypotheses
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.continuations import Continuations, Reading, pack_rows, read_rows
from vrjax.generation.decode import DecodeState, Drawn, VocabularyMasks, columns_to_keep
from vrjax.generation.prefix_cache import Prefix, prefill
from vrjax.generation.prompts import Prompt, Vision
from vrjax.generation.sampling import SamplingOptions, row_keys
from vrjax.ledger import Ledger
from vrjax.models.attention import Reach
from vrjax.models.decoder import Shard, unsharded
from vrjax.models.qwen2_5_vl import vision_inputs
from vrjax.models.qwen2_5_vl.layout import frame_shape, has_whole_windows

MOST_UNROLLED_BYTES = 2 << 30


def bucket(length: int, multiple: int, fineness: int = 8) -> int:
    """Round up to `multiple`, and for long lengths to about length / fineness: at most 1 / fineness is padding."""
    step = multiple
    while step * 2 * fineness <= length:
        step *= 2
    return -(-length // step) * step


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt and how many samples of it. `address` tells prompts apart for randomness (default: of its name)."""

    prompt: Prompt
    samples: int = 1
    address: int | None = None

    @property
    def random_address(self) -> int:
        if self.address is not None:
            return self.address
        return zlib.crc32(self.prompt.name.encode() + self.prompt.tokens.tobytes())


@dataclass(frozen=True)
class Sample:
    """One response. tokens: ids with the end token; raw and processed log-probs of each (see `sampling.draw`).

    finished: an end token was drawn before max_tokens.
    """

    text: str
    tokens: Int[np.ndarray, "C"]
    raw_log_probs: Float[np.ndarray, "C"]
    processed_log_probs: Float[np.ndarray, "C"]
    finished: bool


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """batch_rows: prompts x samples decoded together; chunk: tokens between two looks at who is done.

    timed: wait after each phase and add its seconds to `Engine.seconds`. feature_cache_bytes: vision features kept for
    videos that come again. unroll: run the decoder's layers unrolled,
    from a second copy of their weights (None: on CPUs, where a small model gains by it). *_multiple: smallest step of
    the buckets.
    """

    batch_rows: int = 64
    chunk: int = 64
    timed: bool = False
    feature_cache_bytes: int = 2 << 30
    unroll: bool | None = None
    length_multiple: int = 16
    frame_multiple: int = 2
    patch_multiple: int = 16


@dataclass
class Padding:
    """Tokens (prefill) and patches (vision) that were there, and those that were computed, padding included."""

    used: Counter[str] = field(default_factory=Counter)
    computed: Counter[str] = field(default_factory=Counter)

    def count(self, phase: str, used: int, computed: int) -> None:
        self.used[phase] += used
        self.computed[phase] += computed

    @property
    def share(self) -> float:
        """Share of everything computed that was padding."""
        return 1 - self.used.total() / max(1, self.computed.total())


class Model(Protocol):
    """What the engine reads of a model, such as `vrjax.loading.LoadedModel`."""

    @property
    def config(self) -> Any: ...
    @property
    def graph(self) -> nnx.GraphDef: ...
    @property
    def params(self) -> Any: ...
    @property
    def chat(self) -> ChatTokenizer: ...


@dataclass
class Engine:
    """Answers requests with one model. `progress` is called with (samples done, samples in all).

    seconds: of each phase where `options.timed`; drawn: tokens drawn so far.
    """

    model: InitVar[Model]
    options: EngineOptions = field(default_factory=EngineOptions)
    ledger: Ledger = field(default_factory=Ledger)
    shard: Shard = unsharded
    progress: Callable[[int, int], None] | None = None
    padding: Padding = field(default_factory=Padding)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    drawn: int = 0

    def __post_init__(self, model: Model) -> None:
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
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.params["text"]))
            unroll = jax.default_backend() == "cpu" and size < MOST_UNROLLED_BYTES
        self.unroll = unroll
        self._features: OrderedDict[str, Array] = OrderedDict()
        graph, shard = self.graph, self.shard

        def run_vision(params: Any, inputs: Any) -> Array:
            return nnx.merge(graph, params).encode(inputs, shard=shard)

        def run_prefill(params: Any, *arrays: Any) -> Prefix:
            return prefill(nnx.merge(graph, params), *arrays, shard=shard)

        def run_decode(kind: Any, params: Any, *arrays: Any) -> DecodeState:
            return decoding.decode(nnx.merge(graph, params), *arrays, kind=kind)

        def run_unstack(params: Any) -> tuple[Any, ...]:
            return nnx.merge(graph, params).text.unstack()

        self._vision_program = jax.jit(run_vision)
        self._prefill_program = jax.jit(run_prefill)
        self._search_programs: dict[Any, Any] = {}
        self._read_programs: dict[Any, Any] = {}
        self._start_programs: dict[Any, Any] = {}
        self._decode_programs: dict[Any, Any] = {}
        self._run_decode = run_decode
        self._unstack_program = jax.jit(run_unstack)
        self._compact_program = jax.jit(decoding.compact)
        self._layers: tuple[Any, ...] | None = None

    # ---------------------------------------------------------------- vision

    def encode(self, items: Sequence[Vision]) -> list[Float[Array, "M D"]]:
        """Features of each image or video, merged tokens in prompt order. Each is computed once and cached by key."""
        fresh = {item.key: item for item in items if item.key not in self._features}
        held: dict[str, Array] = {item.key: self._features[item.key] for item in items if item.key not in fresh}
        for item in fresh.values():
            held[item.key] = self._encode_one(item)
        for key, value in held.items():
            self._features[key] = value
            self._features.move_to_end(key)
        total = sum(value.nbytes for value in self._features.values())
        while total > self.options.feature_cache_bytes and len(self._features) > 1:
            total -= self._features.popitem(last=False)[1].nbytes
        return [held[item.key] for item in items]

    def set_params(self, params: Any, *, vision_changed: bool = True) -> None:
        """Go on with other weights; cached vision features stay only where the tower's are the same."""
        self.params, self._layers = params, None
        if vision_changed:
            self.forget_features()

    def forget_features(self) -> None:
        """Drop all cached vision features."""
        self._features.clear()

    def _encode_one(self, item: Vision) -> Array:
        config, options = self.config.vision, self.options
        patches, windows = frame_shape(item.grid, config)
        if not has_whole_windows(item.grid, config):
            patches = bucket(patches, max(options.patch_multiple, config.merge_size**2))
            windows = bucket(windows, 1, fineness=4)
        frames = bucket(item.grid[0], options.frame_multiple)
        inputs, places = vision_inputs([item.patches], [item.grid], config, frames, patches, windows)
        self.padding.count("vision", len(item.patches), frames * patches)
        features = self._timed("vision", inputs.shape_key, self._vision_program, self.params, inputs)
        return features[jnp.asarray(places[0])]

    def _timed(self, phase: str, key: Any, program: Any, *arguments: Any) -> Any:
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
        length = bucket(max(len(prompt) for prompt in prompts), self.options.length_multiple)
        tokens = np.full((rows, length), self.chat.pad_id, np.int32)
        axes = 1 if self.config.text.sections is None else 3
        positions = np.zeros((axes, rows, length), np.int32)
        for row, prompt in enumerate(padded):
            tokens[row, : len(prompt)] = prompt.tokens
            positions[:, row, : len(prompt)] = prompt.positions[:axes]
        features, index = self._spliced(padded, length)
        lengths = np.asarray([len(prompt) for prompt in padded], np.int32)
        following = np.asarray([prompt.next_position for prompt in padded], np.int32)
        self.padding.count("prefill", sum(map(len, prompts)), rows * length)
        arguments = (self.params, tokens, positions, lengths, following, features, index, self._unrolled_layers())
        key = (rows, length, features is not None)
        return self._timed("prefill", key, self._prefill_program, *arguments)

    def _spliced(self, prompts: Sequence[Prompt], length: int) -> tuple[Array | None, Int[np.ndarray, "B S"] | None]:
        """Vision features of all prompts, each video's once, and the one in place of each of a row's `length` tokens.

        None for both where there is no vision.
        """
        unique: OrderedDict[str, Vision] = OrderedDict()
        for prompt in prompts:
            for item in prompt.vision:
                unique.setdefault(item.key, item)
        if not unique:
            return None, None
        features, offsets, total = self.encode(list(unique.values())), {}, 0
        for key, value in zip(unique, features, strict=True):
            offsets[key] = total
            total += value.shape[0]
        index = np.full((len(prompts), length), -1, np.int32)
        for row, prompt in enumerate(prompts):
            counts = [item.grid[0] * item.grid[1] * item.grid[2] // self._unit for item in prompt.vision]
            places = [offsets[item.key] + np.arange(count) for item, count in zip(prompt.vision, counts, strict=True)]
            index[row, : len(prompt)] = prompt.feature_index(places)
        # Room for as many as there are tokens: the program's shape then depends on rows and length alone.
        return jnp.pad(jnp.concatenate(features), ((0, len(prompts) * length - total), (0, 0))), index

    @property
    def _unit(self) -> int:
        return self.config.vision.merge_size**2

    # ---------------------------------------------------------------- decode

    def decode(self, prefix: Prefix, keys: Array, sampling: SamplingOptions) -> Drawn:
        """Draw up to max_tokens for every row [B, G] of `keys`.

        Between chunks, where at most half of a prompt's samples go on, the finished ones are left behind, so that one
        long sample does not hold the rest.
        """
        numbers, kind = sampling.numbers(), sampling.kind
        rows, place = keys.shape[:2], prefix.mask.shape[1]
        capacity = bucket(sampling.max_tokens, 16)
        shape = (*rows, place, capacity, kind)
        drawn = Drawn.room(rows[0], rows[1], capacity)
        if (kind, capacity) not in self._start_programs:
            start = partial(decoding.start, kind=kind, capacity=capacity)
            self._start_programs[kind, capacity] = jax.jit(start)
        if kind not in self._decode_programs:
            self._decode_programs[kind] = jax.jit(partial(self._run_decode, kind), donate_argnums=2)
        state = self.ledger.run("start", shape, self._start_programs[kind, capacity], prefix, keys, self.masks, numbers)
        for until in range(self.options.chunk, sampling.max_tokens + self.options.chunk, self.options.chunk):
            limit = np.int32(min(until, sampling.max_tokens))
            program = self._decode_programs[kind]
            arguments = (self.params, prefix, state, self.masks, numbers, limit, self._unrolled_layers())
            state = self._timed("decode", (*state.done.shape, *shape[2:]), program, *arguments)
            done = np.asarray(state.done)
            if done.all():
                break
            keep = columns_to_keep(done)
            if keep is not None and limit < sampling.max_tokens:
                drawn.write(state)
                drawn.place = np.take_along_axis(drawn.place, keep, 1)
                key = (*done.shape, keep.shape[1], *shape[2:])
                state = self.ledger.run("compact", key, self._compact_program, state, keep)
        drawn.write(state)
        return drawn

    def _unrolled_layers(self) -> tuple[Any, ...] | None:
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

        Requests with one sample count go together, sorted by length, up to `batch_rows` rows at a time.
        Raises InputError where a prompt and its response exceed the model's context.
        """
        for request in requests:
            if request.samples < 1:
                raise InputError(
                    f"{request.prompt.name}: {request.samples} samples were asked for. Ask for at least one."
                )
            self._check_context(request.prompt, sampling.max_tokens)
        by_samples: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            by_samples.setdefault(request.samples, []).append(number)
        results: list[list[Sample]] = [[] for _ in requests]
        done, total = 0, sum(request.samples for request in requests)
        for samples, members in sorted(by_samples.items()):
            # Longest first, so that neighbours are alike and a last batch that is not full holds the short ones.
            members.sort(key=lambda number: -len(requests[number].prompt))
            size = max(1, self.options.batch_rows // samples)
            rows = min(size, bucket(len(members), 1))
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

    def _check_context(self, prompt: Prompt, max_tokens: int) -> None:
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
        for one in asked:
            if not one.tokens or not all(one.tokens):
                raise InputError(f"{one.prompt.name}: there is no continuation to read, or an empty one.")
            self._check_context(one.prompt, one.longest)
        order = sorted(range(len(asked)), key=lambda number: (-len(asked[number].tokens), -asked[number].length))
        results: list[list[Reading]] = [[] for _ in asked]
        done = 0
        while done < len(order):
            group = len(asked[order[done]].tokens)
            batch = order[done : done + max(1, self.options.batch_rows // group)]
            for number, found in zip(batch, self._read([asked[n] for n in batch], ids, log_probs), strict=True):
                results[number] = found
            done += len(batch)
            if self.progress is not None:
                self.progress(done, len(order))
        return results

    def _read(self, asked: Sequence[Continuations], ids: Sequence[int], log_probs: bool) -> list[list[Reading]]:
        multiple = self.options.length_multiple
        rows, group = bucket(len(asked), 1), max(len(one.tokens) for one in asked)
        padded = [*asked, *[asked[-1]] * (rows - len(asked))]
        length = bucket(max(one.length for one in asked), multiple)
        targets = bucket(max(one.length - len(one.prompt) for one in asked), multiple) if log_probs else 0
        reach = Reach(
            bucket(max(len(one.prompt) for one in asked), multiple), bucket(max(one.longest for one in asked), multiple)
        )
        axes = 1 if self.config.text.sections is None else 3
        packed = pack_rows(padded, length, group, targets, axes, self.chat.pad_id)
        features, index = self._spliced([one.prompt for one in padded], length)
        key = (reach, log_probs)
        if key not in self._read_programs:
            graph, shard = self.graph, self.shard

            def run(params: Any, *arrays: Any) -> Any:
                model = nnx.merge(graph, params)
                return read_rows(model, *arrays, reach=reach, log_probs=log_probs, shard=shard)

            self._read_programs[key] = jax.jit(run)
        arguments = (self.params, packed, features, index, np.asarray(ids, np.int32), self._unrolled_layers())
        shape = (rows, length, group, targets, len(ids), features is not None, *key)
        logits, read = jax.device_get(self._timed("read", shape, self._read_programs[key], *arguments))
        self.padding.count("read", sum(one.length for one in asked), rows * length)
        results = []
        for row, one in enumerate(asked):
            ends = np.cumsum([len(tokens) for tokens in one.tokens])
            parts = np.split(read[row, : ends[-1]], ends[:-1]) if log_probs else [read[row]] * len(ends)
            results.append([Reading(logits[row, number], part) for number, part in enumerate(parts)])
        return results

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
        vocabulary = self.config.text.vocabulary
        for prompt in prompts:
            self._check_context(prompt, options.max_tokens)
        if wrong := [token for token in options.banned if not 0 <= token < vocabulary]:
            raise InputError(f"banned ids {wrong} are not in the vocabulary of {vocabulary} tokens.")
        masks = self.masks
        if options.banned:
            masks = VocabularyMasks(masks.allowed.at[np.asarray(options.banned)].set(False), masks.ends)
        order = sorted(range(len(prompts)), key=lambda number: -len(prompts[number]))
        size = max(1, self.options.batch_rows // options.beams)
        rows = min(size, bucket(len(prompts), 1))
        results: list[list[Beam]] = [[] for _ in prompts]
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            found = self._search([prompts[number] for number in batch], rows, options, masks)
            for row, number in enumerate(batch):
                results[number] = self._beams(found, row, options)
                if on_finished is not None:
                    on_finished(number, results[number])
            if self.progress is not None:
                self.progress(first + len(batch), len(prompts))
        return results

    def _search(self, prompts: Sequence[Prompt], rows: int, options: BeamOptions, masks: VocabularyMasks) -> Hypotheses:
        """Hypotheses of a batch, on the host."""
        prefix = self.prefill(prompts, rows)
        sizes = {
            "beams": options.beams,
            "candidates": max(2, 1 + len(self.chat.end_ids)) * options.beams,
            "capacity": bucket(options.max_tokens, 16),
        }
        key = tuple(sizes.values())
        if key not in self._search_programs:
            graph = self.graph

            def run(params: Any, *arrays: Any) -> Hypotheses:
                return beams.search(nnx.merge(graph, params), *arrays, **sizes)

            self._search_programs[key] = jax.jit(run)
        arguments = (self.params, prefix, masks, options.numbers(), self._unrolled_layers())
        shape = (rows, prefix.mask.shape[1], *key)
        found = jax.device_get(self._timed("beam_search", shape, self._search_programs[key], *arguments))
        self.drawn += int(found.lengths[: len(prompts)].sum())
        return found

    def _beams(self, found: Hypotheses, row: int, options: BeamOptions) -> list[Beam]:
        results = []
        for number in range(options.returned or options.beams):
            if not np.isfinite(found.scores[row, number]):
                break
            length = int(found.lengths[row, number])
            tokens = np.asarray(found.tokens)[row, number, :length]
            results.append(
                Beam(
                    text=self.chat.decode(tokens.tolist()),
                    tokens=tokens,
                    log_probs=np.asarray(found.log_probs)[row, number, :length],
                    score=float(found.scores[row, number]),
                    finished=bool(found.ended[row, number]),
                )
            )
        return results

    def _batch(
        self, requests: Sequence[Request], rows: int, sampling: SamplingOptions, seed: int, step: int
    ) -> list[list[Sample]]:
        samples = requests[0].samples
        addresses = [request.random_address for request in requests]
        addresses += addresses[-1:] * (rows - len(requests))
        keys = row_keys(seed, step, np.asarray(addresses, np.uint32), np.arange(samples, dtype=np.uint32))
        prefix = self.prefill([request.prompt for request in requests], rows)
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
