"""Supervised fine-tuning: videos and questions in; timed evidence, reasoning and answer out.

Read `sft` from top to bottom: it is the algorithm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from vrjax.checkpoints import TrainingCheckpoints
from vrjax.flops import count_flops
from vrjax.ledger import Ledger, as_shape
from vrjax.models.parameters import cast_parameters
from vrjax.run_directory import DAMAGE, RunDirectory
from vrjax.training.bookkeeping import StepBook
from vrjax.training.buckets import RowSize
from vrjax.training.config import SftConfig
from vrjax.training.data import HostBatch
from vrjax.training.logging import RunLog, enter_program
from vrjax.training.placement import place_rows
from vrjax.training.preparation import Prepared, prepare
from vrjax.training.profile import StepProfile
from vrjax.training.row_shapes import abstract_rows
from vrjax.training.rows import Rows
from vrjax.training.schedule import Schedule
from vrjax.training.state import TrainState
from vrjax.training.supervised_step import jit_train_step, make_loss_sums, make_train_step
from vrjax.training.termination import TerminationRequest
from vrjax.training.warm_up import Rehearsal, warming_up
from vrjax.video import ReaderPool

_AHEAD = 2  # batches that are put on the devices before their turn


@dataclass(frozen=True)
class SftResult:
    """How a run ended: after its last step, or on SIGTERM after a checkpoint. metrics: of the last validation."""

    step: int
    ended: Literal["finished", "terminated"]
    metrics: dict[str, float]
    run_dir: Path


def sft(config: SftConfig) -> SftResult:
    """Train as `config` says; goes on from the run directory's last checkpoint where there is one.

    Raises InputError for settings and files that cannot be used, RunError where the run cannot go on: a loss that is
    not finite, too many damaged records, a full disk.
    """
    run = RunDirectory(config.run_dir, writes=jax.process_index() == 0)
    log = RunLog(run, tensorboard=config.tensorboard, progress=config.progress)
    pool = ReaderPool(config.input.threads, config.input.time_limit_s)
    try:
        run.clear_end()
        with TerminationRequest() as termination:
            result = _train(config, run, log, pool, termination)
        if result.ended == "finished":
            run.mark_end(result.step)
        return result
    finally:
        log.close()
        pool.close()


def _train(
    config: SftConfig, run: RunDirectory, log: RunLog, pool: ReaderPool, termination: TerminationRequest
) -> SftResult:
    # ---- Mesh, model, data, optimiser
    prepared = prepare(config, run, log, pool)
    steps, state = prepared.steps, prepared.state

    # ---- Programs, one a bucket
    graph, options, freeze = prepared.model.graph, prepared.options, config.freeze_vision
    step_function = make_train_step(
        graph, prepared.optimizer, prepared.rate, options, freeze, config.batch.micro_batches
    )
    train_step = jit_train_step(step_function, prepared.shardings)
    ledger = Ledger(config.recompilation, partial(enter_program, run, log))
    warm_up = _WarmUp(ledger, prepared)
    validation = _Validation(config, prepared, run, log, ledger, warm_up)
    profile = StepProfile(config.profile, ledger, run, {"train": "train"}, options.dtype, log.say)
    work = _Work(train_step)

    # ---- Restore
    checkpoints = TrainingCheckpoints(
        run.checkpoints,
        keep_last=config.checkpoints.keep_last,
        keep_best=config.checkpoints.keep_best,
        metric=config.checkpoints.metric if validation.measures else None,
        mode=config.checkpoints.mode,
    )
    book = StepBook(run, log, prepared.corpus.survey, config.input.max_damaged_share, config.log_every)
    step, iterator_state, measured = 0, None, {}
    restored = checkpoints.latest(state.all_params(), state.optimizer)
    if restored is not None:
        state = with_restored(state, restored.params, restored.optimizer_state, restored.step)
        step, iterator_state, measured = restored.step, restored.extra["iterator"], restored.extra["measured"]
        book.damaged = set(restored.extra["damaged"])
        for note in (*restored.notes, f"{run.path}: goes on after step {step} of {steps}"):
            log.say(note)
    log.start(steps, step)
    run.keep_until(DAMAGE, step)

    # ---- Compile all programs now, or each when its first batch comes
    if config.warm_up:
        with warming_up(ledger, log.say) as rehearsal:
            for bucket in prepared.buckets:
                shapes = abstract_rows(config, prepared.model, prepared.mesh, bucket)
                rehearsal.run("train", bucket, train_step, state, shapes)
                validation.rehearse(rehearsal, bucket, state, shapes)
        ledger.freeze()

    # ---- Loop
    batches = prepared.batches(prepared.corpus, prepared.schedule, steps, config.input.threads, iterator_state)
    ended: Literal["finished", "terminated"] = "finished"
    in_flight: tuple[int, HostBatch, dict[str, jax.Array]] | None = None
    book.restart_clock()
    try:
        for batch, rows in profile.steps(placed_ahead(batches, prepared.mesh)):
            # Update
            state, metrics = ledger.run("train", batch.bucket, train_step, state, rows)
            profile.mark("train", metrics, partial(work.of, batch.bucket, state, rows))
            step += 1
            # Log: the step before is read while this one computes
            if in_flight is not None:
                book.enter(*in_flight)
            in_flight = (step, batch, metrics)
            warm_up.saw("train", batch.bucket)

            last = step == steps
            validate = validation.measures and (last or _is_due(step, config.validate_every))
            due = last or validate or _is_due(step, config.checkpoints.save_every)
            # Validate
            if validate:
                measured = validation.measure(state, step)
            # Save
            terminated = termination.reached(step)
            if due or terminated:
                # Nothing is saved before its loss is known to be finite
                book.enter(*in_flight, last=last)
                book.tell_damage()
                in_flight = None
                extra = {"iterator": batch.state, "measured": measured, "damaged": sorted(book.damaged)}
                checkpoints.save(step, state.all_params(), state.optimizer, extra, measured if validate else {})
                book.restart_clock()
            if terminated and not last:
                ended = "terminated"
                log.say(f"{run.path}: asked to end; saved after step {step}, start again to go on")
                break
    finally:
        profile.close()
        batches.close()
        checkpoints.close()
    return SftResult(step, ended, measured, run.path)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def with_restored(state: TrainState, params: nnx.State, optimizer_state: Any, step: int) -> TrainState:
    """`state` with what a checkpoint held; parameters are split into trained and frozen as they are in `state`."""
    trained = {path for path, _ in nnx.to_flat_state(state.params)}
    params, frozen = nnx.split_state(params, lambda path, _: path in trained, ...)
    count = jax.device_put(jnp.asarray(step, jnp.int32), state.step.sharding)
    return TrainState(count, params, frozen, optimizer_state)


def placed_ahead(batches: Iterator[HostBatch], mesh: Mesh) -> Iterator[tuple[HostBatch, Rows]]:
    """Batches with their rows on the devices, copied while earlier ones compute."""
    waiting: deque[tuple[HostBatch, Rows]] = deque()
    for batch in batches:
        waiting.append((batch, place_rows(batch.rows, mesh)))
        if len(waiting) > _AHEAD:
            yield waiting.popleft()
    yield from waiting


class _Work:
    """Operations of an update on this process's devices: the language model's and the vision tower's."""

    def __init__(self, train_step: Any) -> None:
        self._train_step = train_step
        self._known: dict[RowSize, float] = {}

    def of(self, bucket: RowSize, state: TrainState, rows: Rows) -> float:
        if bucket not in self._known:
            shapes = jax.tree.map(as_shape, (state, rows))
            self._known[bucket] = count_flops(self._train_step, *shapes) / jax.process_count()
        return self._known[bucket]


