"""Llamas in GGUF, llama.cpp's file format: configuration, weights (dequantised) and tokenizer.

Names and layouts are those that llama.cpp's converter writes. It stores the rows of the query and key projections so
that the two numbers which rotate together are neighbours; here they are put back half a head apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from vrjax.errors import CheckpointError, InputError
from vrjax.models.decoder import DecoderConfig
from vrjax.models.llama import LlamaConfig
from vrjax.models.parameters import ParameterSpec, parameter_table
from vrjax.models.rotary import inverse_frequencies, llama3_scaled
from vrjax.sharding import map_parameters

STRETCH = "rope_freqs.weight"
# Of Llama 3.1 to 3.3; only the factor differs from size to size.
LOW_FACTOR, HIGH_FACTOR, ORIGINAL_LENGTH = 1.0, 4.0, 8192
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


@dataclass(frozen=True)
class GGUFFile:
    """An opened file. metadata: its key-value pairs; tensors: by name, still quantised and on disk."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, Any]

    @staticmethod
    def open(path: str | Path) -> GGUFFile:
        """Raises InputError where the package gguf or the file is missing, CheckpointError for what is no GGUF file."""
        try:
            from gguf import GGUFReader
        except ImportError as error:
            raise InputError("GGUF files are read with the package gguf. Run: pip install 'vrjax[gguf]'") from error
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: there is no such file. Give a .gguf file.")
        try:
            reader = GGUFReader(path)
            metadata = {key: field.contents() for key, field in reader.fields.items()}
        except (ValueError, IndexError, KeyError) as error:
            raise CheckpointError(f"{path}: not a whole GGUF file ({error}). Download it again.") from error
        return GGUFFile(path, metadata, {tensor.name: tensor for tensor in reader.tensors})

    def need(self, key: str) -> Any:
        if key not in self.metadata:
            raise CheckpointError(f"{self.path}: the key {key} is missing. Convert the original checkpoint again.")
        return self.metadata[key]

    def tensor(self, name: str) -> np.ndarray:
        """A tensor in float32, its dimensions in NumPy's order. Raises CheckpointError for an unknown quantisation."""
        from gguf.quants import dequantize

        stored = self.tensors[name]
        try:
            return np.asarray(dequantize(stored.data, stored.tensor_type), np.float32)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{self.path}: {name} is stored as {stored.tensor_type.name}, which cannot be read. "
                "Take a file of another quantisation."
            ) from error


