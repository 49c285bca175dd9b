"""Which classes stand for each `model_type` of a Hugging Face config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flax import nnx

from vrjax.errors import CheckpointError
from vrjax.models.llama import Llama, LlamaConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VL, Qwen2_5VLConfig


@dataclass(frozen=True)
class Architecture:
    """One supported architecture.

    read_config(raw json, where): the configuration, CheckpointError naming a missing key.
    build(config, rngs): the module; call it inside `abstract_parameters` to take no memory.
    """

    config: type
    read_config: Callable[[dict[str, Any], str], Any]
    build: Callable[[Any, nnx.Rngs], nnx.Module]


ARCHITECTURES: dict[str, Architecture] = {
    "qwen2_5_vl": Architecture(Qwen2_5VLConfig, Qwen2_5VLConfig.from_json, Qwen2_5VL),
    "llama": Architecture(LlamaConfig, LlamaConfig.from_json, Llama),
}


def architecture_of(config: Any) -> Architecture:
    """The architecture that a configuration object belongs to."""
    for architecture in ARCHITECTURES.values():
        if isinstance(config, architecture.config):
            return architecture
    raise TypeError(f"{type(config).__name__} is no configuration of a registered architecture")


def read_config(path: str | Path) -> Any:
    """Read a config.json. Raises CheckpointError for a file that is missing or not JSON, or an unknown model type."""
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}). Is this a model directory?") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}). Copy the file again.") from error
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if kind not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise CheckpointError(f"{path}: model_type {kind!r} is not supported. Known types: {known}.")
    return ARCHITECTURES[kind].read_config(raw, str(path))
