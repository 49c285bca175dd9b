"""Policy runs over several devices and processes against one device, and runs that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.finished_run import largest_difference

ROOT = Path(__file__).parents[3]
STEPS, KILLS = 20, 20


def start(settings: dict, folder: Path, devices: int = 1, number: int = 0) -> subprocess.Popen:
    file = folder / f"settings_{Path(settings['run']).name}_{number}.json"
    file.write_text(json.dumps({key: str(v) if isinstance(v, Path) else v for key, v in settings.items()}))
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.policy_process", str(file)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> str:
    output = process.communicate(timeout=560)[0]
    assert process.returncode == 0, output[-3000:]
    return output


def metrics(run: Path) -> list[dict]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture(scope="module")
def single(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps on one device, its responses kept."""
    folder = tmp_path_factory.mktemp("single")
    changes = {"steps": STEPS, "learning_rate": 1e-4, "keep_rollouts": True}
    finish(start({"world": str(world), "run": folder / "run", "changes": changes}, folder))
    return folder / "run"


@pytest.mark.slow
def test_eight_devices_equal_one_on_recorded_responses(world: Path, tmp_path: Path, single: Path) -> None:
    changes = {"steps": STEPS, "learning_rate": 1e-4, "replay": str(single / "rollouts"),
               "mesh": {"data": 2, "fsdp": 2, "tensor": 2}}  # fmt: skip
    finish(start({"world": str(world), "run": tmp_path / "run", "changes": changes}, tmp_path, devices=8))
    assert largest_difference(tmp_path / "run", single) < 1e-5


@pytest.mark.slow
def test_eight_devices_sample_what_one_samples(world: Path, tmp_path: Path, single: Path) -> None:
    changes = {"steps": 2, "learning_rate": 1e-4, "mesh": {"data": 2, "fsdp": 2, "tensor": 2}}
    finish(start({"world": str(world), "run": tmp_path / "run", "changes": changes}, tmp_path, devices=8))
    for mine, one in zip(metrics(tmp_path / "run"), metrics(single), strict=False):
        assert mine["audit/most"] < 2e-5
        assert mine["reward"] == pytest.approx(one["reward"], abs=1e-6)
        assert mine["entropy"] == pytest.approx(one["entropy"], abs=1e-4)


@pytest.mark.alone
@pytest.mark.slow
def test_two_processes_equal_one(world: Path, tmp_path: Path, single: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    changes = {"steps": STEPS, "learning_rate": 1e-4, "mesh": {"data": 2, "fsdp": 1}}
    both = [
        start({"world": str(world), "run": tmp_path / "run", "changes": changes, "coordinator": address,
               "processes": 2, "process": number}, tmp_path, number=number)
        for number in range(2)
    ]  # fmt: skip
    for process in both:
        finish(process)
    assert [row["step"] for row in metrics(tmp_path / "run")] == list(range(1, STEPS + 1))
    assert largest_difference(tmp_path / "run", single) < 1e-5
    for mine, one in zip(metrics(tmp_path / "run"), metrics(single), strict=True):
        assert mine["reward"] == pytest.approx(one["reward"], abs=1e-6)
        assert mine["audit/most"] < 2e-5


@pytest.mark.alone
@pytest.mark.slow
def test_twenty_kills_end_at_the_same_bits(world: Path, tmp_path: Path) -> None:
    """Half by SIGKILL, half by SIGTERM, at random moments; each loses at most the step in flight."""
    steps = 120  # more than 20 kills get through
    common = {"world": str(world), "compiled": str(tmp_path / "compiled"),
              "changes": {"steps": steps, "learning_rate": 1e-3, "save_every": 4}}  # fmt: skip
    finish(start({**common, "run": tmp_path / "whole"}, tmp_path))
    run, rng, kills = tmp_path / "killed", random.Random(0), 0
    while True:
        process = start({**common, "run": run}, tmp_path)
        done = len(list((run / "rollouts").glob("step_*.npz"))) and max(
            int(path.name[5:11]) + 1 for path in (run / "rollouts").glob("step_*.npz")
        )
        if kills == KILLS:
            finish(process)
            break
        target, started = len(metrics(run)) + rng.randint(0, 2), time.monotonic()
        while process.poll() is None and len(metrics(run)) < target and time.monotonic() - started < 120:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.2)
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[0][-3000:]
            break
        gentle = kills % 2 == 1
        process.send_signal(signal.SIGTERM if gentle else signal.SIGKILL)
        output = process.communicate(timeout=120)[0]
        # Before Python has installed its handlers SIGTERM kills, too.
        assert process.returncode in ((0, -signal.SIGTERM) if gentle else (-signal.SIGKILL, 0)), output[-3000:]
        kills += 1
        recorded = [int(path.name[5:11]) + 1 for path in (run / "rollouts").glob("step_*.npz")]
        assert max(recorded, default=0) >= done - 1  # what was sampled and judged stays
    assert kills == KILLS
    assert largest_difference(run, tmp_path / "whole") == 0.0
    kept = [[{k: v for k, v in row.items() if "second" not in k} for row in metrics(each)]
            for each in (run, tmp_path / "whole")]  # fmt: skip
    assert kept[0] == kept[1]
