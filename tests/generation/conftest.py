"""A small random model with a word tokenizer, shared by the tests of this folder."""

import jax
import numpy as np
import pytest
from flax import nnx

from vrjax.generation.engine import Engine
from vrjax.generation.prompts import ChatTokenizer, Vision
from vrjax.generation.requests import EngineOptions
from vrjax.loading import LoadedModel
from vrjax.models.decoder import DecoderConfig
from vrjax.models.parameters import abstract_parameters
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig, VisionConfig

MARKS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<unk>",
]
WORDS = [
    "system",
    "user",
    "assistant",
    "You",
    "are",
    "a",
    "helpful",
    "assistant.",
    "What",
    "moves",
    "?",
    "The",
    "red",
    "circle",
    "square",
    "then",
    "stops",
    "01",
    "02",
    "03",
    "and",
]


@pytest.fixture(scope="session")
def chat() -> ChatTokenizer:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*MARKS, "\n", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    return ChatTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>"))


@pytest.fixture(scope="session")
def config(chat) -> Qwen2_5VLConfig:
    ids = chat.tokenizer.get_vocab()
    return Qwen2_5VLConfig(
        text=DecoderConfig(
            vocabulary=len(ids) + 3,
            width=32,
            layers=2,
            heads=4,
            kv_heads=2,
            head_size=8,
            mlp=48,
            norm_eps=1e-6,
            rope_theta=1e4,
            tied=False,
            qkv_bias=True,
            max_positions=512,
            sections=(1, 2, 1),
        ),
        vision=VisionConfig(
            layers=2, width=16, heads=2, mlp=24, out_width=32, full_layers=(1,), window=4, tokens_per_second=2
        ),
        image_token=ids["<|image_pad|>"],
        video_token=ids["<|video_pad|>"],
        vision_start_token=ids["<|vision_start|>"],
        vision_end_token=ids["<|vision_end|>"],
    )


@pytest.fixture(scope="session")
def split_model(config):
    graph, _ = abstract_parameters(lambda: Qwen2_5VL(config, nnx.Rngs(0)))

    @jax.jit
    def build():
        # Livelier than fresh weights, so that logits differ and samples depend on what was seen.
        keys = iter(jax.random.split(jax.random.key(1), 200))
        params = nnx.split(Qwen2_5VL(config, nnx.Rngs(0)))[1]
        return jax.tree.map(lambda x: x + 0.15 * jax.random.normal(next(keys), x.shape), params)

    params = build()
    return graph, params


@pytest.fixture(scope="session")
def make_engine(config, split_model, chat):
    """Engines by their options; one that was made before is handed out again, with its compiled programs."""
    engines: dict[EngineOptions, Engine] = {}

    def build(fresh: bool = False, **options) -> Engine:
        key = EngineOptions(**{"length_multiple": 64, **options})
        if fresh:
            return Engine(LoadedModel(config, *split_model, chat), key)
        if key not in engines:
            engines[key] = Engine(LoadedModel(config, *split_model, chat), key)
        return engines[key]

    return build


@pytest.fixture(scope="session")
def make_video(config):
    def build(seed: int, grid=(2, 4, 4), seconds_per_grid: float | None = 1.0) -> Vision:
        pixels = np.random.default_rng(seed).integers(0, 256, (int(np.prod(grid)), config.vision.patch_values))
        return Vision(pixels.astype(np.uint8), grid, seconds_per_grid, f"video {seed} {grid}")

    return build
