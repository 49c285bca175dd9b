"""Runs of several processes under `launch.local`, from experiment files that these tests write."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).parents[2]
PROGRAMS = "programs"  # compiled ones, for all runs of a test
SFT = """
from pathlib import Path
from tests.training.shapes_run import tiny_config
from vrjax.training import BatchConfig, CheckpointConfig, InputConfig, MeshConfig, OptimizerConfig
config = tiny_config(Path({world!r}), Path({run!r}), {changes})
"""
GRPO = """
from pathlib import Path
from tests.training.policy_run import policy_config
from vrjax.training import CheckpointConfig, DatasetConfig, MeshConfig, OptimizerConfig
config = policy_config(Path({world!r}), Path({run!r}), {changes})
"""


def launch(
    experiment: str,
    world: Path,
    run: Path,
    changes: str,
    *,
    processes: int,
    devices: int = 1,
    hooks: str = "",
    restarts: int = 3,
) -> subprocess.Popen[str]:
    """Start a run. experiment: SFT or GRPO; changes: of its configuration, as Python; hooks: lines put behind it."""
    file, folder = run.with_suffix(".py"), run.parent
    file.write_text(experiment.format(world=str(world), run=str(run), changes=changes) + hooks)
    train = [sys.executable, "-m", "vrjax.cli", "train", "--compilation-cache", str(folder / PROGRAMS), str(file)]
    launcher = [sys.executable, "-m", "launch.local", "--processes", str(processes)]
    launcher += ["--logs", f"{run}_logs", "--restarts", str(restarts)]
    # Compiles in half the time; bits are compared with those of runs with the same flags.
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    return subprocess.Popen(
        [*launcher, "--", *train],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


def finish(launched: subprocess.Popen[str], seconds: float = 900) -> str:
    """Wait for the launcher to end well; returns what it said. After so long all are killed."""
    try:
        output = launched.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        kill_all(launched)
        raise
    assert launched.returncode == 0, output[-5000:]
    return output


def wait_for(there: Path, lines: int, launched: subprocess.Popen[str], seconds: float = 600) -> None:
    """Wait until a file has so many lines."""
    end = time.monotonic() + seconds
    while not (there.exists() and len(there.read_text().splitlines()) >= lines):
        assert launched.poll() is None, launched.communicate()[0][-5000:]
        if time.monotonic() > end:
            kill_all(launched)
            raise TimeoutError(f"{there} has not {lines} lines after {seconds} s")
        time.sleep(0.05)


def process_of(launched: subprocess.Popen[str], number: int) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(launched.pid).children()
        if child.environ().get("VRJAX_PROCESS") == str(number)
    )


def kill_all(launched: subprocess.Popen[str]) -> None:
    """SIGKILL to the launcher and its processes, as when a machine is lost."""
    everyone = [psutil.Process(launched.pid), *psutil.Process(launched.pid).children(recursive=True)]
    for process in everyone:
        process.kill()
    launched.communicate(timeout=60)


def seconds_to_end(output: str, number: int) -> int:
    """How long the others went on after process `number` was killed, as the launcher says."""
    assert f"process {number} was ended by SIGKILL" in output
    waited = re.search(r"all others ended within (\d+) s", output)
    assert waited is not None, output
    return int(waited[1])


def rows_of(run: Path, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def losses(run: Path) -> np.ndarray:
    """The loss of every step, which are numbered without a gap."""
    rows = [row for row in rows_of(run) if "loss" in row]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return np.array([row["loss"] for row in rows])
