"""Training: supervised fine-tuning and policy optimisation, on pieces that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.training.advantages import group_advantages
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
    from vrjax.training.policy.config import (
        AlarmConfig,
        AuditConfig,
        GrpoConfig,
        RolloutConfig,
        ScoringConfig,
    )
    from vrjax.training.policy_loss import PolicyLossConfig
    from vrjax.training.policy_optimisation import GrpoResult, grpo
    from vrjax.training.state import OptimizerConfig
    from vrjax.training.supervised import SftResult, sft
    from vrjax.training.templates import ResponseTemplate

# Imported when first used: an experiment file that only names a configuration need not wait for the trainer.
_PLACES = {
    "AlarmConfig": "policy.config",
    "AuditConfig": "policy.config",
    "BatchConfig": "config",
    "CheckpointConfig": "config",
    "DatasetConfig": "config",
    "FreshModel": "config",
    "GrpoConfig": "policy.config",
    "GrpoResult": "policy_optimisation",
    "InputConfig": "config",
    "MeshConfig": "config",
    "ModelDirectory": "config",
    "OptimizerConfig": "state",
    "PolicyLossConfig": "policy_loss",
    "ResponseTemplate": "templates",
    "RolloutConfig": "policy.config",
    "ScoringConfig": "policy.config",
    "SftConfig": "config",
    "SftResult": "supervised",
    "group_advantages": "advantages",
    "grpo": "policy_optimisation",
    "sft": "supervised",
}

__all__ = [
    "AlarmConfig",
    "AuditConfig",
    "BatchConfig",
    "CheckpointConfig",
    "DatasetConfig",
    "FreshModel",
    "GrpoConfig",
    "GrpoResult",
    "InputConfig",
    "MeshConfig",
    "ModelDirectory",
    "OptimizerConfig",
    "PolicyLossConfig",
    "ResponseTemplate",
    "RolloutConfig",
    "ScoringConfig",
    "SftConfig",
    "SftResult",
    "group_advantages",
    "grpo",
    "sft",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
