"""A SLURM cluster of one node on this machine: munged, slurmctld and slurmd with all of their files in one folder.

The node is called localhost and pretends to have four processors. Jobs of the partition `low` are preempted, and
requeued, by those of `high`. No file of the system is read or written, and nothing needs the superuser.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo", "squeue")
MUNGED = {
    "key-file": "munge.key",
    "socket": "munge.socket",
    "pid-file": "munge.pid",
    "seed-file": "munge.seed",
    "log-file": "munged.log",
}
SETTINGS = """
ClusterName=vrjax
SlurmctldHost={host}(127.0.0.1)
FirstJobId={first_job}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,requeue_delay=1,batch_sched_delay=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=300
NodeName=localhost NodeAddr=127.0.0.1 NodeHostname={host} CPUs=4 State=UNKNOWN
PartitionName=low Nodes=localhost Default=YES PriorityTier=1 GraceTime=300 MaxTime=INFINITE
PartitionName=high Nodes=localhost PriorityTier=2 PreemptMode=OFF MaxTime=INFINITE
"""


def missing() -> list[str]:
    """Programs of the cluster that are not installed. Debian keeps the daemons where only the superuser looks."""
    return [name for name in PROGRAMS if _program(name) is None]


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True)
class SlurmCluster:
    """folder: of its files; environment: makes SLURM's own commands speak to this cluster."""

    folder: Path
    environment: dict[str, str]

    def ask(self, *command: str) -> str:
        """What one of SLURM's commands prints. Raises RuntimeError where it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """What the controller says of a job: JobState, Restarts, ExitCode and more."""
        words = self.ask("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        return "\n".join(f"{log}:\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster whose node is idle; its daemons are ended, and its files deleted, on leaving."""
    # The sockets' paths are limited to 107 characters, so the folder is not below pytest's.
    folder = Path(tempfile.mkdtemp(prefix="slurm_"))
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    with _two_free_ports() as (controller_port, node_port):
        settings = SETTINGS.format(
            host=socket.gethostname(), user=getpass.getuser(), folder=folder,
            controller_port=controller_port, node_port=node_port,
            first_job=os.getpid() % 50_000 + 1,  # a run's port follows from its job's number
        )  # fmt: skip
    file = folder / "slurm.conf"
    file.write_text(settings)
    cluster = SlurmCluster(folder, {**os.environ, "SLURM_CONF": str(file)})
    munged = [f"--{option}={folder / name}" for option, name in MUNGED.items()]
    commands = (
        ["munged", "--foreground", "--force", "--num-threads=2", *munged],
        ["slurmctld", "-D", "-c", "-f", str(file)],
        ["slurmd", "-D", "-N", "localhost", "-f", str(file)],
    )
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for name, *arguments in commands:
            with (folder / f"{name}.output.log").open("wb") as output:
                program = _program(name)
                assert program is not None
                words = [program, *arguments]
                daemons.append(subprocess.Popen(words, env=cluster.environment, stdout=output, stderr=output))
            if name == "munged":
                _wait_for_file(folder / "munge.socket")
        _wait_until_idle(cluster)
        yield cluster
    finally:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            _end_all_jobs(cluster)
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _end_all_jobs(cluster: SlurmCluster, seconds: float = 30.0) -> None:
    """Kill their processes, which would outlive the daemons."""
    everyone = f"--user={getpass.getuser()}"
    for how in (["--state=PENDING"], ["--signal=KILL", "--full"], []):
        cluster.ask("scancel", everyone, *how)
    end = time.monotonic() + seconds
    while cluster.ask("squeue", "--noheader") and time.monotonic() < end:
        time.sleep(0.2)


@contextlib.contextmanager
def _two_free_ports() -> Iterator[tuple[int, int]]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        yield one.getsockname()[1], two.getsockname()[1]


def _wait_for_file(path: Path, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise RuntimeError(f"{path} did not appear")
        time.sleep(0.05)


def _wait_until_idle(cluster: SlurmCluster, seconds: float = 60.0) -> None:
    end, said = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        try:
            said = cluster.ask("sinfo", "--noheader", "--format=%T")
        except RuntimeError as error:
            said = str(error)
        if set(said.split()) == {"idle"}:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the node did not become idle: {said}\n{cluster.logs()}")
