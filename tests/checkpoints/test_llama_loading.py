"""Llamas as directories: what transformers writes comes back bit for bit, and it loads what is written here."""

import json

import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import vrjax
from tests.models.llama_reference import CONFIGS, VOCABULARY, build
from vrjax.commands.export import Export
from vrjax.errors import CheckpointError
from vrjax.generation import ChatTokenizer, build_prompt
from vrjax.loading import LoadedModel

from .test_hugging_face import same_bits

MARKS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + "
    "m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words w0 …, Llama 3's marks and roles."""
    words = [*MARKS, "user", "assistant", "system"]
    words += [f"w{index}" for index in range(VOCABULARY - len(words))]
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="w0"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=MARKS[0], eos_token=MARKS[4], chat_template=TEMPLATE
    )


@pytest.fixture(scope="module", params=CONFIGS)
def reference(request):
    return build(CONFIGS[request.param], seed=6)


@pytest.fixture
def published(reference, tmp_path):
    """A directory as transformers writes it, in bfloat16 and several files, with recommendations."""
    reference.torch_model.to(torch.bfloat16).save_pretrained(tmp_path / "published", max_shard_size="100KB")
    reference.torch_model.float()
    make_tokenizer().save_pretrained(tmp_path / "published")
    raw = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [1, 4], "bos_token_id": 0}
    (tmp_path / "published" / "generation_config.json").write_text(json.dumps(raw))
    return tmp_path / "published"


def tensors_of(directory):
    return {name: array for file in directory.glob("*.safetensors") for name, array in load_file(file).items()}


def test_export_of_load_is_the_same_bits(published, reference, tmp_path):
    assert len(list(published.glob("*.safetensors"))) > 1
    model = vrjax.load(published, dtype="stored")
    vrjax.save(model, tmp_path / "out")
    before, after = tensors_of(published), tensors_of(tmp_path / "out")
    assert set(before) == set(after)
    for name, array in before.items():
        assert (array.dtype, array.shape, array.tobytes()) == (
            after[name].dtype, after[name].shape, after[name].tobytes()
        ), name  # fmt: skip
    again = vrjax.load(tmp_path / "out", dtype="stored")
    assert same_bits(model.params, again.params)
    assert again.config == model.config == reference.config


def test_what_came_with_the_model_is_kept(published, tmp_path):
    assert Export(str(published), tmp_path / "out", dtype="float32").run() == 0
    model = vrjax.load(tmp_path / "out")
    assert (model.generation.temperature, model.chat.end_ids) == (0.6, (1, 4))
    assert model.chat.form.name == "Llama 3"
    assert not (tmp_path / "out" / "preprocessor_config.json").exists()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == TEMPLATE
    messages = [{"role": "user", "content": "w3 w4"}]
    wanted = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert build_prompt(model.chat, model.config, "w3 w4").tokens.tolist() == wanted


def test_transformers_loads_the_export_and_gives_the_same_logits(reference, tmp_path):
    chat = ChatTokenizer.of(make_tokenizer())
    vrjax.save(LoadedModel(reference.config, reference.graph, reference.params, chat), tmp_path / "out")
    theirs, report = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(theirs).__name__ == "LlamaForCausalLM"
    raw = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (raw["bos_token_id"], raw["eos_token_id"]) == (0, 4)
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 150)
    with torch.no_grad():
        logits = theirs.eval()(input_ids=torch.tensor(tokens[None])).logits.numpy()
    ours = reference.logits([tokens])
    assert np.abs(ours - logits).max() <= 1e-4 * logits.std()


def test_a_tied_model_with_a_head_of_its_own_is_refused(tmp_path):
    reference = build(CONFIGS["untied, wide heads"])
    chat = ChatTokenizer.of(make_tokenizer())
    vrjax.save(LoadedModel(reference.config, reference.graph, reference.params, chat), tmp_path / "out")
    raw = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps({**raw, "tie_word_embeddings": True}))
    with pytest.raises(CheckpointError, match=r"ties the head to the embedding, but lm_head\.weight differs"):
        vrjax.load(tmp_path / "out")


def test_default_types(published):
    assert {leaf.dtype for leaf in jax.tree.leaves(vrjax.load(published).params)} == {np.dtype("float32")}
