"""Sizes of a Qwen2.5-VL, read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import CheckpointError
from vrjax.models.decoder import DecoderConfig


@dataclass(frozen=True)
class VisionConfig:
    """Sizes of the vision tower. `window`: side of an attention window in merged tokens (112 px = 4)."""

    layers: int
    width: int
    heads: int
    mlp: int
    out_width: int
    full_layers: tuple[int, ...]
    window: int
    tokens_per_second: float
    patch_size: int = 14
    temporal_patch_size: int = 2
    merge_size: int = 2
    channels: int = 3
    norm_eps: float = 1e-6

    @property
    def patch_values(self) -> int:
        """Numbers in one patch: channels x frames x height x width."""
        return self.channels * self.temporal_patch_size * self.patch_size**2


@dataclass(frozen=True)
class Qwen2_5VLConfig:
    """A whole model. Token ids are those of the tokenizer that came with it."""

    text: DecoderConfig
    vision: VisionConfig
    image_token: int
    video_token: int
    vision_start_token: int
    vision_end_token: int

    @staticmethod
    def from_json(raw: dict[str, Any], where: str = "config.json") -> Qwen2_5VLConfig:
        """Read a Hugging Face configuration, in the published flat form or with a nested `text_config`.

        Raises CheckpointError naming the key that is missing or not supported.
        """
        text = {**raw, **raw["text_config"]} if isinstance(raw.get("text_config"), dict) else raw
        vision = raw.get("vision_config")
        if not isinstance(vision, dict):
            raise CheckpointError(f"{where}: vision_config is missing. Is this a Qwen2.5-VL checkpoint?")

        def need(source: dict[str, Any], key: str, section: str) -> Any:
            if source.get(key) is None:
                raise CheckpointError(f"{where}: {section}{key} is missing. Add the value the model was trained with.")
            return source[key]

        rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
        if "mrope_section" not in rope:
            raise CheckpointError(f"{where}: rope_scaling.mrope_section is missing. Add the model's three sections.")
        theta = rope.get("rope_theta", text.get("rope_theta"))
        if theta is None:
            raise CheckpointError(f"{where}: rope_theta is missing. Add the value the model was trained with.")
        if text.get("use_sliding_window"):
            raise CheckpointError(f"{where}: use_sliding_window is on, which is not supported. Set it to false.")
        for section, key, expected in ((text, "hidden_act", "silu"), (vision, "hidden_act", "silu")):
            if section.get(key, expected) != expected:
                raise CheckpointError(f"{where}: {key} {section[key]!r} is not supported, only {expected!r}.")
        heads = need(text, "num_attention_heads", "")
        width = need(text, "hidden_size", "")
        decoder = DecoderConfig(
            vocabulary=need(text, "vocab_size", ""),
            width=width,
            layers=need(text, "num_hidden_layers", ""),
            heads=heads,
            kv_heads=text.get("num_key_value_heads") or heads,
            head_size=width // heads,
            mlp=need(text, "intermediate_size", ""),
            norm_eps=need(text, "rms_norm_eps", ""),
            rope_theta=float(theta),
            tied=bool(raw.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
            qkv_bias=True,
            max_positions=need(text, "max_position_embeddings", ""),
            sections=tuple(rope["mrope_section"]),
        )
        merge, patch = vision.get("spatial_merge_size", 2), vision.get("patch_size", 14)
        tower = VisionConfig(
            layers=need(vision, "depth", "vision_config."),
            width=need(vision, "hidden_size", "vision_config."),
            heads=need(vision, "num_heads", "vision_config."),
            mlp=need(vision, "intermediate_size", "vision_config."),
            out_width=need(vision, "out_hidden_size", "vision_config."),
            full_layers=tuple(need(vision, "fullatt_block_indexes", "vision_config.")),
            window=need(vision, "window_size", "vision_config.") // merge // patch,
            tokens_per_second=need(vision, "tokens_per_second", "vision_config."),
            patch_size=patch,
            temporal_patch_size=vision.get("temporal_patch_size", 2),
            merge_size=merge,
            channels=vision.get("in_channels", vision.get("in_chans", 3)),
        )
        if tower.out_width != decoder.width:
            raise CheckpointError(
                f"{where}: vision_config.out_hidden_size {tower.out_width} differs from hidden_size {decoder.width}."
            )
        return Qwen2_5VLConfig(
            text=decoder,
            vision=tower,
            image_token=need(raw, "image_token_id", ""),
            video_token=need(raw, "video_token_id", ""),
            vision_start_token=need(raw, "vision_start_token_id", ""),
            vision_end_token=need(raw, "vision_end_token_id", ""),
        )

    def to_json(self) -> dict[str, Any]:
        """The published flat form, as transformers and vLLM read it."""
        text, vision, rate = self.text, self.vision, self.vision.tokens_per_second
        return {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            "hidden_act": "silu",
            "vocab_size": text.vocabulary,
            "hidden_size": text.width,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
            "intermediate_size": text.mlp,
            "rms_norm_eps": text.norm_eps,
            "rope_theta": text.rope_theta,
            "rope_scaling": {"type": "mrope", "mrope_section": list(text.sections or ())},
            "max_position_embeddings": text.max_positions,
            "tie_word_embeddings": text.tied,
            "use_sliding_window": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "use_cache": True,
            "image_token_id": self.image_token,
            "video_token_id": self.video_token,
            "vision_start_token_id": self.vision_start_token,
            "vision_end_token_id": self.vision_end_token,
            "vision_config": {
                "model_type": "qwen2_5_vl",
                "depth": vision.layers,
                "hidden_act": "silu",
                "hidden_size": vision.width,
                "num_heads": vision.heads,
                "intermediate_size": vision.mlp,
                "out_hidden_size": vision.out_width,
                "fullatt_block_indexes": list(vision.full_layers),
                "window_size": vision.window * vision.merge_size * vision.patch_size,
                "tokens_per_second": int(rate) if float(rate).is_integer() else rate,
                "patch_size": vision.patch_size,
                "spatial_patch_size": vision.patch_size,
                "spatial_merge_size": vision.merge_size,
                "temporal_patch_size": vision.temporal_patch_size,
                "in_channels": vision.channels,
                "in_chans": vision.channels,
            },
        }

    @staticmethod
    def read(path: str | Path) -> Qwen2_5VLConfig:
        return Qwen2_5VLConfig.from_json(json.loads(Path(path).read_text()), str(path))
