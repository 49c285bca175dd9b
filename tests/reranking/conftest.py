"""Clips, a small random video model, and a small random Llama that knows the digits as its scorer."""

import jax
import pytest
from flax import nnx

from data_tools.shapes.dataset import DatasetOptions, make_dataset
from experiments.shapes_sft import FRAMES, make_tokenizer, model_config
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import LoadedModel, abstract_model, save
from vrjax.models.decoder import DecoderConfig
from vrjax.models.llama import Llama, LlamaConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VL


def save_fresh(config, build, chat, folder) -> None:
    graph, _ = abstract_model(config)
    params = jax.jit(lambda: nnx.split(build(config, nnx.Rngs(0)))[1])()
    save(LoadedModel(config, graph, params, chat), folder)


def word_tokenizer(words):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="…"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with clips (train.json, test.json, videos), `model`, `scorer`, and `mute`, which knows no digits."""
    folder = tmp_path_factory.mktemp("world")
    make_dataset(folder, DatasetOptions(train=3, val=0, test=3))
    tokenizer, vocabulary = make_tokenizer(folder)
    save_fresh(model_config(vocabulary), Qwen2_5VL, ChatTokenizer.load(tokenizer), folder / "model")
    PromptRecipe(FRAMES, instruction="").write(folder / "model")
    common = ["…", "</s>", *(f"w{n}" for n in range(20)), "the", "red", "blue", "circle", "Question:", "Answer:"]
    for name, words in (("scorer", [*common, *"0123456789"]), ("mute", common)):
        config = LlamaConfig(
            text=DecoderConfig(
                vocabulary=len(words), width=32, layers=2, heads=4, kv_heads=2, head_size=8, mlp=48, norm_eps=1e-5,
                rope_theta=1e4, tied=True, qkv_bias=False, max_positions=256,
            )
        )  # fmt: skip
        save_fresh(config, Llama, ChatTokenizer.of(word_tokenizer(words)), folder / name)
    return folder
