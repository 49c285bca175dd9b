"""Run as a program: load a checkpoint over 4 fake devices and report memory in MB, as JSON.

    load_over_four_devices.py DIRECTORY                  one process with 4 devices (by XLA_FLAGS)
    load_over_four_devices.py DIRECTORY PROCESS PORT     one of 4 processes with a device each

On a fake device the arrays live in the host's memory too. Reported are therefore `staging`, the largest resident memory
beyond what there was before and what has been placed in arrays so far, and `resident`, the largest with the arrays.
Resident memory counts the mapped pages of the files. It is sampled every 2 ms and after each placed piece.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np

from vrjax.checkpoints import load_parameters
from vrjax.checkpoints.tensor_files import stored_tensors
from vrjax.loading import abstract_model
from vrjax.models.registry import read_config
from vrjax.sharding import make_mesh, parameter_shardings, update_rules

MB = 1e6
directory = Path(sys.argv[1])
if len(sys.argv) > 2:
    jax.distributed.initialize(f"localhost:{sys.argv[3]}", num_processes=4, process_id=int(sys.argv[2]))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


config = read_config(directory / "config.json")
_, shapes = abstract_model(config)
shardings = parameter_shardings(shapes, make_mesh(fsdp=4), update_rules(), config)
jax.block_until_ready(jax.device_put(np.zeros(8), jax.local_devices()[0]))

before, placed, peak_staging, peak_resident, running = resident(), 0, 0, 0, True


def sample() -> None:
    global peak_staging, peak_resident
    done, now = placed, resident() - before  # `placed` first: at worst it is too small, and staging too large
    peak_staging, peak_resident = max(peak_staging, now - done), max(peak_resident, now)


def progress(done: int, total: int) -> None:
    global placed
    sample()
    placed = done


def watch() -> None:
    while running:
        sample()
        time.sleep(0.002)


watcher = threading.Thread(target=watch)
watcher.start()
start = time.monotonic()
params = load_parameters(directory, shapes, shardings=shardings, progress=progress)
seconds = time.monotonic() - start
sample()
running = False
watcher.join()

tensors = stored_tensors(directory)
up = params["text"]["layers"]["up"].get_value()
for shard in up.addressable_shards:
    expected = tensors["model.layers.1.mlp.up_proj.weight"].read((slice(None),))[shard.index[1:]]
    np.testing.assert_array_equal(np.asarray(shard.data)[1], expected)
leaves = jax.tree.leaves(params)
share = max(
    sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards if shard.device == device)
    for device in jax.local_devices()
)
largest = max(int(np.prod(tensor.shape)) * 4 for tensor in tensors.values())
report = {
    "checkpoint": sum(leaf.nbytes for leaf in leaves) / MB,
    "share": share / MB,
    "largest_tensor": largest / MB,
    "limit": (1.3 * share + largest) / MB,
    "staging": peak_staging / MB,
    "resident": peak_resident / MB,
}
print(json.dumps({name: round(value, 1) for name, value in report.items()} | {"seconds": round(seconds, 2)}))
