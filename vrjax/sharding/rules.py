"""Rules: which mesh axes each logical axis of an array is cut over.

Parameters follow the rules exactly or are refused, all at once and by name. Activations follow them as far as their
sizes divide (a batch of one stays whole), because their sizes change from call to call and never their meaning.

The vision tower is a case of its own. Its activations are cut by frames over all devices, so its weights cannot be cut
by heads or MLP width over the same devices: they are only *stored* in parts, along their width, over the mesh axes
named by `vision`, and gathered layer by layer when the tower runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrjax.errors import InputError
from vrjax.models.parameters import ParameterSpec, parameter_table

MeshAxes = str | tuple[str, ...] | None
ALL = ("data", "fsdp", "seq", "tensor")


@dataclass(frozen=True)
class Rules:
    """Mesh axes of each logical axis: one name, several (the first is the outermost), or None for not cut.

    `vision` is no logical axis: it stands in for `embed` on the weights of the vision tower (see the module's text).
    """

    batch: MeshAxes = None
    length: MeshAxes = None
    embed: MeshAxes = None
    heads: MeshAxes = None
    kv_heads: MeshAxes = None
    mlp: MeshAxes = None
    vocab: MeshAxes = None
    patch: MeshAxes = None
    frames: MeshAxes = None
    layers: MeshAxes = None
    vision: MeshAxes = None

    def mesh_axes(self, axis: str | None) -> tuple[str, ...]:
        """Mesh axes of a logical axis. Raises InputError for a name that has no rule."""
        if axis is None:
            return ()
        if axis not in {field.name for field in fields(self)}:
            raise InputError(
                f"there is no sharding rule for the logical axis {axis!r}. Add it to vrjax.sharding.Rules."
            )
        value = getattr(self, axis)
        return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def update_rules() -> Rules:
    """For training: weights and optimiser state cut over fsdp and tensor, rows over data and fsdp."""
    return Rules(
        batch=("data", "fsdp"),
        length="seq",
        embed="fsdp",
        heads="tensor",
        kv_heads="tensor",
        mlp="tensor",
        vocab="tensor",
        frames=ALL,
        vision=("fsdp", "tensor"),
    )


def rollout_rules() -> Rules:
    """For sampling: no weight is gathered inside the decode loop, so weights are cut over tensor only."""
    return Rules(
        batch=("data", "fsdp"),
        length="seq",
        heads="tensor",
        kv_heads="tensor",
        mlp="tensor",
        vocab="tensor",
        frames=ALL,
        vision="tensor",
    )


@dataclass(frozen=True)
class Problem:
    """A dimension that cannot be cut as the rules say."""

    axis: str
    size: str
    reason: str


def _assign(
    rules: Rules, axes: tuple[str | None, ...], shape: tuple[int, ...], mesh: Mesh, head_size: int
) -> tuple[list[tuple[str, ...]], list[Problem]]:
    """Mesh axes of every dimension, and what is wrong with them."""
    if len(axes) != len(shape):
        raise ValueError(f"{len(axes)} axes {axes} for {len(shape)} dimensions {shape}")
    assigned: list[tuple[str, ...]] = []
    problems = []
    taken: dict[str, str] = {}
    for axis, size in zip(axes, shape, strict=True):
        names = rules.mesh_axes(axis)
        missing = [name for name in names if name not in mesh.shape]
        if axis is None or not names or missing:
            assigned.append(())
            if missing:
                problems.append(Problem(str(axis), str(size), f"the mesh has no axis {', '.join(missing)}"))
            continue
        units, unit = (size // head_size, "heads") if axis in ("heads", "kv_heads") else (size, "")
        parts = math.prod(mesh.shape[name] for name in names)
        label = " × ".join(f"{name} {mesh.shape[name]}" for name in names)
        if axis == "kv_heads" and units % parts:
            assigned.append(())  # too few to cut: every part keeps them all
            continue
        for name in names:
            if name in taken and mesh.shape[name] > 1:
                problems.append(Problem(axis, str(size), f"{name} already cuts {taken[name]}"))
            taken[name] = axis
        if units % parts or (unit and size % head_size):
            problems.append(Problem(axis, f"{units} {unit}".strip(), f"not divisible by {parts} ({label})"))
        assigned.append(names)
    return assigned, problems


def _partition(assigned: list[tuple[str, ...]]) -> PartitionSpec:
    return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in assigned))


def spec(
    rules: Rules, axes: tuple[str | None, ...], shape: tuple[int, ...], mesh: Mesh, *, head_size: int = 1
) -> PartitionSpec:
    """The partition of one array by its logical axes.

    head_size: rows a head takes along `heads` and `kv_heads` dimensions; a head is never split, and kv heads that the
    devices do not divide are kept whole on each. Raises InputError where two dimensions want one mesh axis, or a size
    does not divide.
    """
    assigned, problems = _assign(rules, axes, shape, mesh, head_size)
    if problems:
        raise InputError(_report([("array", problem) for problem in problems], mesh))
    return _partition(assigned)


def _report(problems: list[tuple[str, Problem]], mesh: Mesh) -> str:
    rows = [("parameter", "axis", "size", "why")]
    rows += [(name, problem.axis, problem.size, problem.reason) for name, problem in problems]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = "\n".join(
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    sizes = ", ".join(f"{name} {size}" for name, size in mesh.shape.items())
    return f"the mesh ({sizes}) does not fit the model. Change the mesh's sizes or the rules:\n{table}"


def map_parameters(function: Callable[[ParameterSpec, Any], Any], params: nnx.State) -> nnx.State:
    """Put function(spec, leaf) in place of every array; the tree stays the same."""
    table = {entry.path: entry for entry in parameter_table(params)}

    def at(path: tuple[Any, ...], leaf: Any) -> Any:
        key = tuple(str(part.key) for part in path if isinstance(part, jax.tree_util.DictKey))
        return function(table[key], leaf)

    return jax.tree_util.tree_map_with_path(at, params)


def parameter_shardings(params: nnx.State, mesh: Mesh, rules: Rules, config: Any) -> nnx.State:
    """The sharding of every parameter, as a tree like `params` (abstract or real) with NamedSharding leaves.

    config: the model's configuration (its `text.head_size`, or `head_size` of a text model).
    Raises InputError with one table that names all parameters which do not fit.
    """
    head_size = getattr(config, "text", config).head_size
    problems: list[tuple[str, Problem]] = []

    def place(entry: ParameterSpec, leaf: Any) -> NamedSharding:
        del leaf
        if entry.path[0] == "vision":
            axes = tuple("vision" if axis == "embed" else None for axis in entry.axes)
        else:
            axes = entry.axes
        assigned, found = _assign(rules, axes, entry.shape, mesh, head_size)
        problems.extend((entry.hf_name, problem) for problem in found)
        return NamedSharding(mesh, _partition(assigned))

    shardings = map_parameters(place, params)
    if problems:
        raise InputError(_report(problems, mesh))
    return shardings


def leading_axes(names: tuple[str, ...], size: int, mesh: Mesh, taken: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Of the mesh axes that a rule names, the leading ones that are free and divide a dimension of `size`."""
    used: tuple[str, ...] = ()
    for name in names:
        if name in taken or size % math.prod(mesh.shape[part] for part in (*used, name)):
            break
        used = (*used, name)
    return used


@dataclass(frozen=True)
class Sharder:
    """The `shard` argument of the models: constrains an activation inside jit to the rules.

    Of the mesh axes that a rule names, the leading ones that divide the dimension are used (batch 2 on data 2 × fsdp 2:
    data only; batch 1: none); a mesh axis that an earlier dimension took is left out.
    """

    mesh: Mesh
    rules: Rules

    def __call__(self, x: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
        taken: set[str] = set()
        assigned = []
        for axis, size in zip(axes, x.shape, strict=True):
            used = leading_axes(self.rules.mesh_axes(axis), size, self.mesh, frozenset(taken))
            taken.update(used)
            assigned.append(used)
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, _partition(assigned)))
