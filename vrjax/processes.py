"""The processes of one run: how they find each other, and who answers when they are called before the first step.

    VRJAX_COORDINATOR=host:port VRJAX_PROCESSES=4 VRJAX_PROCESS=2     explicit (launch/local.py sets these)
    SLURM_…                                                            of `srun`, one task a process
    TPU_WORKER_HOSTNAMES, TPU_WORKER_ID                                of a TPU slice with several hosts

A process that is missing would hold all others in their first collective, with nothing to say which it is. So they call
the roll first, over plain sockets and with a time limit: everyone reports to process 0, which tells all of them who is
missing, whose configuration differs, or whose clock is off.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vrjax.errors import InputError, RunError

PORT = 8476  # of a TPU slice's first host
HEARTBEAT_S = 20  # a process that is silent for so long is dead, and the others end
_LARGEST_REPORT = 1 << 20
_PATIENCE_S = 10.0  # with a caller that says nothing


@dataclass(frozen=True)
class Processes:
    """coordinator: "host:port" of process 0; count: of all; index: of this one; source: what says so."""

    coordinator: str
    count: int
    index: int
    source: str


@dataclass(frozen=True)
class Report:
    """What a process says of itself. digest: of its configuration; seconds: its clock, since 1970."""

    process: int
    host: str
    digest: str
    seconds: float


def find_processes(environment: Mapping[str, str]) -> Processes | None:
    """The processes that the environment speaks of; None where this is the only one.

    Raises InputError where it speaks of them in part, or in numbers that do not go together.
    """
    if any(name.startswith("VRJAX_PROCESS") or name == "VRJAX_COORDINATOR" for name in environment):
        names = ("VRJAX_COORDINATOR", "VRJAX_PROCESSES", "VRJAX_PROCESS")
        return _checked(environment, names, environment.get("VRJAX_COORDINATOR", ""))
    if "SLURM_PROCID" in environment and int(environment.get("SLURM_NTASKS", "1")) > 1:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
        port = 61_440 + int(environment.get("SLURM_JOB_ID", "0")) % 4096
        names = ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID")
        return _checked(environment, names, f"{first_host(nodes)}:{port}")
    hosts = [host for host in environment.get("TPU_WORKER_HOSTNAMES", "").split(",") if host]
    if len(hosts) > 1:
        counted = {**environment, "TPU_WORKERS": str(len(hosts))}
        return _checked(counted, ("TPU_WORKER_HOSTNAMES", "TPU_WORKERS", "TPU_WORKER_ID"), f"{hosts[0]}:{PORT}")
    return None


def _checked(environment: Mapping[str, str], names: tuple[str, str, str], coordinator: str) -> Processes | None:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise InputError(
            f"the environment names processes, but not {', '.join(missing)}. Set all of {', '.join(names)}, or none."
        )
    try:
        count, index = int(environment[names[1]]), int(environment[names[2]])
        host, port = coordinator.rsplit(":", 1)
        if not (0 <= index < count and host and 0 < int(port) < 65_536):
            raise ValueError
    except ValueError:
        values = ", ".join(f"{name}={environment[name]}" for name in names)
        raise InputError(
            f"{values}, coordinator {coordinator!r}: give host:port, and a process from 0 to one below their number."
        ) from None
    return None if count == 1 else Processes(coordinator, count, index, names[2])


def first_host(nodes: str) -> str:
    """First host of a SLURM node list: a17 of "a[17-19,30],b2"."""
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", nodes)
    return "" if found is None else found[1] + (found[2] or "")


def start(
    processes: Processes,
    digest: str,
    *,
    time_limit_s: float = 300.0,
    clock_s: float = 60.0,
    heartbeat_s: int = HEARTBEAT_S,
) -> None:
    """Call the roll, then start `jax.distributed`; before the first use of a device.

    digest: names the configuration; clock_s: most that two clocks may differ. Raises InputError where the port is taken
    or configurations differ, RunError naming who is missing after `time_limit_s`.
    """
    call_roll(processes, digest, time_limit_s=time_limit_s, clock_s=clock_s)
    import jax

    jax.distributed.initialize(
        processes.coordinator,
        processes.count,
        processes.index,
        cluster_detection_method="deactivate",
        initialization_timeout=max(int(time_limit_s), 1),
        heartbeat_timeout_seconds=heartbeat_s,
        shutdown_timeout_seconds=heartbeat_s,
    )


def call_roll(processes: Processes, digest: str, *, time_limit_s: float, clock_s: float = 60.0) -> tuple[Report, ...]:
    """Wait until every process has reported; all of them get the same answer. Errors as in `start`."""
    mine = Report(processes.index, socket.gethostname(), digest, time.time())
    end = time.monotonic() + time_limit_s
    answer = _preside(processes, mine, end, clock_s) if processes.index == 0 else _report(processes, mine, end)
    if answer.get("problem"):
        raise (RunError if answer.get("missing") else InputError)(answer["problem"])
    return tuple(Report(**report) for report in answer["reports"])


def _preside(processes: Processes, mine: Report, end: float, clock_s: float) -> dict[str, Any]:
    """Process 0: hear all reports, answer them all."""
    port = int(processes.coordinator.rsplit(":", 1)[1])
    try:
        listener = socket.create_server(("", port), backlog=processes.count)
    except OSError as error:
        raise InputError(
            f"port {port} of {mine.host} cannot be used ({error.strerror}). Another run may hold it: choose another "
            f"(the coordinator is {processes.coordinator}), or wait until that run has ended."
        ) from error
    reports, offsets, callers = {0: mine}, {0: 0.0}, []
    with listener:
        while len(reports) < processes.count and time.monotonic() < end:
            listener.settimeout(max(end - time.monotonic(), 0.01))
            try:
                caller, _ = listener.accept()
                report = Report(**_receive(caller, min(end, time.monotonic() + _PATIENCE_S)))
            except (TimeoutError, OSError, ValueError, TypeError):
                continue  # a stranger at the door, or nobody
            callers.append(caller)
            reports[report.process] = report
            offsets[report.process] = report.seconds - time.time()
    # The port is free again before anyone goes on: JAX's own service takes it.
    answer = _judge(processes, reports, offsets, clock_s)
    for caller in callers:
        with caller:
            try:
                caller.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                continue  # it will say itself that nobody answered
    return answer


def _judge(
    processes: Processes, reports: Mapping[int, Report], offsets: Mapping[int, float], clock_s: float
) -> dict[str, Any]:
    missing = sorted(set(range(processes.count)) - set(reports))
    there = ", ".join(f"{number} ({report.host})" for number, report in sorted(reports.items()))
    others = [number for number, report in reports.items() if report.digest != reports[0].digest]
    off = [number for number, offset in offsets.items() if abs(offset) > clock_s]
    problem = ""
    if missing:
        names = ", ".join(map(str, missing))
        problem = (
            f"of {processes.count} processes {len(missing)} did not report in time: {names}. There are {there}. Look "
            "at the logs of the missing ones, and start all again."
        )
    elif others:
        names = ", ".join(f"{number} ({reports[number].host})" for number in sorted(others))
        problem = f"process(es) {names} have another configuration than process 0. Start all from the same files."
    elif off:
        names = ", ".join(f"{number} ({reports[number].host}, {offsets[number]:+.0f} s)" for number in sorted(off))
        problem = f"clocks differ by more than {clock_s:.0f} s from process 0's: {names}. Set them (chrony, ntpd)."
    ordered = [asdict(report) for _, report in sorted(reports.items())]
    return {"problem": problem, "missing": missing, "reports": ordered}


def _report(processes: Processes, mine: Report, end: float) -> dict[str, Any]:
    """Any other process: report to process 0, as soon as it is there, and wait for its answer."""
    host, port = processes.coordinator.rsplit(":", 1)
    reason = "nobody listens"
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, int(port)), timeout=max(end - time.monotonic(), 0.01)) as line:
                fresh = Report(mine.process, mine.host, mine.digest, time.time())
                line.sendall(json.dumps(asdict(fresh)).encode() + b"\n")
                return _receive(line, end + 10)
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            time.sleep(0.1)
    raise RunError(
        f"process {mine.process} ({mine.host}) got no answer from process 0 at {processes.coordinator} ({reason}). Is "
        "it running, and can it be reached from here?"
    )


def _receive(line: socket.socket, end: float) -> dict[str, Any]:
    """One line of JSON. Raises OSError or ValueError where none comes in time."""
    text = b""
    while not text.endswith(b"\n"):
        line.settimeout(max(end - time.monotonic(), 0.01))
        part = line.recv(65_536)
        text += part
        if not part or len(text) > _LARGEST_REPORT:
            raise ValueError("the line was cut")
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("no report")
    return content
