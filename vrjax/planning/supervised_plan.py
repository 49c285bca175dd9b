"""The programs of a supervised run, one update a bucket (and one loss, where there is validation), none run."""

from __future__ import annotations

import jax
from jax.sharding import Mesh

from vrjax.loading import LoadedModel
from vrjax.planning.recorder import PlanLedger
from vrjax.planning.workload import Workload
from vrjax.training.config import SftConfig
from vrjax.training.placement import check_batch, place_state
from vrjax.training.preparation import forward_options
from vrjax.training.row_shapes import abstract_rows
from vrjax.training.state import TrainState, make_optimizer
from vrjax.training.supervised_step import jit_train_step, make_loss_sums, make_train_step


def plan_supervised(
    config: SftConfig, model: LoadedModel, mesh: Mesh, work: Workload, ledger: PlanLedger
) -> TrainState:
    """Compile all programs. Raises InputError where mesh, batch and model do not fit together, before any of them."""
    check_batch(config.batch.videos, config.batch.micro_batches, mesh)
    optimizer = make_optimizer(config.optimizer, work.steps)
    state, shardings = place_state(model.params, optimizer, config.freeze_vision, mesh, model.config, ledger.run)
    options = forward_options(config.compute, config.remat, model, mesh, config.attention)
    rate, parts = config.optimizer.rate(work.steps), config.batch.micro_batches
    step = make_train_step(model.graph, optimizer, rate, options, config.freeze_vision, parts)
    train_step = jit_train_step(step, shardings)
    loss_sums = jax.jit(make_loss_sums(model.graph, options, config.freeze_vision))
    ledger.alive = {"training state": state}
    for bucket in work.buckets:
        rows = abstract_rows(config, model, mesh, bucket)
        ledger.run("train", bucket, train_step, state, rows)
        if config.validation:
            ledger.run("validate", bucket, loss_sums, state.params, state.frozen, rows)
    return state
