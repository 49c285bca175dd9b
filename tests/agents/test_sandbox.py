"""Programs in the sandbox: what they see, what they may use, and that nothing gets out."""

from __future__ import annotations

import os
import signal
import statistics
import time

import psutil
import pytest

from tests.agents.hostile_programs import LEAKS, REACHING, WEARING
from vrjax.agents import Limits, ProgramEnd, Sandbox, Video, Workers
from vrjax.errors import InputError

SECRET = LEAKS
LIMIT_S = 1.0


def add(a, b):
    """Add."""
    return a + b


def give_code():
    return "__import__('os').system('true') {0.__globals__}"


def fail():
    raise KeyError("nothing here")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(tools={"add": add, "give_code": give_code, "fail": fail}, time_limit_s=LIMIT_S) as one:
        one.run("kept = 41")
        yield one


@pytest.fixture(scope="module")
def host_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("host") / "secret.txt"
    path.write_text(LEAKS)
    return path


def memory_mb() -> float:
    return psutil.Process().memory_info().rss / 2**20


def held_back(sandbox, result, path, began, memory):
    assert LEAKS not in result.text
    assert path.read_text() == LEAKS
    assert len(result.text) < 60_000
    assert memory_mb() - memory < 200
    assert sandbox.run("print(kept + 1)") == "42\n"
    assert time.monotonic() - began < 1.5 * LIMIT_S + 1.0  # the next step is in it


@pytest.mark.alone
@pytest.mark.parametrize("name", REACHING)
def test_nothing_is_reached(sandbox, host_file, name):
    memory, began = memory_mb(), time.monotonic()
    result = sandbox.step(REACHING[name].replace("HOST_FILE", str(host_file)))
    # Some are harmless and run; whatever they print is of the sandbox's own.
    for word in ("root:", "PATH=", "/usr", "HOME", "uid=", "vrjax/__init__", "test_sandbox", "/bin"):
        assert word not in result.text, result.text
    held_back(sandbox, result, host_file, began, memory)


@pytest.mark.alone
@pytest.mark.parametrize("name", WEARING)
def test_nothing_is_worn_down(sandbox, host_file, name):
    memory, began = memory_mb(), time.monotonic()
    result = sandbox.step(WEARING[name])
    took = time.monotonic() - began
    assert took < 1.5 * LIMIT_S, f"{took:.2f} s, {result.kind}"
    held_back(sandbox, result, host_file, began, memory)


def test_hostile_programs_are_many():
    assert len(REACHING) + len(WEARING) >= 60


def test_variables_functions_and_classes_live_on():
    with Sandbox(tools={"add": add}) as sandbox:
        assert sandbox.run("x = add(1, 2)\nprint(x)") == "3\n"
        assert (
            sandbox.run("def twice(n):\n    return add(n, n)\nclass A:\n    def m(self): return twice(x)\na = A()")
            == ""
        )
        assert sandbox.run("a.m()") == "6"
        assert sandbox.run("call = add\ncall(1, 1)") == "2"
        assert sandbox.run("call('a', b='b')") == "'ab'"


def test_errors_are_shown_as_python_shows_them_with_the_line():
    with Sandbox(tools={"fail": fail}) as sandbox:
        text = sandbox.run("y = 1\n\ndef f():\n    return y / 0\nf()")
        assert text.startswith("Traceback (most recent call last):")
        assert "line 5, in <module>" in text
        assert "line 4, in f" in text
        assert text.endswith("ZeroDivisionError: division by zero")
        assert sandbox.run("y") == "1"  # as in Python, what came before stands
        assert "KeyError: 'nothing here'" in sandbox.run("fail()") or "KeyError: nothing here" in sandbox.run("fail()")
        assert sandbox.run("try:\n    fail()\nexcept KeyError:\n    print('caught')") == "caught\n"
        assert "line 2" in sandbox.run("x = 1\nif x\n    pass")
        assert "NameError: name 'nobody' is not defined" in sandbox.run("nobody(1)")


def test_a_program_out_of_time_leaves_no_trace():
    with Sandbox(time_limit_s=0.3) as sandbox:
        sandbox.run("x = [1]")
        result = sandbox.step("x.append(2)\ny = 1\nwhile True:\n    pass")
        assert result.kind == "time"
        assert "0.3 s" in result.text
        assert sandbox.run("x") == "[1]"
        assert "NameError" in sandbox.run("y")


