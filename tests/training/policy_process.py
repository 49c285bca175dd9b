"""A policy run in a process of its own: `python -m tests.training.policy_process SETTINGS.json`.

The settings: world, run, compiled (cache of compiled programs), changes (of the configuration), and for several
processes coordinator, processes, process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path


def main(file: str) -> None:
    import jax

    settings = json.loads(Path(file).read_text())
    if settings.get("compiled"):
        jax.config.update("jax_compilation_cache_dir", settings["compiled"])
    if "coordinator" in settings:
        jax.distributed.initialize(settings["coordinator"], settings["processes"], settings["process"])

    from tests.training.policy_run import policy_config
    from vrjax.training import CheckpointConfig, MeshConfig, OptimizerConfig, grpo

    changes = settings["changes"]
    config = policy_config(Path(settings["world"]), Path(settings["run"]))
    if "mesh" in changes:
        changes["mesh"] = MeshConfig(**changes["mesh"])
    if "learning_rate" in changes:
        changes["optimizer"] = OptimizerConfig(
            learning_rate=changes.pop("learning_rate"), schedule="constant", weight_decay=0.0, b2=0.99
        )
    if "save_every" in changes:
        changes["checkpoints"] = CheckpointConfig(save_every=changes.pop("save_every"))
    if "replay" in changes:
        changes["replay"] = Path(changes["replay"])
    grpo(replace(config, **changes))


if __name__ == "__main__":
    main(sys.argv[1])
