"""The sampler: the present policy's weights in sampling layout, and an engine that draws groups with them.

Each process samples its own prompts on its own devices, so no decode step waits for another process. The engine runs
the trainer's own model code in the trainer's own type, and records log-probs that the audit compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from vrjax.generation.decode import VocabularyMasks
from vrjax.generation.engine import Engine
from vrjax.generation.known_programs import Program, engine_programs
from vrjax.generation.prompts import Vision
from vrjax.generation.requests import EngineOptions, Request, Sample
from vrjax.ledger import Ledger
from vrjax.loading import LoadedModel
from vrjax.models.parameters import parameter_table
from vrjax.models.qwen2_5_vl.layout import Grid
from vrjax.sharding import (
    Placement,
    Sharder,
    is_cpu,
    local_mesh,
    make_row_attention,
    parameter_shardings,
    rollout_rules,
    to_local,
)
from vrjax.training.policy.config import RolloutConfig
from vrjax.training.policy.groups import Group
from vrjax.training.policy.programs import Policy
from vrjax.training.policy.prompts import PromptItem
from vrjax.training.state import TrainState


@dataclass(frozen=True)
class PhaseWork:
    """Seconds and tokens of the phases vision, prefill and decode, on this process; turns of the decode loops, by
    program.
    """

    seconds: dict[str, float]
    tokens: dict[str, int]
    turns: dict[Program, int] = field(default_factory=dict)


class Sampler:
    """Draws groups. `load` the policy before `sample`, and `unload` it before the update where memory is short."""

    def __init__(
        self,
        model: LoadedModel,
        abstract: nnx.State,
        policy: Policy,
        mesh: Mesh,
        config: RolloutConfig,
        ledger: Ledger,
        local: Mesh | None = None,
    ) -> None:
        """abstract: shapes of the whole model's parameters; local: where to sample (default: this process's block)."""
        self._policy, self._config = policy, config
        self._local = local or local_mesh(mesh)
        self._sampling = config.sampling()
        shardings = parameter_shardings(abstract, mesh, rollout_rules(), model.config)

        def in_sampling_layout(trained: nnx.State, frozen: nnx.State) -> nnx.State:
            return spread(policy.parameters(trained, frozen), shardings, policy.options.dtype)

        self._spread = jax.jit(in_sampling_layout, out_shardings=shardings)
        self._options = EngineOptions(
            batch_rows=max(config.batch_rows, config.group),
            timed=True,
            unroll=None if is_cpu(self._local) else False,
        )
        self._ledger = ledger
        self._model = model
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise ValueError("the sampler holds no weights; load the policy first")
        return self._engine

    def masks(self, state: TrainState) -> VocabularyMasks:
        """Which ids may be drawn, and which end a response."""
        if self._engine is None:
            self.load(state)
        return self.engine.masks

    def load(self, state: TrainState) -> None:
        """Take the policy as it is now."""
        params = to_local(self._ledger.run("spread", None, self._spread, state.params, state.frozen), self._local)
        if self._engine is None:
            rules = rollout_rules()
            plain = getattr(self._policy.options.attention, "form", "plain") == "plain"  # as the update's
            form = "plain" if plain else "auto"
            config, dtype = self._model.config.text, self._policy.options.dtype
            attention = make_row_attention(self._local, rules, config, dtype, form)
            model, placement = replace(self._model, params=params), Placement(Sharder(self._local, rules), attention)
            self._engine = Engine(model, self._options, self._ledger, placement)
        else:
            self._engine.set_params(params, vision_changed=not self._policy.freeze_vision)

    def known_programs(self, grids: Sequence[tuple[Grid, ...]], lengths: Sequence[int], requests: int) -> set[Program]:
        """What `sample` may compile for at most `requests` prompts at a time, of these plans' grids and lengths in
        tokens.
        """
        return engine_programs(
            self._options,
            self._model.config.vision,
            grids=grids,
            lengths=lengths,
            requests=requests,
            samples=self._config.group,
            sampling=self._sampling,
        )

    def unload(self) -> None:
        """Give the weights' memory back; vision features stay."""
        if self._engine is not None:
            self._engine.set_params(None, vision_changed=False)

    def sample(
        self,
        items: Sequence[PromptItem],
        *,
        step: int,
        seed: int,
        sampled_at: int,
        on_finished: Callable[[int, Group], None] | None = None,
    ) -> list[Group]:
        """One group for each readable prompt, in order. step: enters the random addresses; sampled_at: see Group.

        on_finished: called with a prompt's number and its group as soon as it is there, so that scoring can start.
        """
        requests = []
        for item in items:
            assert item.prompt is not None
            requests.append(Request(prompt=item.prompt, samples=self._config.group))

        def finished(number: int, samples: list[Sample]) -> None:
            if on_finished is not None:
                on_finished(number, Group(items[number], tuple(samples), sampled_at))

        drawn = self.engine.generate(requests, self._sampling, seed=seed, step=step, on_finished=finished)
        return [Group(item, tuple(samples), sampled_at) for item, samples in zip(items, drawn, strict=True)]

    def features(self, vision: Sequence[Vision], state: TrainState) -> list[Float[Array, "M D"]]:
        """Vision features, from the engine's cache where they are there, else by the policy of `state`."""
        if self._engine is None or self.engine.params is None:
            self.load(state)
        return self.engine.encode(vision)

    def take_work(self) -> PhaseWork:
        """What was done since the last call."""
        engine = self.engine
        used: Counter[str] = engine.padding.used
        work = PhaseWork(
            {phase: float(engine.seconds[phase]) for phase in ("vision", "prefill", "decode")},
            {"vision": used["vision"], "prefill": used["prefill"], "decode": engine.drawn},
            dict(engine.turns),
        )
        engine.turns.clear()
        engine.seconds.clear()
        engine.padding.used.clear()
        engine.padding.computed.clear()
        engine.drawn = 0
        return work


def spread(params: nnx.State, shardings: Any, dtype: Any) -> nnx.State:
    """Parameters in another layout, as `dtype`: stacked layers one after the other.

    Gathered all at once, a compiler lays them out anew after all have arrived, and the weights are held twice.
    """

    def moved(leaf: Array, place: NamedSharding) -> Array:
        new = leaf.astype(dtype)
        # A copy even where nothing changes: the update gives the trained parameters' memory away.
        return jax.lax.with_sharding_constraint(new + 0 if new.dtype == leaf.dtype else new, place)

    layers = {entry.path: entry.layers for entry in parameter_table(params)}
    flat, places = nnx.to_flat_state(params), jax.tree.leaves(shardings)
    stacks: dict[int, list[int]] = {}
    found: list[Any] = []
    for number, (path, weight) in enumerate(flat):
        count = layers[tuple(map(str, path))]
        if count is None:
            found.append(moved(weight.get_value(), places[number]))
        else:
            found.append(None)
            stacks.setdefault(count, []).append(number)
    for numbers in stacks.values():
        of_layer = [NamedSharding(places[n].mesh, PartitionSpec(*places[n].spec[1:])) for n in numbers]

        def move(carry: None, parts: list[Array], of_layer: list[NamedSharding] = of_layer) -> tuple[None, list[Array]]:
            return carry, [moved(part, place) for part, place in zip(parts, of_layer, strict=True)]

        _, outs = jax.lax.scan(move, None, [flat[n][1].get_value() for n in numbers])
        for number, out in zip(numbers, outs, strict=True):
            found[number] = jax.lax.with_sharding_constraint(out, places[number])
    return jax.tree.unflatten(jax.tree.structure(params), found)
