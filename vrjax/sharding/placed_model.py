"""How a model runs where it lies: the devices that hold its weights say how its work is cut, and which attention."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding

from vrjax.errors import InputError
from vrjax.models.attention import AttentionForRows, plain_attention
from vrjax.models.decoder import DecoderConfig, Shard, unsharded
from vrjax.sharding.local import processes_of
from vrjax.sharding.mesh import MESH_AXES, make_mesh
from vrjax.sharding.row_attention import check_form, make_row_attention
from vrjax.sharding.rules import Sharder, rollout_rules


class Placement(NamedTuple):
    """shard: of activations; attention: of prompts."""

    shard: Shard
    attention: AttentionForRows


def placement_of(params: Any, config: DecoderConfig, attention: Literal["auto", "plain"] = "auto") -> Placement:
    """How a model with these weights generates, by `rollout_rules` on the mesh that they lie on or on their one device.

    attention: auto takes the form of the devices; a fused one is held against the plain one first, once in a process.
    VRJAX_ATTENTION=plain stands for plain everywhere. Weights that lie over several processes are left to the compiler.
    Raises InputError for another value of the variable, RunError where a fused form does not run, or differs.
    """
    wanted = os.environ.get("VRJAX_ATTENTION", "auto")
    if wanted not in ("auto", "plain"):
        raise InputError(f"VRJAX_ATTENTION={wanted}: give auto or plain.")
    leaf = jax.tree.leaves(params)[0]
    mesh = _mesh_of(leaf)
    if mesh is None or processes_of(mesh) > 1:
        return Placement(unsharded, plain_attention)
    rules = rollout_rules()
    rows = make_row_attention(mesh, rules, config, leaf.dtype, "plain" if wanted == "plain" else attention)
    if rows.form != "plain":
        _check_once(rows, config.head_size, leaf.dtype)
    return Placement(unsharded if mesh.size == 1 else Sharder(mesh, rules), rows)


_check_once = lru_cache(check_form)


def _mesh_of(leaf: Any) -> Mesh | None:
    """The mesh of an array's devices, with this package's axes; None where its own mesh has others."""
    sharding = getattr(leaf, "sharding", None)  # NumPy's have none
    if sharding is None:
        return None
    if isinstance(sharding, NamedSharding):
        mesh = sharding.mesh
        return mesh if isinstance(mesh, Mesh) and mesh.axis_names == MESH_AXES else None
    devices = list(sharding.device_set)
    return make_mesh(fsdp=1, devices=devices) if len(devices) == 1 else None
