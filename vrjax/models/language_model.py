"""What every model here offers, and what those that see video offer beside it."""

from __future__ import annotations

from typing import Any, Protocol

from jaxtyping import Array, Float, Int

from vrjax.models.decoder import Decoder, DecoderConfig, Shard, unsharded


class LanguageModelConfig(Protocol):
    """Sizes of a model. `vision` is None where it reads text alone."""

    @property
    def text(self) -> DecoderConfig: ...
    @property
    def vision(self) -> Any: ...
    def to_json(self) -> dict[str, Any]: ...


class LanguageModel(Protocol):
    """A module with a decoder. Generation and the text side of training need no more than this."""

    config: Any
    text: Decoder

    def embed(
        self,
        tokens: Int[Array, "B S"],
        features: Float[Array, "M D"] | None = None,
        feature_index: Int[Array, "B S"] | None = None,
    ) -> Float[Array, "B S D"]:
        """Embeddings of tokens, with vision feature `feature_index` in place wherever that is not negative."""
        ...


class VideoLanguageModel(LanguageModel, Protocol):
    """A language model with a vision tower."""

    def encode(self, inputs: Any, *, remat: bool = False, shard: Shard = unsharded) -> Float[Array, "M D"]:
        """Vision features of all merged tokens, flattened over frames."""
        ...
