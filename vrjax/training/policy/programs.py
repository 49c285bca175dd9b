"""The programs of policy optimisation: log-probs of recorded responses, and the update.

Both read packed rows (policy.packing); the update is one masked attention over prompt and all responses, with an
ordinary backward pass. Letters: B rows, R predicted tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float

from vrjax.generation.decode import VocabularyMasks
from vrjax.generation.sampling import SamplingNumbers, processed_log_probs
from vrjax.models.attention import Reach
from vrjax.models.language_model import VideoLanguageModel
from vrjax.models.log_probs import token_log_probs
from vrjax.models.lora import LoraConfig, merge_adapters
from vrjax.models.parameters import cast_parameters
from vrjax.training.forward import ForwardOptions, encode_rows, target_hidden
from vrjax.training.policy.packing import GroupRows
from vrjax.training.policy_loss import PolicyLossConfig, PolicyTargets, policy_loss
from vrjax.training.state import TrainState, accumulate, apply_gradients

LogProbs = tuple[Float[Array, "B R"], Float[Array, "B R"]]
Update = Callable[[TrainState, GroupRows, PolicyTargets], tuple[TrainState, dict[str, Array], Float[Array, "B R"]]]


@dataclass(frozen=True)
class Policy:
    """What turns trained and frozen parameters into a policy's log-probs. temperature: of sampling."""

    graph: nnx.GraphDef
    options: ForwardOptions
    temperature: float
    lora: LoraConfig | None = None
    freeze_vision: bool = True

    def parameters(self, trained: nnx.State, frozen: nnx.State) -> nnx.State:
        """The whole model's parameters, adapters merged."""
        if self.lora is not None:
            return merge_adapters(frozen, trained, self.lora)
        return nnx.merge_state(trained, frozen)

    def log_probs(self, params: nnx.State, rows: GroupRows, reach: Reach | None) -> LogProbs:
        """Temperature-scaled, untruncated log-probs of the responses' tokens, and entropies, in float32."""
        model: VideoLanguageModel = nnx.merge(self.graph, cast_parameters(params, self.options.dtype))
        hidden = self._hidden(model, rows, reach)
        targets = jnp.asarray(rows.text.targets)
        return token_log_probs(hidden, model.text.head_weight(), targets, self.temperature, shard=self.options.shard)

    def processed(
        self, params: nnx.State, rows: GroupRows, reach: Reach | None, masks: VocabularyMasks, numbers: SamplingNumbers,
        kind: tuple[bool, bool, bool],
    ) -> Float[Array, "B R"]:  # fmt: skip
        """Log-probs after bans and truncation, as `sampling.draw` recorded them."""
        model: VideoLanguageModel = nnx.merge(self.graph, cast_parameters(params, self.options.dtype))
        hidden = self._hidden(model, rows, reach)
        place = jnp.asarray(rows.place)

        def of_row(row: tuple[Array, Array, Array]) -> Array:  # row by row: all logits of one row exist at a time
            hidden, targets, place = row
            return processed_log_probs(
                model.text.logits(hidden), targets, place, masks.allowed, masks.ends, numbers, kind
            )

        return jax.lax.map(of_row, (hidden, jnp.asarray(rows.text.targets), place))

    def _hidden(self, model: VideoLanguageModel, rows: GroupRows, reach: Reach | None) -> Array:
        if rows.vision is not None:
            features = encode_rows(model, rows.vision, self.options)
            if self.freeze_vision:
                features = jax.lax.stop_gradient(features)
        else:
            features = None if rows.features is None else rows.features.reshape(-1, rows.features.shape[-1])
        return target_hidden(model, rows.text, features, self.options, reach)


def make_log_probs(policy: Policy, reach: Reach | None) -> Callable[[nnx.State, nnx.State, GroupRows], LogProbs]:
    """(trained, frozen, rows) -> log-probs and entropies; no gradient."""

    def log_probs(trained: nnx.State, frozen: nnx.State, rows: GroupRows) -> LogProbs:
        return policy.log_probs(policy.parameters(trained, frozen), rows, reach)

    return log_probs


def make_update(
    policy: Policy,
    reach: Reach | None,
    optimizer: optax.GradientTransformation,
    rate: optax.Schedule,
    config: PolicyLossConfig,
    group: int,
    micro_batches: int = 1,
) -> Update:
    """One update. Also returns the figures of the step and the log-probs that its forward pass saw.

    The loss is a weighted sum over the tokens of the whole batch, so micro-batches and devices only add up.
    """

    def update(
        state: TrainState, rows: GroupRows, targets: PolicyTargets
    ) -> tuple[TrainState, dict[str, Array], Float[Array, "B R"]]:
        def gradients_of(part: tuple[GroupRows, PolicyTargets]) -> tuple[dict[str, Array], nnx.State, Array]:
            part_rows, part_targets = part

            def loss_of(trained: nnx.State) -> tuple[Array, tuple[dict[str, Array], Array]]:
                params = policy.parameters(trained, state.frozen)
                log_probs, entropy = policy.log_probs(params, part_rows, reach)
                loss, sums = policy_loss(log_probs, part_targets, group, config)
                weights = jnp.asarray(part_targets.weights)
                sums |= {"loss": loss, "entropy": (weights * jax.lax.stop_gradient(entropy)).sum()}
                return loss, (sums, log_probs)

            gradients, (sums, log_probs) = jax.grad(loss_of, has_aux=True)(state.params)
            return sums, gradients, log_probs

        sums, gradients, log_probs = accumulate(gradients_of, (rows, targets), micro_batches)
        learning_rate = jnp.asarray(rate(state.step), jnp.float32)
        state, norm = apply_gradients(state, gradients, optimizer)
        return state, {**sums, "grad_norm": norm, "learning_rate": learning_rate}, log_probs

    return update
