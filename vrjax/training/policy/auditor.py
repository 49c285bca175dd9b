"""Where the audit is made in a run, and what happens when it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Array, Float

from vrjax.errors import RunError
from vrjax.generation.decode import VocabularyMasks
from vrjax.rewards import Reward
from vrjax.run_directory import RunDirectory
from vrjax.training.buckets import RowSize
from vrjax.training.policy.audit import Audit, AuditBounds, compare
from vrjax.training.policy.batch import PolicyBatch, pack_batch
from vrjax.training.policy.compiled import PolicyPrograms, local_rows
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.groups import Group
from vrjax.training.policy.preparation import PreparedPolicy
from vrjax.training.policy.sampler import Sampler
from vrjax.training.state import TrainState


class Auditor:
    """Compares what the sampler recorded with what the trainer computes; `found` holds the figures of the step."""

    def __init__(
        self,
        config: GrpoConfig,
        prepared: PreparedPolicy,
        programs: PolicyPrograms,
        sampler: Sampler,
        run: RunDirectory,
        found: Mapping[str, float],
    ) -> None:
        """found: figures of a step that a resumed run stands in."""
        self._config, self._prepared, self._programs = config, prepared, programs
        self._sampler, self._run = sampler, run
        self._bounds = AuditBounds.of(config.audit, prepared.policy.options.dtype)
        self.found = dict(found)

    def audit_drawn(self, step: int, groups: Sequence[Group], bucket: RowSize, state: TrainState) -> None:
        """Audit groups by the policy that has just drawn them, in a pass of its own (lookahead: the next update has
        another policy).
        """
        unscored = [replace(group, rewards=(Reward(0.0),) * len(group.samples)) for group in groups]
        advantages = np.zeros((len(groups), self._config.rollout.group))
        packed = pack_batch(self._config, self._prepared, unscored, advantages, bucket, self._sampler, state)
        self.look(step, packed, self._programs.log_probs(state, packed))

    def audit_processed(self, step: int, packed: PolicyBatch, state: TrainState) -> None:
        """Every `audit.processed_every` steps: the truncated log-probs too."""
        every = self._config.audit.processed_every
        if self._config.lookahead or not every or step % every:
            return
        masks: VocabularyMasks = jax.tree.map(np.asarray, self._sampler.masks(state))
        recomputed = self._programs.processed(state, packed, masks)
        audit = compare(packed.processed, local_rows(recomputed), packed.present)
        self._note("audit/processed", step, packed, audit)

    def look(self, step: int, packed: PolicyBatch, seen: Float[Array, "B R"]) -> None:
        """Audit a step by the log-probs of the trainer's pass. Raises RunError past the bounds; the batch is kept."""
        self._note("audit", step, packed, compare(packed.recorded, local_rows(seen), packed.present))

    def _note(self, name: str, step: int, packed: PolicyBatch, audit: Audit) -> None:
        self.found |= {f"{name}/most": audit.most, f"{name}/mean": audit.mean}
        fault = audit.fault(self._bounds)
        if fault is not None:
            kept = self._keep(step, packed, "audit")
            raise RunError(f"step {step + 1}: {fault} The batch is kept in {kept}; nothing of this step was saved.")

    def check_finite(self, step: int, packed: PolicyBatch, sums: Mapping[str, Array]) -> None:
        """Raise RunError where the loss or the gradient is not finite."""
        loss, norm = float(sums["loss"]), float(sums["grad_norm"])
        if math.isfinite(loss) and math.isfinite(norm):
            return
        kept = self._keep(step, packed, "nonfinite")
        raise RunError(
            f"step {step + 1}: the loss is {loss} and the gradient's norm {norm}. The batch is kept in {kept}. Look at "
            "it, or lower the learning rate; started again, the run goes on from its last checkpoint."
        )

    def _keep(self, step: int, packed: PolicyBatch, why: str) -> str:
        """Write the rows as the programs read them, for a look and for replay; the journal has the groups."""
        file = self._run.path / f"{why}_step_{step + 1}.npz"
        arrays = {name: local_rows(array) for name, array in vars(packed.rows.text).items()}
        if self._run.writes:
            np.savez_compressed(
                file, allow_pickle=False, recorded=packed.recorded, processed=packed.processed, **arrays
            )
        return str(file)
