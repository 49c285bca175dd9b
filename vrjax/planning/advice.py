"""What to change where a run does not fit: settings that the program depends on, with values that divide."""

from __future__ import annotations

import math

from jax.sharding import Mesh

from vrjax.chips import GIB, Chip
from vrjax.planning.program_plan import ProgramPlan
from vrjax.training.config import SftConfig
from vrjax.training.placement import row_shards
from vrjax.training.policy.config import GrpoConfig

_SAMPLING = ("rollout",)


def advise(config: SftConfig | GrpoConfig, mesh: Mesh, program: ProgramPlan, chip: Chip) -> list[str]:
    """Changes in the order in which to try them: those that cost nothing first, a larger slice last."""
    found = []
    if chip.memory is not None and program.peak is not None:
        over = (program.peak - chip.memory) / GIB
        found.append(
            f"{program.name} needs {program.peak / GIB:.1f} GiB a device, {over:.1f} more than a {chip.name} has."
        )
    elif program.refused:
        found.append(f"{program.name} does not fit a {chip.name}: {program.refused}")
    held = max(program.resident, key=lambda name: program.resident[name], default=None)
    if program.phase in ("update", "reference", "log_probs", "validation"):
        found += _for_update(config, mesh)
    elif program.phase == "rollout" and isinstance(config, GrpoConfig):
        found += _for_rollout(config, mesh, program)
    if held is not None and isinstance(config, GrpoConfig):
        if config.loss.kl_weight and config.lora is None:
            found.append("--loss.kl-weight 0: no copy of the reference policy is held.")
        if config.lora is None and program.resident[held] > 0.3 * (program.peak or math.inf):
            found.append("lora: adapters need no moments for the whole model, and no reference policy beside it.")
    found.append("a larger slice: weights and moments are spread over data × fsdp × tensor.")
    return found


def _for_update(config: SftConfig | GrpoConfig, mesh: Mesh) -> list[str]:
    found = []
    if config.remat is not True:
        found.append("--remat True: layers are computed again in the backward pass, none of their activations is kept.")
    shards = row_shards(mesh)
    if isinstance(config, GrpoConfig):
        rows, parts, name = config.rollout.prompts * config.split_groups, config.micro_batches, "--micro-batches"
    else:
        rows, parts, name = config.batch.videos, config.batch.micro_batches, "--batch.micro-batches"
    more = [k for k in range(parts + 1, rows // shards + 1) if rows % (k * shards) == 0]
    if more:
        found.append(f"{name} {more[0]}: {rows // (more[0] * shards)} row(s) a device at a time, the same result.")
    elif isinstance(config, GrpoConfig):
        groups = [k for k in range(config.split_groups + 1, config.rollout.group + 1) if config.rollout.group % k == 0]
        if groups:
            split = groups[0]
            factor = rows // config.split_groups * split // shards
            found.append(
                f"--split-groups {split} --micro-batches {factor}: a group in {split} rows, each with the prompt again."
            )
    found.append("a larger mesh.tensor: parts of each product and of the vocabulary's logits on more devices.")
    return found


def _for_rollout(config: GrpoConfig, mesh: Mesh, program: ProgramPlan) -> list[str]:
    found = []
    rows = config.rollout.batch_rows
    if program.name in ("prefill", "start", "decode") and rows > config.rollout.group:
        fewer = max(rows // 2, config.rollout.group)
        found.append(f"--rollout.batch-rows {fewer}: fewer responses at a time, so smaller caches.")
    found.append(
        f"a larger mesh.tensor (now {mesh.shape['tensor']}) within a process: sampling weights are cut over it alone."
    )
    return found
