"""What environment.json says of a start, and what it must not say."""

import subprocess
from pathlib import Path

import pytest

from vrjax.run_directory import RunDirectory
from vrjax.run_environment import commit_of, kept_variables


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_variables_of_launchers_are_kept_and_secrets_are_not() -> None:
    kept = {"SLURM_JOB_ID": "7", "TPU_WORKER_ID": "0", "CUDA_VISIBLE_DEVICES": "0,1", "VRJAX_PROCESS": "1"}
    left = {
        "SLURM_JWT": "s", "SLURM_AUTH_TOKEN": "s", "TPU_API_KEY": "s", "JAX_SECRET": "s", "XLA_Password": "s",
        "GEMINI_API_KEY": "s", "HOME": "/home/a", "AWS_ACCESS_KEY_ID": "s",
    }  # fmt: skip
    assert kept_variables(kept | left) == kept


def test_a_file_s_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "tracked.py").write_text("1")
    (tmp_path / "installed.py").write_text("1")
    git(tmp_path, "add", "tracked.py")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(tmp_path / "tracked.py") == head
    assert commit_of(tmp_path / "installed.py") is None
    (tmp_path / "tracked.py").write_text("2")
    assert commit_of(tmp_path / "tracked.py") == f"{head} + changes"


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(Path(__file__)) is None


def test_each_start_is_one_entry_and_process_0_alone_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    monkeypatch.setenv("SLURM_JWT", "never-shown")
    for writes in (True, False, True):
        RunDirectory(tmp_path, writes=writes).record_environment()
    starts = RunDirectory(tmp_path).read_json("environment.json")
    assert [start["variables"]["SLURM_JOB_ID"] for start in starts] == ["41", "41"]
    assert "never-shown" not in (tmp_path / "environment.json").read_text()
