"""Run as a program with XLA_FLAGS=--xla_force_host_platform_device_count=8: attention on meshes with rows, heads and
tokens cut, against one device, for each form that runs without an accelerator, as JSON."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from vrjax.models.attention import Reach, Visibility, row_attention
from vrjax.sharding import RowAttention, make_mesh, update_rules

LENGTH, SIZE, REACH = 512, 16, Reach(251, 120, 4)
rng = np.random.default_rng(0)


def labels(*lengths: int) -> np.ndarray:
    branch = np.repeat(np.arange(len(lengths)), lengths)
    rows = np.stack([np.ones_like(branch), branch])
    return np.pad(rows, ((0, 0), (0, LENGTH - rows.shape[1])))


segment, branch = np.stack([labels(200, 100, 57, 120, 3), labels(251, 120, 120)]).swapaxes(0, 1)
visibility = Visibility(jnp.asarray(segment), jnp.asarray(branch))
used = (segment > 0)[..., None, None]
report = {}
for name, heads, kv_heads, sizes in (
    ("data 2, seq 2, tensor 2: a key head each two devices", 8, 2, (2, 1, 2, 2)),
    ("fsdp 2, seq 4: as many key heads as parts", 8, 4, (1, 2, 4, 1)),
    ("data 2, seq 2, tensor 2: more key heads than parts", 16, 8, (2, 1, 2, 2)),
):
    mesh = make_mesh(*sizes)
    q, k, v, pull = (
        jnp.asarray(rng.normal(size=(2, LENGTH, count, SIZE)), jnp.float32)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    pull = pull * used

    def pulled(attend, q=q, k=k, v=v, pull=pull):
        out, back = jax.vjp(jax.jit(attend), q, k, v)
        return [np.asarray(out) * used, *back(pull)]

    want = pulled(lambda q, k, v: row_attention(q, k, v, visibility))
    for form in ("plain", "tpu"):
        attention = RowAttention(mesh, update_rules(), heads, kv_heads, form, interpret=True)
        found = pulled(lambda q, k, v, attention=attention: attention(visibility, REACH)(q, k, v))
        report[f"{form}: {name}"] = [
            float(np.abs(mine - theirs).max() / np.abs(theirs).max()) for mine, theirs in zip(found, want, strict=True)
        ]
    hidden, at = rng.normal(size=(2, LENGTH, 5)).astype(np.float32), rng.integers(0, LENGTH, (2, 9))
    picked = jax.jit(attention.pick)(hidden, at)
    report[f"picked: {name}"] = [float(np.abs(picked - np.take_along_axis(hidden, at[..., None], 1)).max())]
print(json.dumps(report), file=sys.stdout)