def test_a_killed_worker_costs_its_step_only():
    pids = []

    def kill():
        children = psutil.Process().children(recursive=True)
        pids.extend(child.pid for child in children)
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
        return 1

    with Sandbox(tools={"kill": kill}, time_limit_s=2) as sandbox:
        sandbox.run("x = 5")
        result = sandbox.step("x = 6\nkill()\nx = 7")
        assert pids
        assert result.kind == "crash"
        assert "was kept" in result.text
        assert sandbox.run("x") == "5"


def test_a_tool_may_end_the_program_whatever_it_catches():
    def finish(answer):
        raise ProgramEnd(answer)

    with Sandbox(tools={"finish": finish}) as sandbox:
        result = sandbox.step("try:\n    finish(['a', 1])\nexcept BaseException:\n    pass\nwhile True:\n    pass")
    assert (result.kind, result.ended) == ("ended", ["a", 1])
    assert result.seconds < 2


def test_handles_and_values_cross_both_ways():
    seen = []

    def look(value):
        seen.append(value)
        return value

    with Sandbox(tools={"look": look, "video": Video(0.0, 60.0), "limit": 3}) as sandbox:
        assert sandbox.run("print(video.start, video.end, limit)") == "0.0 60.0 3\n"
        sandbox.run("v = look(video)")
        assert sandbox.run("v.end") == "60.0"
        sandbox.run("look(v)\nlook([1, (2.5, None), {'a': {1}}, b'x'])")
    assert seen == [Video(0.0, 60.0), Video(0.0, 60.0), [1, (2.5, None), {"a": {1}}, b"x"]]


def test_what_a_tool_cannot_give_is_an_error_in_the_program():
    with Sandbox(tools={"bad": lambda: object()}) as sandbox:
        text = sandbox.run("bad()")
    assert "TypeError: the tool returned a object" in text


def test_output_is_cut_and_counted_where_it_arrives():
    with Sandbox(limits=Limits(output_characters=100)) as sandbox:
        result = sandbox.step("for i in range(1000):\n    print('0123456789')")
    assert result.cut == 11_000 - 100
    assert "10900 more characters" in result.text


def test_tool_calls_of_one_program_are_bounded():
    with Sandbox(tools={"add": add}, limits=Limits(tool_calls=3)) as sandbox:
        assert sandbox.step("x = 0\nfor i in range(3):\n    x = add(x, 1)\nx").text == "3"
        result = sandbox.step(
            "for i in range(4):\n    try:\n        add(x, 1)\n    except BaseException:\n        pass"
        )
        assert result.kind == "budget"
        assert "more than 3 tool calls" in result.text
    with Sandbox(tools={"add": add}, limits=Limits(tool_calls=0)) as sandbox:
        assert sandbox.step("add(1, 1)").kind == "budget"


@pytest.mark.parametrize("wrong", [{"time_limit_s": 0}, {"memory_mb": -1}, {"tool_calls": -1}, {"recursion": 0}])
def test_limits_that_are_none_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Limits(**wrong)


def test_programs_repeat():
    program = "import random, time, datetime\nprint(random.random(), time.time(), datetime.datetime.now(), {'b', 'a'})"
    with Workers(2) as workers:
        shown = set()
        for _ in range(3):
            with Sandbox(workers=workers) as sandbox:
                shown.add((sandbox.run(program), sandbox.run(program)))
    assert len(shown) == 1


def test_a_thousand_sessions_leave_nothing_behind():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with Workers(2) as workers:
        for number in range(100):  # what grows once, at first use, is no leak
            with Sandbox(tools={"add": add}, workers=workers) as sandbox:
                sandbox.run(f"x = add({number}, 1)")
        memory = memory_mb()
        for number in range(1000):
            with Sandbox(tools={"add": add}, workers=workers) as sandbox:
                assert sandbox.run(f"x = add({number}, 1)\nprint(x)") == f"{number + 1}\n"
                assert sandbox.run("x") == str(number + 1)
        assert memory_mb() - memory < 20
        children = psutil.Process().children(recursive=True)
        assert len([child for child in children if child.pid not in before]) <= 2
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.mark.alone
def test_a_step_costs_little():
    with Sandbox(tools={"add": add}) as sandbox:
        sandbox.run("x = 1")
        times = []
        for _ in range(100):
            began = time.perf_counter()
            sandbox.run("x = add(x, 1)\nprint(x)")
            times.append(time.perf_counter() - began)
    assert statistics.median(times) < 0.020
