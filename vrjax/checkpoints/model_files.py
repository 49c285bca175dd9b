"""The files of a Hugging Face model directory beside its weights: configuration, tokenizer, chat template, pixels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from vrjax.models.qwen2_5_vl.config import Qwen2_5VLConfig
from vrjax.models.qwen2_5_vl.vision import PIXEL_MEAN, PIXEL_STD

# Images of Qwen2.5-VL: 4 to 16,384 merged tokens (qwen-vl-utils).
IMAGE_TOKENS = (4, 16384)

# Qwen2.5-VL's chat form for those who prompt the exported model elsewhere; vrjax builds the same text by itself.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{%- if loop.first and message['role'] != 'system' %}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}
{{- message['content'] }}
{%- else %}
{%- for part in message['content'] %}
{%- if part['type'] == 'video' %}
{{- '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif part['type'] in ('image', 'image_url') %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part['type'] == 'text' %}
{{- part['text'] }}
{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


class Chat(Protocol):
    """What is needed of a `vrjax.generation.ChatTokenizer`."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def end_ids(self) -> tuple[int, ...]: ...
    @property
    def pad_id(self) -> int: ...


def write_model_files(config: Any, chat: Chat, directory: str | Path, *, dtype: Any = None) -> None:
    """Write all but the weights into a directory (made if it is not there): config.json, the tokenizer's files with a
    chat template where they have one, generation_config.json, and for video models preprocessor_config.json.

    dtype: the type of the weights, named in config.json where given (readers then load them as that). Raises OSError.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    begin = {} if chat.tokenizer.bos_token_id is None else {"bos_token_id": chat.tokenizer.bos_token_id}
    raw = {**config.to_json(), **begin, "eos_token_id": chat.end_ids[0], "pad_token_id": chat.pad_id}
    if dtype is not None:
        raw["torch_dtype"] = str(dtype)
    _write_json(directory / "config.json", raw)
    _write_json(
        directory / "generation_config.json",
        {"do_sample": False, **begin, "eos_token_id": list(chat.end_ids), "pad_token_id": chat.pad_id},
    )
    chat.tokenizer.save_pretrained(str(directory))
    if isinstance(config, Qwen2_5VLConfig):
        _write_json(directory / "preprocessor_config.json", preprocessor_config(config))
        template = directory / "chat_template.jinja"
        if not template.exists():
            template.write_text(CHAT_TEMPLATE, encoding="utf-8")


def preprocessor_config(config: Qwen2_5VLConfig) -> dict[str, Any]:
    """preprocessor_config.json as Qwen2VLImageProcessor reads it; pixels in number, mean and deviation on 0 to 1."""
    vision = config.vision
    merged_pixels = (vision.patch_size * vision.merge_size) ** 2
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "image_mean": [float(str(value)) for value in PIXEL_MEAN],
        "image_std": [float(str(value)) for value in PIXEL_STD],
        "min_pixels": IMAGE_TOKENS[0] * merged_pixels,
        "max_pixels": IMAGE_TOKENS[1] * merged_pixels,
        "patch_size": vision.patch_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "merge_size": vision.merge_size,
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
