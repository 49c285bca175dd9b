"""Training: supervised fine-tuning, on pieces that other algorithms share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.training.config import (
        BatchConfig,
        CheckpointConfig,
        DatasetConfig,
        FreshModel,
        InputConfig,
        MeshConfig,
        ModelDirectory,
        SftConfig,
    )
    from vrjax.training.state import OptimizerConfig
    from vrjax.training.supervised import SftResult, sft
    from vrjax.training.templates import ResponseTemplate

# Imported when first used: an experiment file that only names a configuration need not wait for the trainer.
_PLACES = {
    "BatchConfig": "config",
    "CheckpointConfig": "config",
    "DatasetConfig": "config",
    "FreshModel": "config",
    "InputConfig": "config",
    "MeshConfig": "config",
    "ModelDirectory": "config",
    "OptimizerConfig": "state",
    "ResponseTemplate": "templates",
    "SftConfig": "config",
    "SftResult": "supervised",
    "sft": "supervised",
}

__all__ = [
    "BatchConfig",
    "CheckpointConfig",
    "DatasetConfig",
    "FreshModel",
    "InputConfig",
    "MeshConfig",
    "ModelDirectory",
    "OptimizerConfig",
    "ResponseTemplate",
    "SftConfig",
    "SftResult",
    "sft",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
