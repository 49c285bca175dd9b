"""launch/slurm.sh on a SLURM cluster of one node: preempted, requeued, resumed; first with a stand-in trainer."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.launch.slurm_cluster import SlurmCluster, missing, slurm_cluster
from tests.training.finished_run import largest_difference
from tests.training.shapes_run import make_world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())} (apt install slurm-wlm munge)"),
]
ROOT = Path(__file__).parents[2]
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
EXPERIMENT = """
from pathlib import Path
from tests.training.shapes_run import tiny_config
from vrjax.training import CheckpointConfig, MeshConfig
config = tiny_config(Path({world!r}), Path({run!r}), steps=60, mesh=MeshConfig(fsdp=2),
                     checkpoints=CheckpointConfig(save_every=30))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with contextlib.ExitStack() as stack:
        try:
            started = stack.enter_context(slurm_cluster())
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"SLURM does not come up on this machine: {error}")
        yield started


@dataclass(frozen=True)
class Run:
    """A job of launch/slurm.sh with two tasks. folder: of its logs."""

    cluster: SlurmCluster
    folder: Path
    number: str

    def wait(self, reached: Callable[[dict[str, str]], bool], seconds: float) -> dict[str, str]:
        """Until the controller says something of the job that satisfies `reached`; at most so long."""
        end = time.monotonic() + seconds
        while not reached(job := self.cluster.job(self.number)):
            assert time.monotonic() < end, f"{job}\n{self.said()}"
            if job["JobState"] == "PENDING" and job["Reason"] == "BeginTime":  # SLURM lets two minutes pass otherwise
                self.cluster.ask("scontrol", "update", f"JobId={self.number}", "StartTime=now")
            time.sleep(0.1)
        return job

    def wait_for(self, there: Callable[[], bool], seconds: float = 200.0) -> None:
        self.wait(lambda job: there() or job["JobState"] in ENDED, seconds)
        assert there(), self.said()

    def end(self, seconds: float = 200.0) -> dict[str, str]:
        return self.wait(lambda job: job["JobState"] in ENDED, seconds)

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()

    def said(self) -> str:
        logs = [*self.folder.glob("*.log"), *self.folder.glob("logs/*.log")]
        return "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(logs))


def submit(cluster: SlurmCluster, folder: Path, *command: str, **environment: str) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    given = SlurmCluster(cluster.folder, {**cluster.environment, "LOGS": str(folder / "logs"), **environment})
    sbatch = ["sbatch", "--parsable", "--partition=low", "--nodes=1", "--ntasks-per-node=2", f"--chdir={ROOT}"]
    log = f"--output={folder}/vrjax_%j.log"
    return Run(cluster, folder, given.ask(*sbatch, log, str(ROOT / "launch" / "slurm.sh"), *command).strip())


def stand_in(cluster: SlurmCluster, folder: Path, save_s: float = 1.0, **environment: str) -> Run:
    program = str(Path(__file__).with_name("stand_in.py"))
    run = submit(cluster, folder, sys.executable, "-S", program, str(folder), "60", str(save_s), **environment)
    run.wait_for(lambda: all(step(folder, task) >= 5 for task in (0, 1)))
    return run


def step(folder: Path, task: int) -> int:
    file = folder / f"step_{task}"
    return int(file.read_text() or 0) if file.exists() else 0


def before_the_time_limit(run: Run) -> None:
    """What `--signal=B:TERM@180` does: the batch script alone is signalled."""
    run.cluster.ask("scancel", "--batch", "--signal=TERM", run.number)


def by_the_controller(run: Run) -> None:
    """Preemption without a grace time, or an administrator: everything is signalled, and killed after KillWait."""
    run.cluster.ask("scontrol", "requeue", run.number)


def by_another_job(run: Run) -> None:
    """Preemption with a grace time: SLURM signals the tasks alone."""
    run.cluster.ask("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")


@pytest.mark.parametrize("preempt", [before_the_time_limit, by_the_controller, by_another_job])
def test_what_is_preempted_saves_and_goes_on(
    cluster: SlurmCluster, tmp_path: Path, preempt: Callable[[Run], None]
) -> None:
    """Saving takes longer than scancel waits before it tries again, which must not reach the next start."""
    run = stand_in(cluster, tmp_path, save_s=6.0, EVALUATE="sleep 1")
    preempt(run)
    job = run.end()
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), run.said()
    for task in (0, 1):
        lines = re.findall(r"^(?:starts|saved|finished).*", run.log(f"train_{run.number}_{task}"), re.M)
        saved = lines[1].split()[-1]
        expected = ["starts after step 0", f"saved step {saved}", f"starts after step {saved}", "finished"]
        assert lines == expected


