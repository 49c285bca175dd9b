"""The roll before the first step: real sockets, a process a thread."""

import socket
import threading
import time

import pytest

from vrjax.errors import InputError, RunError, VrjaxError
from vrjax.processes import Processes, call_roll, find_processes, first_host


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connected(port: int) -> socket.socket:
    """A connection to whoever listens there, as soon as somebody does."""
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.01)


def call(present: list[int], count: int, digests: dict[int, str] | None = None, seconds: float = 20.0) -> dict:
    """What each process that is there hears: the reports, or the error."""
    address, heard = f"127.0.0.1:{free_port()}", {}

    def one(index: int) -> None:
        try:
            processes = Processes(address, count, index, "test")
            heard[index] = call_roll(processes, (digests or {}).get(index, "same"), time_limit_s=seconds)
        except VrjaxError as error:
            heard[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in present]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return heard


def test_all_are_there() -> None:
    heard = call([3, 1, 0, 2], 4)
    assert sorted(heard) == [0, 1, 2, 3]
    assert all([report.process for report in reports] == [0, 1, 2, 3] for reports in heard.values())


def test_the_missing_are_named_to_all() -> None:
    heard = call([0, 2], 4, seconds=1.0)
    for index in (0, 2):
        assert isinstance(heard[index], RunError)
        assert "of 4 processes 2 did not report in time: 1, 3." in str(heard[index])
        assert socket.gethostname() in str(heard[index])


def test_without_process_0_the_others_say_so() -> None:
    heard = call([1], 2, seconds=0.5)
    assert "process 1" in str(heard[1])
    assert "got no answer from process 0 at 127.0.0.1:" in str(heard[1])


def test_another_configuration_is_named_to_all() -> None:
    heard = call([0, 1, 2], 3, digests={2: "other"})
    assert all("process(es) 2 (" in str(heard[index]) and isinstance(heard[index], InputError) for index in range(3))


def test_a_stranger_at_the_port_is_not_counted() -> None:
    address = f"127.0.0.1:{(port := free_port())}"
    heard = {}
    threads = [
        threading.Thread(
            target=lambda n=n: heard.update({n: call_roll(Processes(address, 2, n, ""), "", time_limit_s=20)})
        )
        for n in range(2)
    ]
    threads[0].start()
    with connected(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        threads[1].start()
        for thread in threads:
            thread.join(30)
    assert len(heard[0]) == len(heard[1]) == 2


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} of .* cannot be used"):
            call_roll(Processes(f"127.0.0.1:{port}", 2, 0, ""), "", time_limit_s=1)


def test_clocks_that_are_apart_are_named() -> None:
    address, heard = f"127.0.0.1:{free_port()}", {}

    def one(index: int) -> None:
        try:
            call_roll(Processes(address, 2, index, ""), "", time_limit_s=20, clock_s=-1.0)
        except InputError as error:
            heard[index] = str(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert "clocks differ" in heard[0]
    assert "1 (" in heard[1]


EXPLICIT = {"VRJAX_COORDINATOR": "a:1234", "VRJAX_PROCESSES": "4", "VRJAX_PROCESS": "3"}
SLURM = {"SLURM_JOB_ID": "4097", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "gpu[07-08]"}
TPU = {"TPU_WORKER_HOSTNAMES": "t0,t1,t2", "TPU_WORKER_ID": "2"}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        (EXPLICIT, ("a:1234", 4, 3)),
        (EXPLICIT | {"VRJAX_PROCESSES": "1", "VRJAX_PROCESS": "0"}, None),
        (SLURM, ("gpu07:61441", 2, 1)),
        (SLURM | {"SLURM_NTASKS": "1"}, None),
        (TPU, ("t0:8476", 3, 2)),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, None),
        (SLURM | EXPLICIT, ("a:1234", 4, 3)),
    ],
)
def test_processes_of_an_environment(environment: dict[str, str], found: tuple[str, int, int] | None) -> None:
    processes = find_processes(environment)
    assert (None if processes is None else (processes.coordinator, processes.count, processes.index)) == found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"VRJAX_PROCESS": ""}, "but not VRJAX_PROCESS."),
        ({"VRJAX_PROCESS": "4"}, "from 0 to one below their number"),
        ({"VRJAX_PROCESSES": "many"}, "VRJAX_PROCESSES=many"),
        ({"VRJAX_COORDINATOR": "a"}, "coordinator 'a'"),
    ],
)
def test_half_an_environment_is_refused(change: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        find_processes(EXPLICIT | change)


@pytest.mark.parametrize(
    ("nodes", "host"), [("a17", "a17"), ("a17,b2", "a17"), ("a[17-19,30],b2", "a17"), ("n-[001,007]", "n-001")]
)
def test_first_host_of_a_node_list(nodes: str, host: str) -> None:
    assert first_host(nodes) == host
