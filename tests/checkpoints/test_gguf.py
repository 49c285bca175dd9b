"""GGUF files of Llamas: a published one against transformers' reader, small ones written as llama.cpp writes them."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer, LlamaForCausalLM
from transformers import LlamaConfig as ReferenceConfig

import vrjax
from tests.models.llama_reference import CONFIGS, build
from vrjax.checkpoints import gguf_file
from vrjax.checkpoints.gguf_file import GGUFFile
from vrjax.cli import main
from vrjax.errors import CheckpointError, InputError
from vrjax.loading import load_gguf, save
from vrjax.models.decoder import RopeScaling
from vrjax.models.llama import LlamaConfig
from vrjax.models.parameters import parameter_table
from vrjax.models.rotary import inverse_frequencies

from .test_hugging_face import same_bits

gguf = pytest.importorskip("gguf")
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
HEADS_OF_64 = dataclasses.replace(CONFIGS["tied, ungrouped"].text, rope_theta=5e5)


def hugging_face_arrays(params) -> dict[str, np.ndarray]:
    """Every tensor by its published name."""
    from flax import nnx

    values = {tuple(map(str, path)): np.asarray(weight.get_value()) for path, weight in nnx.to_flat_state(params)}
    found = {}
    for spec in parameter_table(params):
        for number, name in enumerate(spec.hf_names()):
            found[name] = values[spec.path] if spec.layers is None else values[spec.path][number]
    return found


# ------------------------------------------------------------------ SmolLM2-135M as published


@pytest.mark.slow
def test_weights_are_those_that_transformers_reads(smollm2_file):
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = load_gguf(smollm2_file)
    with torch.device("meta"):
        reference = LlamaForCausalLM(ReferenceConfig(**model.config.to_json()))
    theirs = load_gguf_checkpoint(str(smollm2_file), return_tensors=True, model_to_load=reference)["tensors"]
    ours = hugging_face_arrays(model.params)
    assert set(ours) == set(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name].numpy(), err_msg=name)
    text = model.config.text
    assert (text.layers, text.heads, text.kv_heads, text.head_size) == (30, 9, 3, 64)
    assert (text.norm_eps, text.rope_theta, text.tied, text.max_positions) == (1e-5, 1e5, True, 8192)


@pytest.mark.slow
def test_the_published_tokenizer(smollm2_file):
    ours = gguf_file.read_tokenizer(GGUFFile.open(smollm2_file))
    theirs = AutoTokenizer.from_pretrained(smollm2_file.parent, gguf_file=smollm2_file.name)
    for text in ("The cat's  sat —\n\n\ton  a mat.  ", "naïve 你好 🙂", "<|im_start|>user\nHi<|im_end|>\n", ""):
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
        assert ours.decode(ours(text)["input_ids"]) == text
    assert ours.chat_template == theirs.chat_template
    # SmolLM2's text is cut at every digit first; transformers 5.24 leaves that out, and cuts "  12" after one blank.
    assert ours.tokenize("  12 a34") == ["ĠĠ", "1", "2", "Ġa", "3", "4"]
    assert theirs.tokenize("  12 a34") != ours.tokenize("  12 a34")


# ------------------------------------------------------------------ files written here


def for_llama_cpp(weight: np.ndarray, heads: int) -> np.ndarray:
    """The order of rows in which llama.cpp's converter writes a query or key projection."""
    shape = (heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return weight.reshape(shape).swapaxes(1, 2).reshape(weight.shape)


def write(path, config: LlamaConfig, tensors: dict[str, np.ndarray], *, change=None, quantise=None, more=()) -> None:
    """A file with a tokenizer of single bytes. change: keys to set (None: leave out)."""
    text = config.text
    alphabet = sorted(ByteLevel.alphabet())
    tokens = [*SPECIAL, *alphabet, "ab"]
    tokens += [f"<|{n}|>" for n in range(text.vocabulary - len(tokens))]
    keys = {
        "llama.embedding_length": text.width,
        "llama.block_count": text.layers,
        "llama.feed_forward_length": text.mlp,
        "llama.attention.head_count": text.heads,
        "llama.attention.head_count_kv": text.kv_heads,
        "llama.attention.key_length": text.head_size,
        "llama.rope.dimension_count": text.head_size,
        "llama.context_length": text.max_positions,
        "llama.attention.layer_norm_rms_epsilon": text.norm_eps,
        "llama.rope.freq_base": text.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 2,
        **(change or {}),
    }
    writer = gguf.GGUFWriter(path, keys.pop("general.architecture", "llama"))
    for key, value in keys.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    for name, array in [*tensors.items(), *more]:
        heads = text.heads if "attn_q" in name else text.kv_heads
        array = for_llama_cpp(array, heads) if "attn_q" in name or "attn_k" in name else array
        if quantise is not None and array.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(array, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def llama_cpp_names(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}  # fmt: skip
    found = {}
    for name, array in arrays.items():
        if name not in top:
            _, _, layer, inner = name.split(".", 3)
            found[f"blk.{layer}.{PARTS[inner.removesuffix('.weight')]}.weight"] = array
        else:
            found[top[name]] = array
    return found


def with_vocabulary(config: LlamaConfig) -> LlamaConfig:
    return LlamaConfig(dataclasses.replace(config.text, vocabulary=320))


@pytest.fixture(scope="module", params=["untied, wide heads", "tied, ungrouped"])
def reference(request):
    return build(with_vocabulary(CONFIGS[request.param]), seed=4)


def test_a_written_file_comes_back(reference, tmp_path):
    path = tmp_path / "model.gguf"
    write(path, reference.config, llama_cpp_names(hugging_face_arrays(reference.params)))
    model = load_gguf(path)
    assert model.config == reference.config
    assert same_bits(model.params, reference.params)
    assert model.chat.end_ids == model.generation.end_ids == (1, 2)
    assert model.chat.form.name == "plain"
    assert model.chat.tokenizer("ab")["input_ids"][0] == 0  # begins with its first token by itself


def test_the_command_writes_what_loads(tmp_path, capsys):
    config = with_vocabulary(LlamaConfig(HEADS_OF_64))
    write(tmp_path / "m.gguf", config, llama_cpp_names(hugging_face_arrays(build(config).params)))
    with pytest.raises(SystemExit) as ended:
        main(["convert-gguf", str(tmp_path / "m.gguf"), str(tmp_path / "out"), "--dtype", "bfloat16"])
    assert not ended.value.code
    assert "chat form: plain" in capsys.readouterr().err.replace("\n", " ")
    found = vrjax.load(tmp_path / "out", dtype="stored")
    assert same_bits(found.params, load_gguf(tmp_path / "m.gguf", dtype="bfloat16").params)
    assert (found.config, found.chat.end_ids) == (config, (1, 2))
    assert not (tmp_path / "out" / "preprocessor_config.json").exists()
    with pytest.raises(SystemExit) as ended:
        main(["convert-gguf", str(tmp_path / "m.gguf"), str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "not an empty directory" in capsys.readouterr().err


def test_a_quantised_file_has_the_values_that_its_blocks_stand_for(tmp_path):
    config = with_vocabulary(LlamaConfig(HEADS_OF_64))
    reference, kind = build(config, seed=4), gguf.GGMLQuantizationType.Q8_0
    arrays = hugging_face_arrays(reference.params)
    write(tmp_path / "q.gguf", config, llama_cpp_names(arrays), quantise=kind)
    for name, array in hugging_face_arrays(load_gguf(tmp_path / "q.gguf").params).items():
        # Q8_0: 32 numbers share a scale, their largest over 127, which is itself rounded to half precision.
        bound = 0.0 if array.ndim == 1 else np.abs(arrays[name]).max() / 127 * 0.5 + np.abs(array).max() * 1e-3
        assert np.abs(array - arrays[name]).max() <= bound, name


def llama3_divisors(factor: float, size: int = 64, theta: float = 5e5) -> np.ndarray:
    """rope_freqs as llama.cpp's converter computes them for Llama 3, one frequency at a time."""
    divisors = []
    for frequency in inverse_frequencies(size, theta):
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192 / 1:
            divisors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_stored_frequencies_are_recognised_as_llama_3_s(tmp_path, factor):
    config = with_vocabulary(LlamaConfig(HEADS_OF_64))
    tensors = llama_cpp_names(hugging_face_arrays(build(config).params))
    write(tmp_path / "m.gguf", config, tensors, more=[("rope_freqs.weight", llama3_divisors(factor))])
    model = load_gguf(tmp_path / "m.gguf")
    assert model.config.text.rope_scaling == RopeScaling(factor, 1.0, 4.0, 8192)
    save(model, tmp_path / "out")
    assert vrjax.load(tmp_path / "out").config == model.config


def test_llama_3_s_own_tokenizer(tmp_path, monkeypatch):
    """Its vocabulary through a file's keys and back: the same ids."""
    import json
    import os
    from pathlib import Path

    folder = os.environ.get("VRJAX_REALDATA")
    if not folder:
        pytest.skip("VRJAX_REALDATA is not set: no published tokenizer at hand")
    source = Path(folder) / "tokenizers/llama3_1"
    raw, theirs = json.loads((source / "tokenizer.json").read_text()), AutoTokenizer.from_pretrained(source)
    vocabulary = {**raw["model"]["vocab"], **{item["content"]: item["id"] for item in raw["added_tokens"]}}
    tokens = sorted(vocabulary, key=vocabulary.get)
    special = {item["content"] for item in raw["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in raw["model"]["merges"]]
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": vocabulary["<|begin_of_text|>"],
        "tokenizer.ggml.eos_token_id": vocabulary["<|eot_id|>"],
    }
    ours = gguf_file.read_tokenizer(GGUFFile(tmp_path, keys, {}))
    for text in ("It's  12345 naïve\n\n\t你好 🙂 ", "<|eot_id|>user said THAT'S it...\r\n", "", " " * 9 + "x"):
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
        assert ours(text, text)["input_ids"] == theirs(text, text)["input_ids"]


# ------------------------------------------------------------------ what cannot be used


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"general.architecture": "qwen2"}, "holds a model of the kind 'qwen2'"),
        ({"llama.expert_count": 8}, "llama with experts"),
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type 'yarn' is not supported"),
        ({"llama.rope.dimension_count": 12}, "12 of 64 numbers of a head are rotated"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": 2}, r"do not fit .* spare blk\.2\."),
        ({"llama.block_count": 4}, r"missing blk\.3\.attn_norm\.weight"),
        ({"llama.feed_forward_length": 90}, r"ffn_gate\.weight is \(96, 128\), not \(90, 128\)"),
        ({"tokenizer.ggml.pre": "qwen2"}, "kind 'gpt2', 'qwen2'"),
        ({"tokenizer.ggml.model": "llama"}, "kind 'llama'"),
        ({"tokenizer.ggml.merges": ["a z"]}, "merges do not fit"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, change, problem):
    config = with_vocabulary(LlamaConfig(HEADS_OF_64))
    write(tmp_path / "m.gguf", config, llama_cpp_names(hugging_face_arrays(build(config).params)), change=change)
    with pytest.raises(CheckpointError, match=rf"m\.gguf: .*{problem}"):
        load_gguf(tmp_path / "m.gguf")


def test_frequencies_that_are_not_llama_3_s(tmp_path):
    config = with_vocabulary(LlamaConfig(HEADS_OF_64))
    tensors = llama_cpp_names(hugging_face_arrays(build(config).params))
    write(tmp_path / "m.gguf", config, tensors, more=[("rope_freqs.weight", llama3_divisors(8.0)[::-1].copy())])
    with pytest.raises(CheckpointError, match="does not hold Llama 3's scaling"):
        load_gguf(tmp_path / "m.gguf")


def test_what_is_no_file(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="there is no such file"):
        load_gguf(tmp_path / "nowhere.gguf")
    (tmp_path / "text.gguf").write_bytes(b"nothing of the kind")
    with pytest.raises(CheckpointError, match="not a whole GGUF file"):
        load_gguf(tmp_path / "text.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(CheckpointError, match="not a whole GGUF file"):
        load_gguf(tmp_path / "empty.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(InputError, match=r"pip install 'vrjax\[gguf\]'"):
        load_gguf(tmp_path / "text.gguf")


def test_a_file_that_was_cut_short(tmp_path):
    config = with_vocabulary(LlamaConfig(HEADS_OF_64))
    path = tmp_path / "m.gguf"
    write(path, config, llama_cpp_names(hugging_face_arrays(build(config).params)))
    whole = path.read_bytes()
    for share in (0.99, 0.5, 0.02):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(CheckpointError, match=r"m\.gguf"):
            load_gguf(path)
