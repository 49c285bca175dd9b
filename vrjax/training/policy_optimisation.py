"""Group-relative policy optimisation: questions about videos in, a policy that is rewarded for its evidence out.

Read `_train` from top to bottom: it is the algorithm (Shao et al. 2024; EG-VQA, section on EG-Reasoner).

    for each step:
        rollout      G responses to each prompt, by the present policy        policy.rollouts, policy.sampler
        scoring      a reward for each response, judges beside the rollout    vrjax.rewards
        advantages   rewards relative to the group's                          advantages
        packing      one row a prompt: the prompt once, its G responses       policy.batch
        reference    log-probs of the reference policy                        policy.compiled
        update       clipped policy loss + β KL, one or more times            policy_loss, policy.programs
        audit        do sampler and update agree on the log-probs?            policy.audit

Vision features are computed once per video and read by all of these; the prompt is paid for once in the rollout and
once in each pass over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from vrjax.checkpoints import TrainingCheckpoints
from vrjax.ledger import Ledger
from vrjax.rewards import RewardRunner
from vrjax.run_directory import DAMAGE, RunDirectory
from vrjax.training.advantages import group_advantages
from vrjax.training.logging import RunLog, enter_program
from vrjax.training.placement import place_rows
from vrjax.training.policy.alarms import Alarms
from vrjax.training.policy.auditor import Auditor
from vrjax.training.policy.batch import pack_batch
from vrjax.training.policy.compiled import PolicyPrograms, local_rows
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.policy.figures import PHASE_OF, StepTimes, phase_work
from vrjax.training.policy.groups import reward_matrix
from vrjax.training.policy.journal import FOLDER, SAMPLES, Journal
from vrjax.training.policy.known_programs import known_programs
from vrjax.training.policy.policy_state import PolicyCheckpoint
from vrjax.training.policy.preparation import PreparedPolicy, prepare_policy
from vrjax.training.policy.rollouts import Rollouts, Stopped
from vrjax.training.policy.sampler import Sampler
from vrjax.training.policy.step_log import StepLog
from vrjax.training.policy.warm_up import rehearse_policy
from vrjax.training.processes import own_rows
from vrjax.training.profile import StepProfile
from vrjax.training.termination import TerminationRequest
from vrjax.training.warm_up import warming_up
from vrjax.video import ReaderPool


@dataclass(frozen=True)
class GrpoResult:
    """How a run ended: after its last step, or on SIGTERM after a checkpoint. metrics: of the last step."""

    step: int
    ended: Literal["finished", "terminated"]
    metrics: dict[str, float]
    run_dir: Path


def grpo(config: GrpoConfig) -> GrpoResult:
    """Train as `config` says; goes on from the run directory's last checkpoint where there is one.

    Raises InputError for settings and files that cannot be used, RunError where the run cannot go on: a loss that is
    not finite, log-probs of sampler and update that differ, too many unscored responses or damaged records, a full
    disk.
    """
    run = RunDirectory(config.run_dir, writes=jax.process_index() == 0)
    log = RunLog(run, tensorboard=config.tensorboard, progress=config.progress, wandb=config.wandb)
    pool = ReaderPool(config.input.threads, config.input.time_limit_s)
    try:
        run.clear_end()
        with TerminationRequest() as termination:
            prepared = prepare_policy(config, run, log, pool)
            scoring = config.scoring
            with RewardRunner(
                prepared.reward,
                concurrency=scoring.concurrency,
                timeout_s=scoring.timeout_s,
                attempts=scoring.attempts,
                backoff_s=scoring.backoff_s,
                max_unscored_share=scoring.max_unscored_share,
            ) as runner:
                result = _train(config, run, log, pool, termination, prepared, runner)
        if result.ended == "finished":
            run.mark_end(result.step)
        return result
    finally:
        log.close()
        pool.close()


def _train(
    config: GrpoConfig,
    run: RunDirectory,
    log: RunLog,
    pool: ReaderPool,
    termination: TerminationRequest,
    prepared: PreparedPolicy,
    runner: RewardRunner,
) -> GrpoResult:
    # ---- Programs
    ledger = Ledger(config.recompilation, partial(enter_program, run, log))
    programs = PolicyPrograms(config, prepared, ledger)
    sampler = Sampler(prepared.model, prepared.abstract, prepared.policy, prepared.mesh, config.rollout, ledger)
    planned = known_programs(config, prepared, sampler)
    profile = StepProfile(config.profile, ledger, run, PHASE_OF, prepared.policy.options.dtype, log.say)
    if config.warm_up:
        with warming_up(ledger, log.say) as rehearsal:
            rehearse_policy(config, prepared, rehearsal)

    # ---- Restore
    checkpoint = _open_checkpoints(config, run)
    state, reference, progress, notes = checkpoint.restore(
        prepared.state, programs.reference_of(prepared.state), config.inner_epochs
    )
    if progress.old is not None:  # only one process saves between two updates of a step, but several may go on
        progress = replace(progress, old=own_rows(progress.old, config.split_groups))
    for note in notes:
        log.say(note)
    if progress.updates:
        log.say(f"{run.path}: goes on after step {progress.step} of {prepared.steps}")
    log.start(prepared.steps, progress.step)
    for name in (DAMAGE, SAMPLES):
        run.keep_until(name, progress.step)
    auditor = Auditor(config, prepared, programs, sampler, run, progress.audit)
    steps = StepLog(config, prepared, run, log, pool, Alarms(config.alarms, progress.alarms), set(progress.damaged))
    process = jax.process_index(), jax.process_count()
    journal = Journal(run.path / FOLDER, *process)
    iterator = prepared.prompts(config, progress.iterator)
    rollouts = Rollouts(
        sampler,
        iterator,
        runner,
        journal,
        prepared.item_of,
        resample_rounds=config.rollout.resample_rounds,
        seed=config.seed,
        asked_to_stop=lambda: jax.process_count() == 1 and termination.reached(progress.updates),
        ahead=config.lookahead > 0,
        replay=None if config.replay is None else Journal(Path(config.replay), *process),
    )
    ended: Literal["finished", "terminated"] = "finished"

    # ---- Loop
    try:
        while progress.step < prepared.steps and ended == "finished":
            profile.begin()
            step, times = progress.step, StepTimes()
            # Rollout; with lookahead the next step is drawn while judges work on this one
            try:
                for number in range(step, min(step + 1 + config.lookahead, prepared.steps)):
                    drawn = rollouts.draw(number, state)
                    if config.lookahead and drawn is not None:
                        auditor.audit_drawn(number, *drawn, state)
                times.mark("rollout")
                # Scoring
                batch = rollouts.take(step, state)
                times.mark("reward")
            except Stopped:
                ended = "terminated"
                break

            # Advantages
            rewards = reward_matrix(batch.groups, config.rollout.group)
            advantages = group_advantages(rewards, scale_by_std=config.scale_advantages)

            # Packing
            packed = pack_batch(config, prepared, batch.groups, advantages, batch.bucket, sampler, state)
            auditor.audit_processed(step, packed, state)
            sampler.unload()
            times.mark("packing")

            # Reference policy, and the policy before the first update
            targets = packed.targets
            if reference is not None:
                targets = replace(targets, reference=programs.reference(reference, state, packed))
                times.mark("reference", targets.reference)
            if config.inner_epochs > 1:
                if progress.old is None:
                    progress = replace(progress, old=local_rows(programs.log_probs(state, packed)).tolist())
                targets = replace(targets, old=place_rows(np.asarray(progress.old, np.float32), prepared.mesh))
            if config.lookahead:
                targets = replace(targets, sampler=place_rows(packed.recorded, prepared.mesh))

            # Update
            first = progress.inner == 0
            sums = {}
            while True:
                state, sums, seen = programs.update(state, packed, targets)
                # Audit: the forward pass of the first update is that of the policy which sampled
                if first and not config.lookahead:
                    auditor.look(step, packed, seen)
                first = False
                progress = replace(progress.after_update(), audit=auditor.found)
                if progress.inner == 0:
                    break
                if jax.process_count() == 1 and termination.reached(progress.updates):
                    ended = "terminated"
                    break
            times.mark("update", sums)
            auditor.check_finite(step, packed, sums)
            if ended == "terminated":  # between two updates on the same responses; the journal has them
                break

            # Log
            metrics = steps.enter(progress.step, batch, packed, rewards, advantages, sums, auditor.found, times, runner)
            profile.enter(*phase_work(metrics), {} if batch.work is None else batch.work.turns)
            profile.end()
            progress = replace(progress, iterator=batch.iterator_state, alarms=steps.alarms.state,
                               damaged=tuple(sorted(steps.damaged)))  # fmt: skip
            # Warm-up is over: from here on only programs for rows of other lengths may come
            ledger.freeze(planned)
            # Refresh the reference, evaluate, save
            if config.refresh_reference and progress.step % config.refresh_reference == 0:
                reference = programs.reference_of(state)
            last = progress.step == prepared.steps
            measured = steps.evaluate(progress.step, state, last)
            terminated = termination.reached(progress.updates) and not last
            if last or terminated or measured or _is_due(progress.step, config.checkpoints.save_every):
                checkpoint.save(state, reference, progress, measured)
                if not config.keep_rollouts:
                    journal.prune(checkpoint.oldest_step(config.inner_epochs))
            if terminated:
                log.say(f"{run.path}: asked to end; saved after step {progress.step}, start again to go on")
                return GrpoResult(progress.step, "terminated", metrics | measured, run.path)
        if ended == "terminated":
            checkpoint.save(state, reference, progress, {})
            log.say(f"{run.path}: asked to end in step {progress.step + 1}; saved, start again to go on")
    finally:
        profile.close()
        iterator.close()
        checkpoint.close()
    return GrpoResult(progress.step, ended, steps.metrics, run.path)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _open_checkpoints(config: GrpoConfig, run: RunDirectory) -> PolicyCheckpoint:
    saved = config.checkpoints
    checkpoints = TrainingCheckpoints(
        run.checkpoints,
        keep_last=saved.keep_last,
        keep_best=saved.keep_best,
        metric=saved.metric if config.evaluate is not None else None,
        mode=saved.mode,
    )
    return PolicyCheckpoint(checkpoints, adapters=config.lora is not None, keeps_reference=config.refresh_reference > 0)
