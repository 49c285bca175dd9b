"""The language model of a Qwen2.5-VL as a directory of its own, for peers that read text only: same weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from vrjax.generation.prompts import ChatTokenizer
from vrjax.models.decoder import DecoderConfig


def write_text_model(whole: Any, config: DecoderConfig, chat: ChatTokenizer, directory: Path) -> None:
    """Write Qwen2ForCausalLM and a tokenizer. whole: transformers' Qwen2_5_VLForConditionalGeneration of `config`.

    On text the three axes of mRoPE agree, so that it is the plain rotary embedding which Qwen2 has.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    ends = {"eos_token_id": chat.end_ids[0], "pad_token_id": chat.pad_id, "bos_token_id": None}
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            intermediate_size=config.mlp,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            max_position_embeddings=config.max_positions,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tied,
            **ends,
        )
    )
    weights = {f"model.{name}": value for name, value in whole.model.language_model.state_dict().items()}
    model.load_state_dict(weights | {"lm_head.weight": whole.lm_head.weight})
    model.save_pretrained(directory)
    tokenizer = copy.deepcopy(chat.tokenizer)
    tokenizer.eos_token, tokenizer.pad_token = tokenizer.convert_ids_to_tokens([chat.end_ids[0], chat.pad_id])
    tokenizer.save_pretrained(directory)
