"""Qwen2.5-VL: vision tower, decoder with mRoPE, and the splice between them.

Parameter names are those of the published checkpoints (`visual.…`, `model.…`, `lm_head`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from vrjax.models.decoder import Decoder, Shard, unsharded
from vrjax.models.parameters import Declare
from vrjax.models.qwen2_5_vl.config import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.layout import VisionInputs
from vrjax.models.qwen2_5_vl.vision import VisionTower


class Qwen2_5VL(nnx.Module):
    def __init__(self, config: Qwen2_5VLConfig, rngs: nnx.Rngs, dtype: Any = jnp.float32):
        self.config = config
        self.vision = VisionTower(config.vision, Declare(rngs, dtype, "visual."))
        self.text = Decoder(config.text, Declare(rngs, dtype, "model."), head=Declare(rngs, dtype, ""))

    def encode(self, inputs: VisionInputs, *, remat: bool = False, shard: Shard = unsharded) -> Float[Array, "M D"]:
        """Vision features of all merged tokens, flattened over frames (padding included)."""
        features = self.vision(inputs, remat=remat, shard=shard)
        return features.reshape(-1, features.shape[-1])

    def embed(
        self,
        tokens: Int[Array, "B S"],
        features: Float[Array, "M D"] | None = None,
        feature_index: Int[Array, "B S"] | None = None,
    ) -> Float[Array, "B S D"]:
        """Token embeddings, with feature `feature_index` in place of the embedding wherever that is not negative."""
        embedded = self.text.embed(tokens)
        if features is None or feature_index is None:
            return embedded
        spliced = features[jnp.maximum(feature_index, 0)].astype(embedded.dtype)
        return jnp.where(feature_index[..., None] >= 0, spliced, embedded)
