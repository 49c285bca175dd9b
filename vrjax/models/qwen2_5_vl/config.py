"""Sizes of a Qwen2.5-VL, read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.errors import CheckpointError
from vrjax.models.decoder import DecoderConfig
from vrjax.models.decoder_json import Rope, Section, decoder_json, read_decoder


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
        flat = {**raw, **raw["text_config"]} if isinstance(raw.get("text_config"), dict) else raw
        if not isinstance(raw.get("vision_config"), dict):
            raise CheckpointError(f"{where}: vision_config is missing. Is this a Qwen2.5-VL checkpoint?")
        whole, text = Section(raw, where), Section(flat, where)
        vision = Section(raw["vision_config"], where, "vision_config.")
        rope = Rope.read(text)
        if "mrope_section" not in rope.values:
            raise CheckpointError(f"{where}: rope_scaling.mrope_section is missing. Add the model's three sections.")
        if text.get("use_sliding_window"):
            raise CheckpointError(f"{where}: use_sliding_window is on, which is not supported. Set it to false.")
        decoder = read_decoder(
            text,
            rope,
            tied=bool(raw.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
            qkv_bias=True,
            sections=tuple(rope.values["mrope_section"]),
        )
        vision.only("hidden_act", "silu")
        merge, patch = vision.get("spatial_merge_size", 2), vision.get("patch_size", 14)
        tower = VisionConfig(
            layers=vision.need("depth"),
            width=vision.need("hidden_size"),
            heads=vision.need("num_heads"),
            mlp=vision.need("intermediate_size"),
            out_width=vision.need("out_hidden_size"),
            full_layers=tuple(vision.need("fullatt_block_indexes")),
            window=vision.need("window_size") // merge // patch,
            tokens_per_second=vision.need("tokens_per_second"),
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
            image_token=whole.need("image_token_id"),
            video_token=whole.need("video_token_id"),
            vision_start_token=whole.need("vision_start_token_id"),
            vision_end_token=whole.need("vision_end_token_id"),
        )

    def to_json(self) -> dict[str, Any]:
        """The published flat form, as transformers and vLLM read it."""
        text, vision, rate = self.text, self.vision, self.vision.tokens_per_second
        return {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            **decoder_json(text),
            "rope_scaling": {"type": "mrope", "mrope_section": list(text.sections or ())},
            "use_sliding_window": False,
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
