"""Muon against Optax's own, and what it does to a matrix's singular values."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from flax import nnx

from vrjax.models.parameters import Weight
from vrjax.training.muon import ADAM_SIZE, orthogonalise, scale_by_muon
from vrjax.training.state import OptimizerConfig, make_optimizer


def params_and_gradients(seed: int) -> nnx.State:
    keys = jax.random.split(jax.random.key(seed), 4)
    stack = Weight(jax.random.normal(keys[0], (3, 8, 6)), axes=("layers", "heads", "embed"), hf_name="{layer}.w",
                   hf_shape=(8, 6))  # fmt: skip
    plain = Weight(jax.random.normal(keys[1], (5, 7)), axes=("mlp", "embed"), hf_name="m", hf_shape=(5, 7))
    table = Weight(jax.random.normal(keys[2], (9, 6)), axes=("vocab", "embed"), hf_name="e", hf_shape=(9, 6))
    bias = Weight(jax.random.normal(keys[3], (6,)), axes=(None,), hf_name="b", hf_shape=(6,))
    return nnx.State({"bias": bias, "plain": plain, "stack": stack, "table": table})


def test_matrices_step_as_optax_s_muon_and_the_rest_as_adam() -> None:
    params = params_and_gradients(0)
    ours = scale_by_muon(0.9, 0.99, 1e-8)
    state = ours.init(params)
    matrices = {"plain": optax.contrib.MuonDimensionNumbers(1, 0), "stack": optax.contrib.MuonDimensionNumbers(2, 1)}
    theirs = {
        name: optax.contrib.scale_by_muon(beta=0.95, nesterov=True, weight_dimension_numbers=numbers)
        for name, numbers in matrices.items()
    }
    adam = optax.scale_by_adam(0.9, 0.99, 1e-8)
    values = {name: params[name].get_value() for name in params}
    their_states = {name: each.init(values[name]) for name, each in theirs.items()}
    adam_states = {name: adam.init(values[name]) for name in ("table", "bias")}
    for step in range(3):
        gradients = params_and_gradients(10 + step)
        updates, state = ours.update(gradients, state, params)
        for name, each in theirs.items():
            want, their_states[name] = each.update(gradients[name].get_value(), their_states[name])
            size = ADAM_SIZE * max(want.shape[-2:]) ** 0.5
            # Optax corrects the bias of the momentum (the paper does not): it shifts Nesterov's mix in the first steps.
            got = updates[name].get_value() / size
            assert float(jnp.abs(got - want).max()) < (0.35 if step == 0 else 0.2), name
            cosine = (got * want).sum() / jnp.sqrt((got**2).sum() * (want**2).sum())
            assert cosine > 0.98, name
        for name in adam_states:
            want, adam_states[name] = adam.update(gradients[name].get_value(), adam_states[name])
            np.testing.assert_allclose(updates[name].get_value(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(12, 5), (5, 12), (4, 8, 8)])
def test_orthogonalised_singular_values_lie_near_one(shape: tuple[int, ...]) -> None:
    matrices = jax.random.normal(jax.random.key(1), shape)
    values = np.linalg.svd(np.asarray(orthogonalise(matrices)), compute_uv=False)
    assert values.min() > 0.3
    assert values.max() < 1.3
    left, _, right = np.linalg.svd(np.asarray(matrices), full_matrices=False)
    aligned = np.einsum("...ij,...ij->...", left @ right, np.asarray(orthogonalise(matrices)))
    assert np.all(aligned > 0.7 * min(shape[-2:]))  # the directions are the matrix's own


def test_a_step_is_of_adamw_s_size() -> None:
    params, gradients = params_and_gradients(0), params_and_gradients(1)
    optimizer = make_optimizer(OptimizerConfig(method="muon", learning_rate=1.0, schedule="constant",
                                               weight_decay=0.0, clip_norm=1e9), 10)  # fmt: skip
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    for name in ("plain", "stack"):
        size = float(jnp.sqrt(jnp.square(updates[name].get_value()).mean()))
        assert 0.1 < size < 0.3, (name, size)
