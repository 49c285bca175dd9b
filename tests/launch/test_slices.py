"""launch/tpu_slice.sh and launch/gke.sh with stand-ins for gcloud and kubectl: a TPU host is a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.test_scripts import GKE, ROOT, TPU

# `ssh` carries a host's command out in the folder home; a slice is ACTIVE as soon as it was asked for.
GCLOUD = """#!/bin/bash
echo "$*" >>"$CLOUD/calls"
for word in "$@"; do [[ $word == --command=* ]] && command=${word#--command=}; done
case "$*" in
  "auth list"*) echo someone@example.org ;;
  *"queued-resources create"*) echo ACTIVE >"$CLOUD/state" ;;
  *"queued-resources describe"*) cat "$CLOUD/state" 2>/dev/null ;;
  *"queued-resources delete"*) rm "$CLOUD/state" ;;
  *"tpu-vm scp --recurse"*) mkdir -p "$CLOUD/home/vrjax_code" ;;
  *"tpu-vm scp"*) cp "$CLOUD/home/${5#*:}" "$6" ;;
  *"tpu-vm ssh"*) cd "$CLOUD/home" && bash -c "$command" ;;
esac
"""
CURL = '#!/bin/sh\ncase "$*" in *agent-worker-number) echo 1 ;; *) echo a:b:10.0.0.1,a:b:10.0.0.2 ;; esac\n'
# Pods are there at the second call and have started at the third; the JobSet has ended after the fourth.
KUBECTL = """#!/bin/bash
echo "$*" >>"$CLOUD/calls"
case "$*" in
  "auth can-i"*) exit "${REFUSED:-0}" ;;
  apply*) cat >"$CLOUD/manifest" ;;
  "get jobset"*) (($(grep -c ^logs "$CLOUD/calls") < 4)) || echo "${FINAL:-Completed}" ;;
  logs*)
    case $(grep -c ^logs "$CLOUD/calls") in
      1) echo "No resources found" >&2 ;;
      2) echo "container is waiting to start" >&2 && exit 1 ;;
      3) echo "step 1" && exit 1 ;;
      4) echo "step 2" ;;
    esac ;;
esac
"""


def cloud(folder: Path, **programs: str) -> Path:
    (folder / "bin").mkdir()
    (folder / "home").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder


def launch(folder: Path, name: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "CLOUD": str(folder), "LOGS": str(folder / "logs")}
    return subprocess.run(
        ["bash", str(ROOT / "launch" / name), *command], capture_output=True, text=True, timeout=60, cwd=ROOT,
        env={**given, "WAIT_S": "0", **environment},
    )  # fmt: skip


def calls(folder: Path, word: str) -> int:
    return (folder / "calls").read_text().count(word)


def test_a_slice_s_run_goes_on_and_its_last_checkpoint_is_evaluated(tmp_path: Path) -> None:
    """The first attempt fails. The evaluation, beside it in the same folder, is still at work when the second ends."""
    cloud(tmp_path, gcloud=GCLOUD, curl=CURL, pip="#!/bin/sh\n")
    program = (
        "import os, pathlib, sys\n"
        "names = 'TPU_WORKER_ID', 'TPU_WORKER_HOSTNAMES', 'VRJAX_COMMIT'\n"
        "print(*(os.environ[name] for name in names))\n"
        "mark = pathlib.Path('failed')\n"
        "if not mark.exists(): mark.touch(); sys.exit(1)\n"
        "pathlib.Path('finished').touch()\n"
    )
    (tmp_path / "watch.sh").write_text(
        "until [ -e finished ]; do sleep 0.1; done\nsleep 1\necho the last is evaluated\n"
    )
    found = launch(
        tmp_path, "tpu_slice.sh", sys.executable, "-S", "-c", program, EVALUATE=f"bash {tmp_path}/watch.sh", **TPU
    )
    assert found.returncode == 0, found.stderr
    assert "attempt 0 ended with 1" in found.stderr
    worker, hosts, *commit = (tmp_path / "logs" / "mine_1.log").read_text().split()
    assert (worker, hosts) == ("1", "10.0.0.1,10.0.0.2")
    assert len(commit) == (ROOT / ".git").exists()
    assert (tmp_path / "logs" / "mine_evaluate.log").read_text() == "the last is evaluated\n"
    assert not (tmp_path / "state").exists()
    assert calls(tmp_path, "create") == calls(tmp_path, "delete") == 1


def test_a_slice_is_kept_where_the_command_was_used_wrongly(tmp_path: Path) -> None:
    cloud(tmp_path, gcloud=GCLOUD, curl=CURL, pip="#!/bin/sh\n")
    found = launch(tmp_path, "tpu_slice.sh", sys.executable, "-S", "-c", "import sys; sys.exit(2)", **TPU)
    assert found.returncode == 2
    assert "used wrongly" in found.stderr
    assert calls(tmp_path, "delete") == 0


@pytest.mark.parametrize(("final", "code"), [("Completed", 0), ("Failed", 1)])
def test_gke_logs_are_followed_over_restarts_and_kept(tmp_path: Path, final: str, code: int) -> None:
    cloud(tmp_path, kubectl=KUBECTL)
    found = launch(tmp_path, "gke.sh", "vrjax", "train", "x.py", FINAL=final, **GKE)
    assert found.returncode == code, found.stderr
    log = (tmp_path / "logs" / "mine.log").read_text().splitlines()
    assert log[-2:] == ["step 1", "step 2"]
    assert f"mine: {final}" in found.stdout
    assert "kind: JobSet" in (tmp_path / "manifest").read_text()


def test_kubectl_without_credentials_is_named_before_anything_is_applied(tmp_path: Path) -> None:
    cloud(tmp_path, kubectl=KUBECTL)
    found = launch(tmp_path, "gke.sh", "vrjax", "train", "x.py", REFUSED="1", **GKE)
    assert found.returncode == 2
    assert "no credentials for a cluster with JobSet" in found.stderr
    assert not (tmp_path / "manifest").exists()