def read_config(file: GGUFFile) -> LlamaConfig:
    """Raises CheckpointError where the file holds another kind of model, or a key is missing or not supported."""
    metadata, where = file.metadata, str(file.path)
    kind = file.need("general.architecture")
    if kind != "llama" or metadata.get("llama.expert_count"):
        kind = kind if kind != "llama" else "llama with experts"
        raise CheckpointError(f"{where}: holds a model of the kind {kind!r}. Only plain llama files are converted.")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise CheckpointError(f"{where}: llama.rope.scaling.type {scaling!r} is not supported. Use another checkpoint.")
    width, heads = file.need("llama.embedding_length"), file.need("llama.attention.head_count")
    head_size = metadata.get("llama.attention.key_length", width // heads)
    rotated = metadata.get("llama.rope.dimension_count", head_size)
    if rotated != head_size:
        raise CheckpointError(
            f"{where}: {rotated} of {head_size} numbers of a head are rotated; only whole heads are supported. "
            "Use another checkpoint."
        )
    theta = float(file.need("llama.rope.freq_base"))
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError(f"{where}: token_embd.weight is missing. Download the file again.")
    raw = {
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("llama.attention.head_count_kv", heads),
        "head_dim": head_size,
        "num_hidden_layers": file.need("llama.block_count"),
        "intermediate_size": file.need("llama.feed_forward_length"),
        "vocab_size": int(file.tensors["token_embd.weight"].shape[1]),
        "max_position_embeddings": file.need("llama.context_length"),
        "rms_norm_eps": _shortest(file.need("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(file, head_size, theta),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    return LlamaConfig.from_json(raw, where)


def _shortest(value: float) -> float:
    """The shortest decimal of a number that was stored in float32: 1e-05, not 9.99999974e-06."""
    return float(str(np.float32(value)))


def _rope_scaling(file: GGUFFile, head_size: int, theta: float) -> dict[str, Any] | None:
    """Llama 3's numbers. A file holds only what they make of the frequencies: the divisor of each."""
    if STRETCH not in file.tensors:
        return None
    found = file.tensor(STRETCH)
    plain, factor = inverse_frequencies(head_size, theta), _shortest(found.max())
    wanted = plain / llama3_scaled(plain, factor, LOW_FACTOR, HIGH_FACTOR, ORIGINAL_LENGTH)
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=1e-3):
        raise CheckpointError(
            f"{file.path}: {STRETCH} does not hold Llama 3's scaling. Convert from the original checkpoint instead."
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW_FACTOR,
        "high_freq_factor": HIGH_FACTOR,
        "original_max_position_embeddings": ORIGINAL_LENGTH,
    }


def read_parameters(file: GGUFFile, config: LlamaConfig, params: nnx.State, dtype: Any = np.float32) -> nnx.State:
    """The weights as arrays of `dtype`. params: the model's (abstract) parameters.

    Raises CheckpointError naming the tensors that are missing, spare or misshapen.
    """
    table = parameter_table(params)
    wanted = {_gguf_name(name): spec.hf_shape for spec in table for name in spec.hf_names()}
    found = {name: tuple(int(size) for size in tensor.shape[::-1]) for name, tensor in file.tensors.items()}
    found.pop(STRETCH, None)
    faults = [f"missing {name}" for name in wanted if name not in found]
    faults += [f"spare {name}" for name in found if name not in wanted]
    faults += [f"{n} is {found[n]}, not {wanted[n]}" for n in wanted if n in found and found[n] != wanted[n]]
    if faults:
        more = f", and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise CheckpointError(
            f"{file.path}: the tensors do not fit the file's keys: {', '.join(faults[:10])}{more}. Download it again."
        )

    def load(spec: ParameterSpec, _: Any) -> Any:
        parts = [_in_halves(file.tensor(_gguf_name(name)), name, config.text).astype(dtype) for name in spec.hf_names()]
        return jnp.asarray(np.stack(parts) if spec.layers is not None else parts[0])

    return map_parameters(load, params)


def _gguf_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    layer, inner = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[inner.removesuffix('.weight')]}.weight"


def _in_halves(tensor: np.ndarray, name: str, config: DecoderConfig) -> np.ndarray:
    """Rows of a query or key projection in Hugging Face's order: in a head, (pair, which of two) -> (which, pair)."""
    if "q_proj" not in name and "k_proj" not in name:
        return tensor
    pairs = tensor.reshape(-1, config.head_size // 2, 2, tensor.shape[1])
    return pairs.swapaxes(1, 2).reshape(tensor.shape)


# How the text is cut before pairs are merged, by the name that the file gives it: of Llama 3 and of SmolLM2.
LLAMA3_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
    r"|\s+"
)


def read_tokenizer(file: GGUFFile) -> Any:
    """The file's byte-level tokenizer with its special tokens and chat template, as transformers' fast tokenizer.

    Raises CheckpointError for a tokenizer of another kind.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    kind, cut = file.need("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre")
    cuts = {
        "smollm": lambda: [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)],
        "llama-bpe": lambda: [
            pre_tokenizers.Split(Regex(LLAMA3_CUT), behavior="isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ],
    }
    if kind != "gpt2" or cut not in cuts:
        raise CheckpointError(
            f"{file.path}: the tokenizer is of the kind {kind!r}, {cut!r}. Known: "
            f"{', '.join(f'gpt2, {name}' for name in cuts)}. Take the tokenizer's files from the original checkpoint."
        )
    tokens = file.need("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in file.need("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        core = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut == "llama-bpe"))
    except Exception as error:  # the library raises no other kind
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.tokens and merges do not fit each other ({error}). Download it again."
        ) from error
    core.pre_tokenizer = pre_tokenizers.Sequence(cuts[cut]())
    core.decoder = decoders.ByteLevel()
    types = file.metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    added = {
        wanted: [token for token, found in zip(tokens, types, strict=True) if found == wanted]
        for wanted in (CONTROL, USER_DEFINED)
    }
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in added[CONTROL]])
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in added[USER_DEFINED]])
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            named[f"{name}_token"] = tokens[index]
    if file.metadata.get("tokenizer.ggml.add_bos_token", cut == "llama-bpe") and "bos_token" in named:
        first = named["bos_token"]
        core.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, vocabulary[first])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        chat_template=file.metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **named,
    )


def end_ids(file: GGUFFile) -> tuple[int, ...]:
    """Tokens that end a response; none where the file names none."""
    found = (file.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot"))
    return tuple(dict.fromkeys(int(token) for token in found if token is not None))
