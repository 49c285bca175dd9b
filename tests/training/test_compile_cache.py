"""A second process finds its programs in the cache: a third of the cold seconds, by the run's own ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
from dataclasses import replace
from pathlib import Path
from tests.training.shapes_run import tiny_config, tiny_model
from vrjax.training.config import BatchConfig, FreshModel
from vrjax.training.state import OptimizerConfig
world = Path({world!r})
model = FreshModel(tiny_model(world / "tokenizer", width=64, layers=8), world / "tokenizer")
config = tiny_config(world, Path("nowhere"), model=model, steps=1, batch=BatchConfig(4, 2, max_programs=1),
                     optimizer=OptimizerConfig(warmup=0))
"""


@pytest.mark.alone
@pytest.mark.slow
def test_a_warm_cache_compiles_in_a_third_of_the_time(world: Path, tmp_path: Path) -> None:
    (tmp_path / "experiment.py").write_text(EXPERIMENT.format(world=str(world)))
    own = ("JAX_COMPILATION", "JAX_PERSISTENT")  # of the tests; a run has its own
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    seconds = {}
    for name in ("cold", "warm"):
        words = ["--compilation-cache", str(tmp_path / "cache"), str(tmp_path / "experiment.py"), "--run-dir",
                 str(tmp_path / name)]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "vrjax.cli", "train", *words], cwd=ROOT, capture_output=True, text=True,
            env={**environment, "PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        rows = [json.loads(line) for line in (tmp_path / name / "ledger.jsonl").read_text().splitlines()]
        seconds[name] = sum(row["seconds"] for row in rows)
    print(seconds)
    assert seconds["warm"] <= seconds["cold"] / 3
