"""All that a GRPO run needs before its first step, in this order: mesh, reward, model, prompts, policy, optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import optax
from flax import nnx
from jax.sharding import Mesh

from vrjax.errors import InputError
from vrjax.generation.chat_tokenizer import ChatTokenizer
from vrjax.generation.recipe import PromptRecipe
from vrjax.ledger import call
from vrjax.loading import LoadedModel, abstract_model, write_adapter_note
from vrjax.models.lora import make_adapters
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.rewards import RewardFunction, load_reward
from vrjax.run_directory import RunDirectory, resolved
from vrjax.sharding import make_mesh, parameter_shardings, update_rules
from vrjax.training.buckets import RowSize, fit_buckets
from vrjax.training.config import ModelDirectory
from vrjax.training.data import Corpus
from vrjax.training.logging import RunLog
from vrjax.training.placement import Run, check_batch, place_adapters, place_state
from vrjax.training.policy.config import FREE_GRPO_FIELDS, GrpoConfig
from vrjax.training.policy.programs import Policy
from vrjax.training.policy.prompts import PromptItem, PromptIterator, QuestionText, read_prompt
from vrjax.training.preparation import check_attention, count_steps, forward_options
from vrjax.training.schedule import Schedule
from vrjax.training.sources import Say, keep_model_files, open_corpus, open_model
from vrjax.training.state import TrainState, make_optimizer
from vrjax.training.survey import NOTHING
from vrjax.training.templates import ResponseTemplate
from vrjax.video import FramePlan, ReaderPool


@dataclass(frozen=True)
class PreparedPolicy:
    """A policy run, ready to restore and start. model: without parameters, they are in `state`; abstract: their shapes.

    steps: of the whole run; each is `inner_epochs` updates. item_of, plan_of: the question of a name, its video
    decoded, and its frames.
    """

    mesh: Mesh
    model: LoadedModel
    abstract: nnx.State
    corpus: Corpus
    buckets: tuple[RowSize, ...]
    schedule: Schedule
    steps: int
    reward: RewardFunction
    policy: Policy
    optimizer: optax.GradientTransformation
    rate: optax.Schedule
    state: TrainState
    shardings: Any
    item_of: Callable[[str], PromptItem]
    plan_of: Callable[[str], FramePlan]

    def prompts(self, config: GrpoConfig, state: dict[str, Any] | None) -> PromptIterator:
        """This process's prompts, with as many batches as resampling may ever ask for."""
        return PromptIterator(
            self.corpus,
            self.schedule,
            self.steps * (1 + config.rollout.resample_rounds) + 1,
            process=jax.process_index(),
            processes=jax.process_count(),
            threads=config.input.threads,
            state=state,
        )


def survey_questions(
    config: GrpoConfig, chat: ChatTokenizer, model: Qwen2_5VLConfig, run: RunDirectory, pool: ReaderPool, say: Say
) -> Corpus:
    """The questions of a run, each a row with room for the longest response. No weights are needed."""
    context = model.text.max_positions
    longest = min(config.max_length or context, context)
    template = ResponseTemplate(instruction=config.instruction)
    text = QuestionText(chat, model, template, longest, config.rollout.max_tokens)
    return open_corpus(config.data, text, config.frames, config.input, 1, run, "survey", pool, say)


@dataclass(frozen=True)
class PolicyParts:
    """What the programs of a policy run are made of and work on. abstract: shapes of the whole model's parameters."""

    abstract: nnx.State
    policy: Policy
    optimizer: optax.GradientTransformation
    rate: optax.Schedule
    state: TrainState
    shardings: Any


