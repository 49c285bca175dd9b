"""All that an SFT run needs before its first step, in this order: mesh, model, data, optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh

from vrjax.errors import InputError
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.loading import LoadedModel
from vrjax.models.decoder import Remat
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.run_directory import RunDirectory, resolved
from vrjax.sharding import (
    RowAttention,
    Sharder,
    check_form,
    is_cpu,
    make_mesh,
    make_row_attention,
    row_holders,
    row_share,
    update_rules,
)
from vrjax.training.buckets import RowSize, fit_buckets
from vrjax.training.config import FREE_FIELDS, DatasetConfig, SftConfig
from vrjax.training.conversations import ConversationText, open_conversations
from vrjax.training.data import BatchIterator, TrainingRows
from vrjax.training.forward import ForwardOptions
from vrjax.training.logging import RunLog
from vrjax.training.placement import check_batch, place_state
from vrjax.training.schedule import Schedule
from vrjax.training.sources import Say, keep_model_files, open_corpus, open_model
from vrjax.training.state import TrainState, make_optimizer
from vrjax.training.survey import NOTHING, RowText
from vrjax.video import ReaderPool

MOST_UNROLLED_LAYERS = 12


@dataclass(frozen=True)
class Prepared:
    """A run, ready to restore and start. model: without parameters, they are in `state`. steps: of the whole run."""

    mesh: Mesh
    model: LoadedModel
    corpus: TrainingRows
    held_out: TrainingRows | None
    buckets: tuple[RowSize, ...]
    schedule: Schedule
    steps: int
    optimizer: optax.GradientTransformation
    rate: optax.Schedule
    state: TrainState
    shardings: Any
    options: ForwardOptions

    def batches(
        self, corpus: TrainingRows, schedule: Schedule, count: int, threads: int, state: dict | None
    ) -> BatchIterator:
        """This process's share of `count` batches: the rows that lie on its devices."""
        part, parts = row_share(self.mesh)
        return BatchIterator(
            corpus,
            schedule,
            count,
            process=part,
            processes=parts,
            threads=threads,
            state=state,
            holders=row_holders(self.mesh),
        )


def prepare(config: SftConfig, run: RunDirectory, log: RunLog, pool: ReaderPool) -> Prepared:
    """Check the settings first, then load. Raises InputError or RunError, naming what to change."""
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.seq, config.mesh.tensor)
    check_batch(config.batch.videos, config.batch.micro_batches, mesh)
    run.check_config(resolved(config), FREE_FIELDS)
    run.record_environment()

    model = open_model(config.model, mesh)
    recipe = PromptRecipe(config.frames, instruction=config.template.instruction_text)
    keep_model_files(model, recipe, run)

    training, held_out = survey_rows(config, model.chat, model.config, run, pool, log.say)
    sizes = [size for part in (training, held_out) if part is not None for size in part.sizes if size != NOTHING]
    buckets = fit_buckets(sizes, config.batch.max_programs, config.batch.max_padding)
    weights = [dataset.weight for dataset in config.data]
    schedule = Schedule(training.sizes, training.counts, weights, buckets, config.batch.videos, config.seed)
    steps = config.steps if config.steps is not None else count_steps(schedule, config.epochs)

    optimizer = make_optimizer(config.optimizer, steps)
    state, shardings = place_state(model.params, optimizer, config.freeze_vision, mesh, model.config)
    options = forward_options(config.compute, config.remat, model, mesh, config.attention)
    check_attention(options, model.config.text.head_size, log.say)
    return Prepared(
        mesh=mesh,
        model=replace(model, params=nnx.State({})),
        corpus=training,
        held_out=held_out,
        buckets=buckets,
        schedule=schedule,
        steps=steps,
        optimizer=optimizer,
        rate=config.optimizer.rate(steps),
        state=state,
        shardings=shardings,
        options=options,
    )


def survey_rows(
    config: SftConfig, chat: ChatTokenizer, model: Qwen2_5VLConfig, run: RunDirectory, pool: ReaderPool, say: Say
) -> tuple[TrainingRows, TrainingRows | None]:
    """The rows to train on, and those held out. No weights are needed.

    Raises InputError where some datasets hold questions and others conversations.
    """
    context = model.text.max_positions
    length = min(config.batch.max_length or context, context)
    forms = {dataset.form for dataset in (*config.data, *config.validation)}
    if len(forms) > 1:
        raise InputError("data: questions and conversations cannot be mixed in one run. Train on one after the other.")

    def rows(datasets: Sequence[DatasetConfig], name: str) -> TrainingRows:
        if forms == {"conversations"}:
            return open_conversations(datasets, ConversationText(chat, model, length), config.input, run, name, say)
        text = RowText(chat, model, config.template, length)
        return open_corpus(datasets, text, config.frames, config.input, config.batch.questions, run, name, pool, say)

    return rows(config.data, "survey"), rows(config.validation, "survey_validation") if config.validation else None


def forward_options(
    compute: str, remat: Remat, model: LoadedModel, mesh: Mesh, attention: Literal["auto", "plain"] = "auto"
) -> ForwardOptions:
    """How a configuration's forward pass runs on the mesh's devices. compute: auto is bfloat16 on accelerators, float32
    on CPUs.
    """
    on_cpu = is_cpu(mesh)
    narrow = not on_cpu if compute == "auto" else compute == "bfloat16"
    dtype = jnp.bfloat16 if narrow else jnp.float32
    rows = make_row_attention(mesh, update_rules(), model.config.text, dtype, attention)
    return ForwardOptions(
        dtype=dtype,
        remat=remat,
        unroll=on_cpu and mesh.shape["seq"] == 1 and model.config.text.layers <= MOST_UNROLLED_LAYERS,
        shard=Sharder(mesh, update_rules()),
        attention=rows,
        pick=rows.pick,
    )


def check_attention(options: ForwardOptions, head_size: int, say: Say) -> None:
    """Hold a fused form of attention against the plain one on the run's devices. Raises RunError where they differ."""
    if isinstance(options.attention, RowAttention) and options.attention.form != "plain":
        found = check_form(options.attention, head_size, options.dtype)
        say(
            f"attention: the {options.attention.form} form differs from the plain one by {found:.1e}, which is rounding"
        )


def count_steps(schedule: Schedule, epochs: float) -> int:
    """Batches in a number of epochs, which need not be whole."""
    whole = int(epochs)
    part = epochs - whole
    return schedule.batches_in(whole) + (round(part * len(schedule.block(whole))) if part else 0)
