"""Sizes of a Llama, read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vrjax.models.decoder import DecoderConfig
from vrjax.models.decoder_json import Rope, Section, decoder_json, read_decoder


@dataclass(frozen=True)
class LlamaConfig:
    """A whole model: nothing but a decoder."""

    text: DecoderConfig
    vision: ClassVar[None] = None

    @staticmethod
    def from_json(raw: dict[str, Any], where: str = "config.json") -> LlamaConfig:
        """Read a Hugging Face configuration; rotary scaling stands in `rope_scaling` or, since 5, `rope_parameters`.

        Raises CheckpointError naming the key that is missing or not supported.
        """
        section = Section(raw, where)
        # Biases and pairs of neighbouring numbers to rotate: in no published Llama 3 or SmolLM2.
        for key in ("attention_bias", "mlp_bias", "rope_interleaved"):
            section.only(key, False)
        rope = Rope.read(section)
        decoder = read_decoder(
            section,
            rope,
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=False,
            head_size=raw.get("head_dim"),
            rope_scaling=rope.scaling(),
        )
        return LlamaConfig(decoder)

    def to_json(self) -> dict[str, Any]:
        """The published form, as transformers and vLLM read it."""
        scaling = self.text.rope_scaling
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **decoder_json(self.text),
            "head_dim": self.text.head_size,
            "attention_bias": False,
            "mlp_bias": False,
            "rope_scaling": None
            if scaling is None
            else {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_factor,
                "high_freq_factor": scaling.high_factor,
                "original_max_position_embeddings": scaling.original_length,
            },
        }

    @staticmethod
    def read(path: str | Path) -> LlamaConfig:
        return LlamaConfig.from_json(json.loads(Path(path).read_text()), str(path))
