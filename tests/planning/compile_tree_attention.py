"""Run as a program, `SLICE S H K E P C`: compile attention within rows, forward and gradients, for one chip of a TPU
slice that is not here; the kernels in the compiled program and the memory that it needs, as JSON."""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vrjax.models.attention import Reach, Visibility
from vrjax.planning.topology import open_topology, prepare
from vrjax.sharding import make_row_attention, update_rules

slice_, (length, heads, key_heads, size, trunk, branch) = sys.argv[1], map(int, sys.argv[2:])
prepare(slice_)
mesh = Mesh(np.asarray(open_topology(slice_).devices[:1]).reshape(1, 1, 1, 1), ("data", "fsdp", "seq", "tensor"))


class Sizes:
    heads, kv_heads = heads, key_heads


attention = make_row_attention(mesh, update_rules(), Sizes(), jnp.bfloat16)  # type: ignore[arg-type]
assert attention.form == "tpu"


def gradients(q, k, v, pull, segment, branch_of):
    reach = Reach(trunk, branch) if trunk else None
    _, back = jax.vjp(attention(Visibility(segment, branch_of), reach), q, k, v)
    return back(pull)


whole = NamedSharding(mesh, PartitionSpec())
shapes = [(1, length, count, size) for count in (heads, key_heads, key_heads, heads)]
arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=whole) for shape in shapes]
ids = [jax.ShapeDtypeStruct((1, length), jnp.int32, sharding=whole)] * 2
compiled = jax.jit(gradients).lower(*arrays, *ids).compile()
kernels = re.findall(r"%(tree_attention[a-z_]*)[.\d]* = .*custom-call", compiled.as_text())
print(json.dumps({"kernels": kernels, "peak_bytes": compiled.memory_analysis().peak_memory_in_bytes}))
