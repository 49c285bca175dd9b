"""Llama: the decoder alone, with plain or scaled rotary positions and a tied or untied head.

Parameter names are those of the published checkpoints (`model.…`, `lm_head`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.models.decoder import Decoder
from vrjax.models.llama.config import LlamaConfig
from vrjax.models.parameters import Declare


class Llama(nnx.Module):
    def __init__(self, config: LlamaConfig, rngs: nnx.Rngs, dtype: Any = jnp.float32):
        self.config = config
        self.text = Decoder(config.text, Declare(rngs, dtype, "model."), head=Declare(rngs, dtype, ""))

    def embed(
        self,
        tokens: Int[Array, "B S"],
        features: Float[Array, "M D"] | None = None,
        feature_index: Int[Array, "B S"] | None = None,
    ) -> Float[Array, "B S D"]:
        """Token embeddings. Raises ValueError for vision features: there is no place for them."""
        del feature_index
        if features is not None:
            raise ValueError("a Llama reads text alone; it was given vision features")
        return self.text.embed(tokens)
