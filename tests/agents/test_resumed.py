"""A dataset run that is killed ten times ends with the traces of one that was not."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import psutil
import pytest

from experiments.scripted_endpoint import scripted_endpoint
from experiments.shapes_script import ShapesScript
from vrjax.agents import read_traces
from vrjax.agents.trace_file import TraceFile
from vrjax.errors import InputError


class SlowScript(ShapesScript):
    def __call__(self, asked):
        time.sleep(0.05)
        return super().__call__(asked)


def start(url, folder, out):
    command = [sys.executable, "-m", "tests.agents.resumed_process", url, str(folder), str(out)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path, shapes_folder):
    draw = random.Random(0)
    with scripted_endpoint(SlowScript()) as endpoint:
        whole = start(endpoint.url, shapes_folder, tmp_path / "whole")
        assert whole.wait(timeout=300) == 0, whole.stderr.read()
        calls = sum(endpoint.forms.values())
        kills, lines = 0, []
        while kills < 10:
            process = start(endpoint.url, shapes_folder, tmp_path / "killed")
            before = len(lines)
            limit = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < limit:  # until a question more is done, and a bit
                path = tmp_path / "killed" / "traces.jsonl"
                lines = path.read_bytes().splitlines() if path.exists() else []
                if len(lines) > before or kills % 3 == 2:
                    time.sleep(draw.uniform(0.0, 0.4))
                    break
                time.sleep(0.05)
            assert process.poll() is None, process.stderr.read()
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            process.stderr.close()
            kills += 1
            _, alive = psutil.wait_procs(children, timeout=20)
            assert not alive  # workers do not outlive their owner
        assert 1 <= len(lines) < 20
        last = start(endpoint.url, shapes_folder, tmp_path / "killed")
        assert last.wait(timeout=300) == 0, last.stderr.read()
        assert sum(endpoint.forms.values()) > 2 * calls  # some of the work was done twice
    one, other = read_traces(tmp_path / "whole"), read_traces(tmp_path / "killed")
    assert one.keys() == other.keys()
    assert len(one) == 20
    for name, run in one.items():
        assert other[name].without_times() == run.without_times()


def test_a_folder_with_other_settings_is_refused(tmp_path):
    with TraceFile(tmp_path, {"mode": "agent"}), pytest.raises(InputError, match="another process"):
        TraceFile(tmp_path, {"mode": "agent"}).__enter__()
    with pytest.raises(InputError, match="other settings \\(mode\\)"):
        TraceFile(tmp_path, {"mode": "critic"}).__enter__()


def test_a_broken_last_line_is_taken_away(tmp_path):
    (tmp_path / "traces.jsonl").write_text('{"id": "a", "que')
    assert read_traces(tmp_path) == {}
    with TraceFile(tmp_path, {}):
        pass
    assert (tmp_path / "traces.jsonl").read_text() == ""
    (tmp_path / "traces.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n')
    with pytest.raises(InputError, match=r"line 1: question"):
        read_traces(tmp_path)
