"""A run of two processes, one of which is killed: the other ends, the launcher starts both again, nothing is lost."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from flax import nnx

from tests.training.shapes_run import make_world
from vrjax.loading import load_run

ROOT = Path(__file__).parents[2]
STEPS = 60
EXPERIMENT = """
from pathlib import Path
from tests.training.shapes_run import tiny_config
from vrjax.training import CheckpointConfig, MeshConfig
config = tiny_config(Path({world!r}), Path({run!r}), steps={steps}, mesh=MeshConfig(fsdp=2),
                     checkpoints=CheckpointConfig(save_every=5))
"""


def launch(world: Path, folder: Path, name: str) -> tuple[subprocess.Popen[str], Path]:
    run, file = folder / name, folder / f"{name}.py"
    file.write_text(EXPERIMENT.format(world=str(world), run=str(run), steps=STEPS))
    train = [sys.executable, "-m", "vrjax.cli", "train", "--compilation-cache", str(folder / "programs"), str(file)]
    launcher = [sys.executable, "-m", "launch.local", "--processes", "2", "--logs", str(folder / f"{name}_logs")]
    launched = subprocess.Popen(
        [*launcher, "--", *train],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1", "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    return launched, run


def process_of(launched: subprocess.Popen[str], number: int) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(launched.pid).children()
        if child.environ().get("VRJAX_PROCESS") == str(number)
    )


def parameters(run: Path) -> dict[str, np.ndarray]:
    params = load_run(run)[0].params
    return {"/".join(map(str, path)): np.asarray(w.get_value()) for path, w in nnx.to_flat_state(params)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 0])
def test_a_killed_process_ends_the_others_and_all_go_on(tmp_path: Path, number: int) -> None:
    world = make_world(tmp_path / "world", train=8, val=1)
    whole, whole_run = launch(world, tmp_path, "whole")
    output = whole.communicate(timeout=200)[0]
    assert whole.returncode == 0, output[-3000:]

    launched, run = launch(world, tmp_path, "killed")
    metrics, end = run / "metrics.jsonl", time.monotonic() + 120
    while time.monotonic() < end and not (metrics.exists() and len(metrics.read_text().splitlines()) >= 8):
        assert launched.poll() is None, launched.communicate()[0][-3000:]
        time.sleep(0.01)
    process_of(launched, number).send_signal(signal.SIGKILL)
    output = launched.communicate(timeout=200)[0]
    assert launched.returncode == 0, output[-3000:]
    assert f"process {number} was ended by SIGKILL" in output
    waited = re.search(r"all others ended within (\d+) s", output)
    assert waited is not None, output
    assert int(waited[1]) < 60
    print(output)
    mine, theirs = parameters(run), parameters(whole_run)
    assert mine.keys() == theirs.keys()
    assert max(float(np.abs(mine[name] - theirs[name]).max()) for name in mine) == 0.0
