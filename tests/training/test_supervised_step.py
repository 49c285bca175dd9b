from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from vrjax.errors import InputError
from vrjax.generation.prompts import ChatTokenizer
from vrjax.models.parameters import parameter_table
from vrjax.models.qwen2_5_vl import Qwen2_5VL
from vrjax.sharding import make_mesh
from vrjax.training.forward import ForwardOptions
from vrjax.training.placement import check_batch, place_state
from vrjax.training.rows import stack_rows
from vrjax.training.state import OptimizerConfig, accumulate, decays, make_optimizer
from vrjax.training.supervised_step import make_train_step

from .shapes_run import tiny_model
from .test_rows import clip, make_rows, prompts_and_responses

SLOW = OptimizerConfig(learning_rate=1e-2, schedule="constant", clip_norm=1e9)


@pytest.fixture(scope="module")
def model(world: Path):
    config = tiny_model(world / "tokenizer")
    graph, params = nnx.split(Qwen2_5VL(config, nnx.Rngs(1)))
    return config, graph, params


@pytest.fixture(scope="module")
def rows(world: Path, model):
    """Four rows; the number of response tokens differs from row to row."""
    chat, packed = ChatTokenizer.load(world / "tokenizer"), []
    for number in range(4):
        vision = clip(seed=number)
        prompts, responses = prompts_and_responses(chat, model[0], vision)
        packed.append(make_rows(chat, model[0], vision, prompts, responses))
        packed[-1].text.weights[2 * number + 1 :] = 0
    return stack_rows(packed)


def one_update(model, rows, micro_batches: int, freeze_vision: bool = False):
    config, graph, params = model
    optimizer = make_optimizer(SLOW, 10)
    params = jax.tree.map(jnp.copy, params)
    state, _ = place_state(params, optimizer, freeze_vision, make_mesh(), config)
    step = make_train_step(graph, optimizer, SLOW.rate(10), ForwardOptions(remat=False), freeze_vision, micro_batches)
    return jax.jit(step)(state, rows)


@pytest.mark.parametrize("parts", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_micro_batches_equal_one_batch(model, rows, parts) -> None:
    """Rows with 1, 3, 5 and 7 response tokens: a mean of means would differ (trl#2647, #3021, #6357, #6380)."""
    whole, expected = one_update(model, rows, 1)
    state, metrics = one_update(model, rows, parts)
    for name in ("loss", "grad_norm", "tokens"):
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-6)
    # AdamW's first moment is (1 - b1) times the gradient.
    found, wanted = (optax.tree.get(each.optimizer, "mu") for each in (state, whole))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6 * max(1.0, float(np.abs(y).max())))


def test_accumulation_by_hand() -> None:
    """Sums over parts: (1 + 2 + 3 + 4) and its gradient; parts are rows 0, 2 and 1, 3."""
    seen = accumulate(lambda part: (part.sum(), 10 * part.sum(), part), jnp.arange(1.0, 5.0), 2)
    assert [float(value) for value in seen[:2]] == [10.0, 100.0]
    assert seen[2].tolist() == [1.0, 2.0, 3.0, 4.0]  # in the order of the batch again


def test_frozen_vision_does_not_move(model, rows) -> None:
    state, _ = one_update(model, rows, 1, freeze_vision=True)
    before = dict(nnx.to_flat_state(model[2]))
    for path, weight in nnx.to_flat_state(state.all_params()):
        moved = not np.array_equal(weight.get_value(), before[path].get_value())
        assert moved == (path[0] != "vision"), path
    assert not any(path[0] == "vision" for path, _ in nnx.to_flat_state(state.params))


def test_weights_decay_and_norms_and_biases_do_not(model) -> None:
    table = {spec.path: spec for spec in parameter_table(model[2])}
    flags = {tuple(map(str, path)): flag.get_value() for path, flag in nnx.to_flat_state(decays(model[2]))}
    for path, spec in table.items():
        assert flags[path] == ("norm" not in spec.hf_name and "ln_q" not in spec.hf_name and "bias" not in spec.hf_name)


def test_schedules_by_hand() -> None:
    cosine = OptimizerConfig(learning_rate=2.0, warmup=4, final_share=0.1).rate(12)
    assert [float(np.asarray(cosine(step))) for step in (0, 2, 4, 8, 12)] == pytest.approx([0, 1, 2, 1.1, 0.2])
    constant = OptimizerConfig(learning_rate=2.0, warmup=4, schedule="constant").rate(12)
    assert [float(np.asarray(constant(step))) for step in (0, 2, 4, 11)] == pytest.approx([0, 1, 2, 2])
    with pytest.raises(InputError, match="warm-up"):
        OptimizerConfig(warmup=12).rate(12)


def test_batches_that_do_not_divide() -> None:
    check_batch(8, 4, make_mesh())
    with pytest.raises(InputError, match="does not divide into 3 micro-batches"):
        check_batch(8, 3, make_mesh())


def test_bfloat16_compute_keeps_float32_masters(model, rows) -> None:
    config, graph, params = model
    optimizer = make_optimizer(SLOW, 10)
    state, _ = place_state(jax.tree.map(jnp.copy, params), optimizer, False, make_mesh(), config)
    step = make_train_step(graph, optimizer, SLOW.rate(10), ForwardOptions(jnp.bfloat16), False)
    after, metrics = jax.eval_shape(step, state, rows)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(after.params)} == {"float32"}
    assert metrics["loss"].dtype == jnp.float32
    assert "bf16" in str(jax.make_jaxpr(step)(state, rows))
