"""The part of a Hugging Face config.json that describes a decoder; its keys are those of all language models here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vrjax.errors import CheckpointError
from vrjax.models.decoder import DecoderConfig, RopeScaling


@dataclass(frozen=True)
class Section:
    """A configuration, or a part of it. where: the file; prefix: of its keys in messages ("vision_config.")."""

    values: dict[str, Any]
    where: str
    prefix: str = ""

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def need(self, key: str) -> Any:
        """The value of a key. Raises CheckpointError where it is missing."""
        if self.values.get(key) is None:
            raise CheckpointError(
                f"{self.where}: {self.prefix}{key} is missing. Add the value the model was trained with."
            )
        return self.values[key]

    def only(self, key: str, supported: Any) -> None:
        """Raises CheckpointError where a key is there with another value than the one that is supported."""
        found = self.values.get(key)
        if found is not None and found != supported:
            raise CheckpointError(
                f"{self.where}: {self.prefix}{key} {found!r} is not supported, only {supported!r}. "
                "Use another checkpoint."
            )


@dataclass(frozen=True)
class Rope:
    """What a configuration says on rotary positions. values: of `rope_parameters`, or of `rope_scaling` before that."""

    theta: float
    values: dict[str, Any]
    where: str

    @staticmethod
    def read(section: Section) -> Rope:
        """Raises CheckpointError where rope_theta is missing."""
        values = section.get("rope_parameters") or section.get("rope_scaling") or {}
        if not isinstance(values, dict):
            raise CheckpointError(f"{section.where}: rope_scaling is no object but {values!r}. Restore the file.")
        theta = values.get("rope_theta", section.get("rope_theta"))
        if theta is None:
            raise CheckpointError(f"{section.where}: rope_theta is missing. Add the value the model was trained with.")
        return Rope(float(theta), values, section.where)

    def scaling(self) -> RopeScaling | None:
        """Llama 3's scaling, or None for plain positions. Raises CheckpointError for any other kind."""
        kind = self.values.get("rope_type") or self.values.get("type") or "default"
        if kind == "default":
            return None
        if kind != "llama3":
            raise CheckpointError(
                f"{self.where}: the rope type {kind!r} is not supported, only 'default' and 'llama3'. "
                "Use another checkpoint."
            )
        numbers = Section(self.values, self.where, "rope_scaling.")
        return RopeScaling(
            factor=float(numbers.need("factor")),
            low_factor=float(numbers.need("low_freq_factor")),
            high_factor=float(numbers.need("high_freq_factor")),
            original_length=int(numbers.need("original_max_position_embeddings")),
        )


def read_decoder(
    text: Section,
    rope: Rope,
    *,
    tied: bool,
    qkv_bias: bool,
    head_size: int | None = None,
    sections: tuple[int, ...] | None = None,
    rope_scaling: RopeScaling | None = None,
) -> DecoderConfig:
    """The decoder's sizes. head_size: None derives it from width and heads.

    Raises CheckpointError naming the key that is missing, not supported, or does not divide.
    """
    text.only("hidden_act", "silu")
    width, heads = text.need("hidden_size"), text.need("num_attention_heads")
    kv_heads = text.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise CheckpointError(
            f"{text.where}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}. "
            "Restore the values the model was trained with."
        )
    if head_size is None and width % heads:
        raise CheckpointError(
            f"{text.where}: hidden_size {width} is no multiple of num_attention_heads {heads}, and there is no "
            "head_dim. Restore the values the model was trained with."
        )
    return DecoderConfig(
        vocabulary=text.need("vocab_size"),
        width=width,
        layers=text.need("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size or width // heads,
        mlp=text.need("intermediate_size"),
        norm_eps=text.need("rms_norm_eps"),
        rope_theta=rope.theta,
        tied=tied,
        qkv_bias=qkv_bias,
        max_positions=text.need("max_position_embeddings"),
        sections=sections,
        rope_scaling=rope_scaling,
    )


def decoder_json(text: DecoderConfig) -> dict[str, Any]:
    """The keys that all language models share, rope_scaling apart."""
    return {
        "hidden_act": "silu",
        "vocab_size": text.vocabulary,
        "hidden_size": text.width,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
        "num_key_value_heads": text.kv_heads,
        "intermediate_size": text.mlp,
        "rms_norm_eps": text.norm_eps,
        "rope_theta": text.rope_theta,
        "max_position_embeddings": text.max_positions,
        "tie_word_embeddings": text.tied,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
    }