def assemble_policy(config: GrpoConfig, model: LoadedModel, mesh: Mesh, steps: int, run: Run = call) -> PolicyParts:
    """Policy, optimiser and first state of a run of `steps` steps; the model's parameters are given up.

    run: what calls the programs (name, key, jitted, arguments). Nothing here reads a number of the parameters, so that
    with shapes in their place, and a `run` that answers with shapes, the same programs are made for a machine that is
    not at hand.
    """
    abstract = abstract_model(model.config)[1]
    options = forward_options(config.compute, config.remat, model, mesh, config.attention)
    policy = Policy(model.graph, options, config.rollout.temperature, config.lora, config.freeze_vision)
    optimizer = make_optimizer(config.optimizer, steps * config.inner_epochs)
    if config.lora is None:
        state, shardings = place_state(model.params, optimizer, config.freeze_vision, mesh, model.config, run)
    else:
        if not isinstance(config.model, ModelDirectory):
            raise InputError("lora: adapters need a base model in a directory, since checkpoints do not hold it.")
        lora = config.lora
        adapters = jax.eval_shape(lambda: make_adapters(abstract, lora))
        adapters_at = parameter_shardings(adapters, mesh, update_rules(), model.config)
        fresh = run("adapters", None, jax.jit(lambda: make_adapters(abstract, lora), out_shardings=adapters_at))
        state, shardings = place_adapters(fresh, adapters_at, model.params, optimizer, mesh, model.config, run)
    rate = config.optimizer.rate(steps * config.inner_epochs)
    return PolicyParts(abstract, policy, optimizer, rate, state, shardings)


def prepare_policy(config: GrpoConfig, run: RunDirectory, log: RunLog, pool: ReaderPool) -> PreparedPolicy:
    """Check the settings first, then load. Raises InputError or RunError, naming what to change."""
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.seq, config.mesh.tensor)
    rollout = config.rollout
    check_batch(rollout.prompts * config.split_groups, config.micro_batches, mesh, "rollout.prompts × split_groups")
    reward = load_reward(config.reward) if isinstance(config.reward, str) else config.reward
    run.check_config(resolved(config), FREE_GRPO_FIELDS)
    run.record_environment()

    model = open_model(config.model, mesh)
    instruction = ResponseTemplate(instruction=config.instruction).instruction_text
    keep_model_files(model, PromptRecipe(config.frames, instruction=instruction), run)
    corpus = survey_questions(config, model.chat, model.config, run, pool, log.say)
    sizes = [size for size in corpus.sizes if size != NOTHING]
    buckets = fit_buckets(sizes, config.max_programs)
    weights = [dataset.weight for dataset in config.data]
    schedule = Schedule(corpus.sizes, corpus.counts, weights, buckets, rollout.prompts, config.seed)
    steps = config.steps if config.steps is not None else count_steps(schedule, config.epochs)

    parts = assemble_policy(config, model, mesh, steps)
    check_attention(parts.policy.options, model.config.text.head_size, log.say)
    if config.lora is not None and isinstance(config.model, ModelDirectory) and run.writes:
        write_adapter_note(run.path / "model", config.lora, str(config.model.path))

    rows = {
        f"{corpus.records[row.record].video_id}/{corpus.records[row.record].questions[row.questions[0]].question_id}": n
        for n, row in enumerate(corpus.survey.rows)
        if row.questions
    }

    def item_of(name: str) -> PromptItem:
        if name not in rows:
            raise InputError(f"{name}: is in recorded responses but not in the data. Restore the records of the run.")
        item = read_prompt(corpus, rows[name])
        if item is None or item.prompt is None:
            why = "" if item is None else f" ({item.damage})"
            raise InputError(f"{name}: its video was read when the responses were recorded, but not now{why}.")
        return item

    def plan_of(name: str) -> FramePlan:
        plan = corpus.survey.plans[corpus.survey.rows[rows[name]].record]
        assert plan is not None  # the row has a question
        return plan

    return PreparedPolicy(
        mesh=mesh,
        model=replace(model, params=nnx.State({})),
        abstract=parts.abstract,
        corpus=corpus,
        buckets=buckets,
        schedule=schedule,
        steps=steps,
        reward=reward,
        policy=parts.policy,
        optimizer=parts.optimizer,
        rate=parts.rate,
        state=parts.state,
        shardings=parts.shardings,
        item_of=item_of,
        plan_of=plan_of,
    )
