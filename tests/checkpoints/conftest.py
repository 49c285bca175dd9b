"""A small Qwen2.5-VL with random weights, biases and norms, and a tokenizer with Qwen's marks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from vrjax.generation.prompts import ChatTokenizer
from vrjax.loading import LoadedModel, abstract_model
from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig, VisionConfig

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
MARKS += ["<|image_pad|>", "<|video_pad|>"]
WORDS = ["[UNK]", "what", "happens", "a", "red", "ball", "?"]


def small_config(tied: bool = False) -> Qwen2_5VLConfig:
    text = DecoderConfig(
        vocabulary=96, width=64, layers=3, heads=4, kv_heads=2, head_size=16, mlp=96, norm_eps=1e-6, rope_theta=1e6,
        tied=tied, qkv_bias=True, max_positions=4096, sections=(2, 3, 3),
    )  # fmt: skip
    vision = VisionConfig(
        layers=4, width=32, heads=2, mlp=48, out_width=64, full_layers=(1, 3), window=4, tokens_per_second=2
    )
    return Qwen2_5VLConfig(text, vision, image_token=12, video_token=13, vision_start_token=10, vision_end_token=11)


def random_params(config, dtype=jnp.float32, seed=0):
    """Random numbers everywhere: constant norms and biases would hide a parameter that goes to the wrong place.

    They are rounded to float32 first: a float64 that goes to bfloat16 by way of float32 may end elsewhere than one that
    goes there at once (which of the two `astype` does depends on the version of ml_dtypes).
    """
    _, shapes = abstract_model(config)
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    arrays = [jnp.asarray((rng.normal(size=leaf.shape) * 0.2).astype(np.float32).astype(dtype)) for leaf in leaves]
    return jax.tree.unflatten(tree, arrays)


@pytest.fixture(scope="session")
def chat() -> ChatTokenizer:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(WORDS + MARKS)}
    assert vocabulary["<|vision_start|>"] == 10
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=MARKS,
    )  # fmt: skip
    return ChatTokenizer.of(fast)


@pytest.fixture
def make_model(chat):
    def make(tied=False, dtype=jnp.float32, seed=0) -> LoadedModel:
        config = small_config(tied)
        graph, _ = nnx.split(nnx.eval_shape(lambda: Qwen2_5VL(config, nnx.Rngs(0))))
        return LoadedModel(config, graph, random_params(config, dtype, seed), chat)

    return make
