"""What the engine is asked, what it answers, and how it is set."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from flax import nnx
from jaxtyping import Float, Int

from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt and how many samples of it. `address` tells prompts apart for randomness (default: of its name).

    keep: later requests are likely to begin with this prompt, so its prefix is worth room (`prefix_cache_bytes`).
    """

    prompt: Prompt
    samples: int = 1
    address: int | None = None
    keep: bool = False

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
    videos that come again. prefix_cache_bytes: keys and values kept for prompts that begin as earlier ones did (0:
    none); such an engine's requests come few at a time and in all lengths, so its buckets are coarser. unroll: run the
    decoder's layers unrolled, from a second copy of their weights (None: on CPUs, where a small model gains by it).
    attention: of prompts; auto takes the devices' fused form where they have one, held against the plain one first.
    *_multiple: smallest step of the buckets.
    """

    batch_rows: int = 64
    chunk: int = 64
    timed: bool = False
    feature_cache_bytes: int = 2 << 30
    prefix_cache_bytes: int = 0
    unroll: bool | None = None
    attention: Literal["auto", "plain"] = "auto"
    length_multiple: int = 16
    frame_multiple: int = 2
    patch_multiple: int = 16


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