class _WarmUp:
    """After the programs of every bucket have been compiled, a further compilation is unexpected."""

    def __init__(self, ledger: Ledger, prepared: Prepared) -> None:
        programs = ("train",) if prepared.held_out is None else ("train", "validate")
        self._ledger = ledger
        self._missing = {(program, bucket) for program in programs for bucket in prepared.buckets}

    def saw(self, program: str, bucket: Any) -> None:
        self._missing.discard((program, bucket))
        if not self._missing:
            self._ledger.freeze()


class _Validation:
    """Loss on the held-out records, and whatever the configuration's `evaluate` measures."""

    def __init__(
        self, config: SftConfig, prepared: Prepared, run: RunDirectory, log: RunLog, ledger: Ledger, warm_up: _WarmUp
    ) -> None:
        self._config, self._prepared, self._run, self._log = config, prepared, run, log
        self._ledger, self._warm_up = ledger, warm_up
        self._loss_sums = jax.jit(make_loss_sums(prepared.model.graph, prepared.options, config.freeze_vision))
        self.measures = prepared.held_out is not None or config.evaluate is not None

    def rehearse(self, rehearsal: Rehearsal, bucket: RowSize, state: TrainState, shapes: Rows) -> None:
        if self._prepared.held_out is not None:
            rehearsal.run("validate", bucket, self._loss_sums, state.params, state.frozen, shapes)

    def measure(self, state: TrainState, step: int) -> dict[str, float]:
        measured: dict[str, float] = {}
        if self._prepared.held_out is not None:
            measured["validation/loss"] = self._loss(state)
        if self._config.evaluate is not None:
            params = cast_parameters(state.all_params(), self._prepared.options.dtype)
            measured.update(self._config.evaluate(replace(self._prepared.model, params=params), step, self._run.path))
        if measured:
            self._log.metrics(step, measured)
        self._log.say(f"step {step}: " + "  ".join(f"{name} {value:.4f}" for name, value in measured.items()))
        return measured

    def _loss(self, state: TrainState) -> float:
        prepared, corpus = self._prepared, self._prepared.held_out
        assert corpus is not None
        even = [1.0] * len(corpus.counts)
        rows = self._config.batch.videos
        schedule = Schedule(corpus.sizes, corpus.counts, even, prepared.buckets, rows, seed=0, shuffle=False)
        batches = prepared.batches(corpus, schedule, schedule.batches_in(1), self._config.input.threads, None)
        nll = weight = 0.0
        for batch, placed in placed_ahead(batches, prepared.mesh):
            sums = self._ledger.run("validate", batch.bucket, self._loss_sums, state.params, state.frozen, placed)
            self._warm_up.saw("validate", batch.bucket)
            nll, weight = nll + float(sums[0]), weight + float(sums[1])
        batches.close()
        return float(np.divide(nll, weight))
