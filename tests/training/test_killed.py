"""SFT killed by SIGKILL at random moments and started again, in processes of its own, ends at the same bits."""

import random
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from vrjax.loading import load_run

ROOT = Path(__file__).parents[2]
KILLS = 5
SAVE_EVERY = 4
STEPS = 60

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[4])
from tests.training.shapes_run import tiny_config
from vrjax.training.config import CheckpointConfig
from vrjax.training import sft
world, run, steps, every = Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[5]), int(sys.argv[6])
sft(tiny_config(world, run, steps=steps, checkpoints=CheckpointConfig(save_every=every)))
"""


def start(world: Path, run: Path, compiled: Path) -> subprocess.Popen:
    words = [str(ROOT), str(world), str(run), str(compiled), str(STEPS), str(SAVE_EVERY)]
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], stderr=subprocess.DEVNULL)


def logged_steps(run: Path) -> int:
    file = run / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def saved_step(run: Path) -> int:
    folder = run / "checkpoints"
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=0)


@pytest.mark.alone
@pytest.mark.slow
def test_sigkill_at_random_moments(world: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    assert start(world, tmp_path / "whole", compiled).wait() == 0

    run, rng = tmp_path / "killed", random.Random(0)
    for kill in range(KILLS):
        process = start(world, run, compiled)
        resumed_at = saved_step(run)
        target = resumed_at + rng.randint(1, 10)
        while process.poll() is None and logged_steps(run) < target:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.3)
        assert process.poll() is None, f"ended before kill {kill}"
        process.kill()
        process.wait()
        # At most the save interval is lost, and one more whose save was in flight.
        assert saved_step(run) >= logged_steps(run) - 2 * SAVE_EVERY
    assert start(world, run, compiled).wait() == 0

    trees = [jax.tree.leaves(load_run(tmp_path / name, step=STEPS)[0].params) for name in ("whole", "killed")]
    assert all(np.array_equal(x, y) for x, y in zip(*trees, strict=True))
    whole, killed = ((tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "killed"))
    assert len(killed) == len(whole) == STEPS
