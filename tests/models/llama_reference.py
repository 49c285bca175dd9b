"""Tiny Llamas with the same weights in transformers (torch, CPU) and in vrjax. Weights as in reference.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from transformers import LlamaConfig as ReferenceConfig
from transformers import LlamaForCausalLM

from vrjax.models.attention import Visibility, row_attention
from vrjax.models.decoder import DecoderConfig, RopeScaling, Shard, unsharded
from vrjax.models.llama import Llama, LlamaConfig
from vrjax.models.parameters import abstract_parameters

from .reference import arrange, randomize

VOCABULARY = 200


def _config(**sizes: Any) -> LlamaConfig:
    common = {"vocabulary": VOCABULARY, "layers": 3, "norm_eps": 1e-5, "qkv_bias": False, "max_positions": 4096}
    return LlamaConfig(DecoderConfig(**common, **sizes))


CONFIGS = {
    # Three queries a key head; positions stretched from 64 on, so that most frequencies are divided or on the ramp.
    "tied, scaled": _config(
        width=96, heads=6, kv_heads=2, head_size=16, mlp=112, rope_theta=5e5, tied=True,
        rope_scaling=RopeScaling(factor=8.0, low_factor=1.0, high_factor=4.0, original_length=64),
    ),
    # One key head; heads wider together than the model (head_dim given, as Llama-3.2-3B's is).
    "untied, wide heads": _config(
        width=80, heads=4, kv_heads=1, head_size=24, mlp=112, rope_theta=1e4, tied=False
    ),
    # A key head a query head, head size 64 as in Llama-3.2-1B and SmolLM2-135M.
    "tied, ungrouped": _config(width=128, heads=2, kv_heads=2, head_size=64, mlp=96, rope_theta=1e5, tied=True),
}  # fmt: skip


def forward(model: Llama, tokens: jax.Array, segment: jax.Array, shard: Shard = unsharded) -> jax.Array:
    """Full-sequence logits [B, S, V] in one pass; every row's positions start at 0."""
    visibility = Visibility(segment, jnp.zeros_like(segment))
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), (1, *tokens.shape))
    hidden, _ = model.text.run(
        shard(model.embed(tokens), ("batch", "length", None)),
        model.text.tables(positions),
        lambda q, k, v, memory: (row_attention(q, k, v, visibility), None),
        shard=shard,
    )
    return model.text.logits(hidden)


@dataclass(frozen=True)
class LlamaReference:
    """The two models. `graph` and `params` are the split NNX module."""

    config: LlamaConfig
    torch_model: Any = field(repr=False)
    graph: Any = field(repr=False)
    params: Any = field(repr=False)

    def logits(self, rows: Sequence[np.ndarray], params: Any = None, config: LlamaConfig | None = None) -> np.ndarray:
        """Logits of right-padded rows [B, S, V], by other parameters or another configuration where given."""
        graph = self.graph if config is None else graph_of(config)
        tokens, real = padded(rows)
        run = jax.jit(lambda params, *arrays: forward(nnx.merge(graph, params), *arrays))
        return np.asarray(run(self.params if params is None else params, tokens, real.astype(np.int32)))

    @torch.no_grad()
    def torch_logits(self, rows: Sequence[np.ndarray], dtype: torch.dtype = torch.float32) -> np.ndarray:
        tokens, real = padded(rows)
        model = self.torch_model.to(dtype)
        logits = model(input_ids=torch.tensor(tokens).long(), attention_mask=torch.tensor(real).long()).logits
        self.torch_model.to(torch.float32)
        return logits.numpy()


def padded(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [B, S] filled up with 0, and which are real."""
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int32)
    real = np.zeros(tokens.shape, bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)], real[number, : len(row)] = row, True
    return tokens, real


def graph_of(config: LlamaConfig) -> Any:
    return abstract_parameters(lambda: Llama(config, nnx.Rngs(0)))[0]


def build(config: LlamaConfig, seed: int = 0) -> LlamaReference:
    model = LlamaForCausalLM(ReferenceConfig(**config.to_json(), bos_token_id=None, eos_token_id=None)).eval().float()
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    if tied != config.text.tied:
        raise ValueError(f"the config says tied={config.text.tied}, transformers built tied={tied}")
    state = {name: tensor for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")}
    randomize({name: state[name] for name in sorted(state)}, seed)
    graph, abstract = abstract_parameters(lambda: Llama(config, nnx.Rngs(0)))
    params, used = arrange({name: tensor.numpy() for name, tensor in state.items()}, abstract, rename=str)
    if set(state) != used:
        raise ValueError(f"tensors of transformers without a place: {sorted(set(state) - used)}")
    return LlamaReference(config, model, graph, params)