def test_a_task_that_is_killed_ends_the_other_and_both_start_again(cluster: SlurmCluster, tmp_path: Path) -> None:
    run = stand_in(cluster, tmp_path)
    task_1 = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path) in (process.info["cmdline"] or []) and process.environ().get("SLURM_PROCID") == "1"
    )
    task_1.send_signal(signal.SIGKILL)
    job = run.end()
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), run.said()
    assert "exit code 137 after start 0; submitted again" in run.said()


def test_without_a_restart_left_it_is_not_started_again(cluster: SlurmCluster, tmp_path: Path) -> None:
    run = stand_in(cluster, tmp_path, RESTARTS="0")
    before_the_time_limit(run)
    assert run.end()["Restarts"] == "0"
    assert "no restart is left" in run.said()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([sys.executable, "-S", "-c", "import sys; sys.exit(2)"], "used wrongly (exit code 2)"),
        (["vrjaxx", "train", "x.py"], "vrjaxx is not installed"),
    ],
)
def test_wrong_usage_is_not_started_again(cluster: SlurmCluster, tmp_path: Path, command: list[str], says: str) -> None:
    run = submit(cluster, tmp_path, *command)
    job = run.end()
    assert (job["JobState"], job["Restarts"], job["ExitCode"]) == ("FAILED", "0", "2:0")
    assert says in run.said()


def test_the_last_checkpoint_is_still_evaluated(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The evaluation goes on for two seconds after the training, and the job waits for it."""
    (tmp_path / "watch.sh").write_text(
        f"until grep -qs finished {tmp_path}/logs/train_*_0.log; do sleep 0.2; done\n"
        "sleep 2\necho evaluated task $SLURM_PROCID of $SLURM_NTASKS\n"
    )
    run = stand_in(cluster, tmp_path, EVALUATE=f"bash {tmp_path}/watch.sh")
    assert run.end()["JobState"] == "COMPLETED"
    assert run.log(f"evaluate_{run.number}") == "evaluated task 0 of 1\n"


def train(cluster: SlurmCluster, world: Path, folder: Path, **environment: str) -> Run:
    folder.mkdir()
    (folder / "experiment.py").write_text(EXPERIMENT.format(world=str(world), run=str(folder / "run")))
    return submit(
        cluster, folder, sys.executable, "-m", "vrjax.cli", "train", "--compilation-cache",
        os.environ["JAX_COMPILATION_CACHE_DIR"], str(folder / "experiment.py"),
        JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=1", **environment,
    )  # fmt: skip


def test_a_preempted_training_ends_at_the_same_bits(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Two processes of `vrjax train`; `vrjax evaluate --watch` runs beside the one that nothing happens to."""
    world = make_world(tmp_path / "world", train=8, val=1)
    evaluate = f"{sys.executable} -m vrjax.cli evaluate eg_vqa --watch {tmp_path}/whole/run --out {tmp_path}/watched"
    evaluate += f" --data {world}/clips/val.json --limit 2 --similarity tokens --max-tokens 8 --report-frames 0"
    whole = train(cluster, world, tmp_path / "whole", EVALUATE=f"{evaluate} --poll-s 1 --no-progress")
    assert whole.end(900)["JobState"] == "COMPLETED", whole.said()
    steps = sorted(path.parent.name for path in tmp_path.glob("watched/steps/*/scores.json"))
    assert steps == ["000030", "000060"], whole.said()

    run = train(cluster, world, tmp_path / "preempted")
    metrics = tmp_path / "preempted" / "run" / "metrics.jsonl"
    run.wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= 2, 600)
    by_the_controller(run)
    job = run.end(900)
    assert job["JobState"] == "COMPLETED", run.said()
    assert int(job["Restarts"]) >= 1  # more where the machine is so busy that Gloo's 30 s pass between two processes
    log = run.log(f"train_{run.number}_0")
    stopped = re.search(r"terminated after step (\d+)", log)
    assert stopped is not None, log
    assert 2 <= int(stopped[1]) < 60
    assert "finished after step 60" in log
    assert largest_difference(tmp_path / "preempted" / "run", tmp_path / "whole" / "run") == 0.0
