"""n processes of one command on this machine, watched, and started again from the last checkpoint when one dies.

    python -m launch.local --processes 2 -- vrjax train experiments/shapes_sft.py --mesh.fsdp 2
    python -m launch.local --processes 2 --dry-run -- vrjax train …

Each process has a log of its own. When one dies, the others end within a minute by JAX's heartbeat; what is left is
ended then, the launcher says which died and why, and starts all of them again: the trainer goes on by itself.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

GRACE_S = 60.0  # in which the others end by themselves
POLL_S = 0.1


@dataclass
class Group:
    """The processes of one attempt. logs: a file each."""

    processes: list[subprocess.Popen[bytes]]
    logs: list[Path]
    started: float = field(default_factory=time.monotonic)

    def signal(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def ended(self) -> list[int]:
        return [number for number, process in enumerate(self.processes) if process.poll() is not None]

    def failed(self) -> list[int]:
        return [number for number in self.ended() if self.processes[number].returncode != 0]

    def wait(self, seconds: float, until: str = "all") -> None:
        """Until all have ended, or (`first failure`) one has failed; at most so long."""
        end = time.monotonic() + seconds
        while len(self.ended()) < len(self.processes) and time.monotonic() < end:
            if until == "first failure" and self.failed():
                return
            time.sleep(POLL_S)


def cause(code: int) -> str:
    """What an exit code says."""
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


def last_lines(log: Path, count: int = 5) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()[-count:] if log.exists() else []
    return "\n".join(f"    {line}" for line in lines) or "    (its log is empty)"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def in_use(port: int) -> str:
    """Why a port of this machine cannot be used; empty where it can."""
    try:
        with socket.create_server(("", port)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def environment_of(number: int, count: int, port: int) -> dict[str, str]:
    """What tells a process who it is (see vrjax.processes)."""
    return {
        "VRJAX_COORDINATOR": f"127.0.0.1:{port}",
        "VRJAX_PROCESSES": str(count),
        "VRJAX_PROCESS": str(number),
    }


def start(command: Sequence[str], count: int, folder: Path, port: int) -> Group:
    folder.mkdir(parents=True, exist_ok=True)
    processes, logs = [], []
    for number in range(count):
        log = folder / f"process_{number}.log"
        environment = {**os.environ, **environment_of(number, count, port), "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as output:
            streams = {"stdout": output, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            processes.append(subprocess.Popen(command, env=environment, **streams))
        logs.append(log)
    return Group(processes, logs)


def run(command: Sequence[str], count: int, logs: Path, restarts: int, port: int | None = None) -> int:
    """Run until all processes have ended well (0), or no restart is left (the first failure's code, 1 for a signal)."""
    asked_to_end = False
    group: Group | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal asked_to_end
        asked_to_end = True
        if group is not None:
            group.signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for attempt in range(restarts + 1):
            group = start(command, count, logs / f"attempt_{attempt}", port or free_port())
            say(f"attempt {attempt}: {count} process(es), logs in {logs / f'attempt_{attempt}'}")
            group.wait(float("inf"), until="first failure")
            if not group.failed():
                return 0
            code = report(group, group.failed()[0])
            if asked_to_end or code == 2:  # 2: the command was used wrongly, and would be again
                return code
            if attempt < restarts:
                say(f"starting again from the last checkpoint ({restarts - attempt} restart(s) left)")
        return code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report(group: Group, first: int) -> int:
    """Say which process failed first and why, and see the others end. Returns its exit code, 1 for a signal."""
    code, failed_at = group.processes[first].returncode, time.monotonic()
    say(f"process {first} {cause(code)} after {failed_at - group.started:.0f} s. The end of {group.logs[first]}:")
    print(last_lines(group.logs[first]), flush=True)
    group.wait(GRACE_S)
    late = [number for number, process in enumerate(group.processes) if process.poll() is None]
    for number in late:
        say(f"process {number} went on for {GRACE_S:.0f} s after that, and is killed")
        group.processes[number].kill()
    group.wait(10.0)
    if not late:
        say(f"all others ended within {time.monotonic() - failed_at:.0f} s")
    return code if code > 0 else 1


def say(line: str) -> None:
    print(f"launch: {line}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m launch.local", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processes", type=int, required=True, help="how many")
    parser.add_argument("--logs", type=Path, default=Path("runs/logs"), help="folder of the logs")
    parser.add_argument("--restarts", type=int, default=3, help="how often to start again when a process dies")
    parser.add_argument("--port", type=int, help="of process 0 (default: a free one)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be started, and start nothing")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    asked = parser.parse_args(arguments)
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    if not command or asked.processes < 1 or asked.restarts < 0:
        parser.error("give a number of processes and, behind --, the command that each is to run")
    if asked.dry_run:
        for number in range(asked.processes):
            settings = environment_of(number, asked.processes, asked.port or 0)
            shown = " ".join(f"{name}={value}" for name, value in settings.items())
            print(f"{shown} {shlex.join(command)} > {asked.logs}/attempt_0/process_{number}.log")
        return 0
    if asked.port is not None and (reason := in_use(asked.port)):
        parser.error(f"port {asked.port} cannot be used ({reason}). Choose another, or leave --port out.")
    return run(command, asked.processes, asked.logs, asked.restarts, asked.port)


if __name__ == "__main__":
    sys.exit(main())
