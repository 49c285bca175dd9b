"""Training state and rows on the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrjax.errors import InputError
from vrjax.ledger import call
from vrjax.sharding import parameter_shardings, update_rules
from vrjax.training.state import TrainState, split_parameters

Run = Callable[..., Any]  # (name, key, jitted, *arguments) -> result
ROWS = PartitionSpec(("data", "fsdp"))


def row_shards(mesh: Mesh) -> int:
    """Over how many parts the rows of a batch are spread."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def check_batch(rows: int, micro_batches: int, mesh: Mesh, field: str = "batch.videos") -> None:
    """Raise InputError where a micro-batch cannot be spread evenly. field: name of the setting behind `rows`."""
    if rows < 1 or micro_batches < 1 or rows % (micro_batches * row_shards(mesh)):
        raise InputError(
            f"a batch of {rows} rows does not divide into {micro_batches} micro-batches over data × fsdp = "
            f"{row_shards(mesh)}. Change {field}, micro_batches or the mesh."
        )


def place_state(
    params: nnx.State,
    optimizer: optax.GradientTransformation,
    freeze_vision: bool,
    mesh: Mesh,
    config: Any,
    run: Run = call,
) -> tuple[TrainState, Any]:
    """The state before the first step, in float32, and its shardings: moments lie where their parameters lie.

    `params` is given up: its memory becomes the state's. run: what calls the program, such as a ledger's.
    """
    places = parameter_shardings(params, mesh, update_rules(), config)
    trained, frozen = split_parameters(params, freeze_vision)
    return _place(trained, frozen, *split_parameters(places, freeze_vision), optimizer, mesh, run)


def place_adapters(
    adapters: nnx.State,
    adapters_at: nnx.State,
    base: nnx.State,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    config: Any,
    run: Run = call,
) -> tuple[TrainState, Any]:
    """The same with adapters trained and the whole base model frozen; both are given up."""
    base_at = parameter_shardings(base, mesh, update_rules(), config)
    return _place(adapters, base, adapters_at, base_at, optimizer, mesh, run)


def _place(
    trained: nnx.State,
    frozen: nnx.State,
    trained_at: nnx.State,
    frozen_at: nnx.State,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    run: Run,
) -> tuple[TrainState, Any]:
    whole = NamedSharding(mesh, PartitionSpec())
    moments_at = optax.tree.map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, trained),
        trained_at,
        transform_non_params=lambda _: whole,
    )
    shardings = TrainState(cast(Any, whole), trained_at, frozen_at, moments_at)

    def start(trained: nnx.State, frozen: nnx.State) -> TrainState:
        trained, frozen = (jax.tree.map(lambda x: x.astype(jnp.float32), tree) for tree in (trained, frozen))
        return TrainState(jnp.zeros((), jnp.int32), trained, frozen, optimizer.init(trained))

    program = jax.jit(start, out_shardings=shardings, donate_argnums=(0, 1))
    return run("place", None, program, trained, frozen), shardings


def place_rows(rows: Any, mesh: Mesh) -> Any:
    """Put this process's rows (arrays with a leading row axis) on the devices; starts the copy, does not wait.

    Processes that have the same part of the rows (`row_share`) must give the same.
    """
    sharding = NamedSharding(mesh, ROWS)
    if jax.process_count() == 1:
        return jax.device_put(rows, sharding)
    return jax.tree.map(lambda array: jax.make_array_from_process_local_data(sharding, array), rows)
