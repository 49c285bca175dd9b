"""Programs that a model wrote run here: in worker processes of pydantic-monty, a Python of its own without a host.

    with Sandbox(tools={"add": add}, time_limit_s=5) as sandbox:
        sandbox.run("x = add(1, 2)\\nprint(x)")     # "3\\n"
        sandbox.run("x + 1")                        # "4"

A session is not a process but its saved state. Each program gets a worker, the state, and hands the new state back:

    state ─▶ worker: program ─▶ tool call? ─▶ here: the tool ─▶ worker …  ─▶ new state
                        └─ killed, crashed, out of time or memory ─▶ the old state stands, this program is lost
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from vrjax.agents.crossing import bounded_repr, from_program, to_program
from vrjax.errors import InputError, RunError

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

Kind = Literal[
    "ok",
    "error",  # an exception, shown as Python would; what was assigned before it stands
    "ended",  # a tool ended the program (finish)
    "time",  # out of time
    "memory",  # out of memory
    "budget",  # too many tool calls, or too many questions to the host
    "crash",  # the worker died
]
UNDONE = "Nothing that this program assigned was kept."
# Programs read one fixed time, so that a run can be repeated.
CLOCK = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
# Exceptions of a tool that a program sees as they are; all others are RuntimeErrors that name them.
_KNOWN = (
    ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, LookupError, NotImplementedError, OSError,
    OverflowError, PermissionError, RuntimeError, TypeError, ValueError, ZeroDivisionError,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one program may use.

    time_limit_s: seconds of its own, tools not counted; sleeping is charged to it, and not waited for. memory_mb: of
    its heap. recursion: calls within calls. output_characters: shown of what it prints, and of its value. tool_calls:
    of one program. host_calls: tool calls, names looked up and sleeps together. program_characters: its length.
    """

    time_limit_s: float = 10.0
    memory_mb: float = 32.0
    recursion: int = 200
    output_characters: int = 20_000
    tool_calls: int = 100
    host_calls: int = 5_000
    program_characters: int = 50_000

    def __post_init__(self) -> None:
        for name in ("time_limit_s", "memory_mb", "recursion", "output_characters", "host_calls", "program_characters"):
            if not getattr(self, name) > 0:
                raise InputError(f"a sandbox's {name} is {getattr(self, name)}. Give more than 0.")
        if self.tool_calls < 0:
            raise InputError(f"a sandbox's tool_calls is {self.tool_calls}. Give 0 or more.")


class ProgramEnd(Exception):
    """Raised by a tool to end the program that called it; nothing in the program can catch it."""

    def __init__(self, value: Any = None) -> None:
        super().__init__("the program has ended")
        self.value = value


@dataclass(frozen=True)
class StepResult:
    """How one program ended.

    text: what the agent sees. ended: what a tool gave to ProgramEnd. tool_calls: how many. seconds: in all, tools
    included. cut: characters that were printed and are not shown.
    """

    text: str
    kind: Kind
    tool_calls: int = 0
    seconds: float = 0.0
    cut: int = 0
    ended: Any = None


class Workers:
    """Worker processes that many sandboxes share. A context manager; safe between threads.

    most: how many processes; further programs wait for one. grace_s: how long a worker that does not stop at its time
    limit is left alive. Raises RunError where the workers cannot be started.
    """

    def __init__(self, most: int = 2, grace_s: float = 0.3) -> None:
        self.most, self.grace_s = most, grace_s
        self._pool: Monty | None = None

    def __enter__(self) -> Workers:
        from pydantic_monty import Monty

        try:
            # A worker that served many sessions is replaced, so that nothing can gather in it.
            self._pool = Monty(
                min_processes=1,
                max_processes=self.most,
                max_checkouts_per_worker=500,
                feed_duration_limit_grace=self.grace_s,
                turn_duration_limit_grace=self.grace_s,
            ).__enter__()
        except Exception as error:
            raise RunError(f"the sandbox's workers cannot be started ({error}). Reinstall pydantic-monty.") from error
        return self

    def __exit__(self, *exception: object) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def checkout(self, limits: Limits) -> MontySession:
        if self._pool is None:
            raise InputError("these workers are not running. Use them in a with block.")
        return self._pool.checkout(
            script_name="program.py",
            limits={
                "max_feed_duration_secs": limits.time_limit_s,
                "max_memory": int(limits.memory_mb * 2**20),
                "max_recursion_depth": limits.recursion,
                "max_suspensions": limits.host_calls + 100,  # ours is counted first, with a clear message
            },
            os_policy={
                "datetime": CLOCK,
                "sleep": "call_host",
                "process_time": "zero",
                "random_start": {"seed": 0},
            },
        )


class Sandbox:
    """One session: variables and functions live on from program to program. A context manager.

    tools: what programs can call, and values they can read, by name; nothing else of this process can be reached. A
    tool runs in the thread that called `run`, gets plain values (see `crossing`), and may raise: the program sees its
    exception, or ends where it is a ProgramEnd. time_limit_s takes the place of that of `limits`. workers: shared
    ones; by default the sandbox has a process of its own.

    Raises InputError for limits below 0 and names that cannot be called.
    """

    def __init__(
        self,
        tools: Mapping[str, Any] | None = None,
        time_limit_s: float | None = None,
        *,
        limits: Limits | None = None,
        workers: Workers | None = None,
    ) -> None:
        limits = limits or Limits()
        self.limits = limits if time_limit_s is None else replace(limits, time_limit_s=time_limit_s)
        self.tools = dict(tools or {})
        for name in self.tools:
            if not (isinstance(name, str) and name.isidentifier()):
                raise InputError(f"{name!r} cannot be the name of a tool. Use letters, digits and underscores.")
        self._workers, self._own = workers, workers is None
        self._state: bytes | None = None

    def __enter__(self) -> Sandbox:
        if self._own:
            self._workers = Workers(1, grace_s=max(0.05, min(0.3, self.limits.time_limit_s / 8))).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._own and self._workers is not None:
            self._workers.__exit__(None, None, None)
            self._workers = None

    def run(self, program: str) -> str:
        """Run a program and return what the agent sees: what it printed, its last value, or its error with the line."""
        return self.step(program).text

    def step(self, program: str, tools: Mapping[str, Any] | None = None) -> StepResult:
        """Run a program. tools: instead of the sandbox's own, for this program alone."""
        if self._workers is None:
            raise InputError("this sandbox is closed. Use it in a with block.")
        began = time.monotonic()
        if len(program) > self.limits.program_characters:
            text = f"The program has {len(program)} characters, more than {self.limits.program_characters}. Not run."
            return StepResult(text, "budget")
        # Lone surrogates cannot cross; in a program they can only stand in texts.
        program = program.encode("utf-8", "replace").decode()
        run = _Run(self.limits, self.tools if tools is None else tools)
        with contextlib.ExitStack() as stack:
            try:
                session = stack.enter_context(self._workers.checkout(self.limits))
                if self._state is not None:
                    session.load_session(self._state)
                kind, text, ended = run.drive(session, program)
                if kind in ("ok", "error"):
                    self._state = session.dump()
            except Exception as error:
                if not _of_sandbox(error):
                    raise
                kind, text, ended = _died(error)
            finally:
                with contextlib.suppress(Exception):  # a worker that is gone need not be given back
                    stack.close()
        return StepResult(
            run.shown(text), kind, run.tool_calls, time.monotonic() - began, run.printed - len(run.output), ended
        )


class _Run:
    """One program: it is driven from question to question that the worker has for its host."""

    def __init__(self, limits: Limits, tools: Mapping[str, Any]) -> None:
        self.limits, self.tools = limits, tools
        self.output, self.printed = "", 0
        self.tool_calls = self._host_calls = 0
        self._own_s = 0.0  # seconds of the program itself, sleep included

    def drive(self, session: MontySession, program: str) -> tuple[Kind, str, Any]:
        """(kind, what stands below the output, what ended it)"""
        from pydantic_monty import FunctionSnapshot, MontyComplete, MontyCrashedError, MontyError, NameLookupSnapshot

        limits = self.limits
        try:
            at = self._timed(lambda: session.feed_start(program, print_callback=self._print))
            while not isinstance(at, MontyComplete):
                self._host_calls += 1
                if self._host_calls > limits.host_calls:
                    return "budget", f"RuntimeError: more than {limits.host_calls} calls to the host. {UNDONE}", None
                if self._own_s > limits.time_limit_s:
                    return "time", self._late(), None
                if isinstance(at, NameLookupSnapshot):
                    known = {"value": self._value(at.variable_name)} if at.variable_name in self.tools else {}
                    at = self._resume(at, **known)
                elif not isinstance(at, FunctionSnapshot):
                    return "budget", f"RuntimeError: nothing here can be waited for. {UNDONE}", None
                elif at.is_os_function:
                    if at.function_name not in ("time.sleep", "asyncio.sleep"):
                        at = self._timed(at.resume_not_handled)
                        continue
                    self._own_s += _slept(at.args)
                    if self._own_s > limits.time_limit_s:
                        return "time", self._late(), None
                    at = self._resume(at, {"return_value": None})
                elif not callable(self.tools.get(at.function_name)) or at.object_id is not None:
                    message = f"name {at.function_name!r} is not defined"
                    at = self._resume(at, {"exc_type": "NameError", "message": message})
                else:
                    if self.tool_calls >= limits.tool_calls:
                        said = f"RuntimeError: more than {limits.tool_calls} tool calls in one program. {UNDONE}"
                        return "budget", said, None
                    self.tool_calls += 1
                    at = self._resume(at, self._call(at.function_name, at.args, at.kwargs))
        except ProgramEnd as end:
            return "ended", "", end.value
        except MontyCrashedError as error:
            if error.timed_out:
                return "time", self._late(), None
            return _died(error)
        except MontyError as error:
            return self._failed(error)
        value = at.output
        return "ok", "" if value is None else bounded_repr(value, limits.output_characters), None

    def shown(self, below: str) -> str:
        """Output, what was cut of it, and what stands below."""
        text = self.output
        if self.printed > len(self.output):
            text += f"\n[{self.printed - len(self.output)} more characters were printed and are not shown]\n"
        if below and text and not text.endswith("\n"):
            text += "\n"
        return text + below

    def _timed(self, act: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return act()
        finally:
            self._own_s += time.monotonic() - began

    def _resume(self, at: Any, *answer: Any, **named: Any) -> Any:
        return self._timed(lambda: at.resume(*answer, **named))

    def _print(self, stream: str, text: str) -> None:
        self.output += text[: max(self.limits.output_characters - len(self.output), 0)]
        self.printed += len(text)

    def _value(self, name: str) -> Any:
        value = self.tools[name]
        return value if callable(value) else to_program(value)

    def _call(self, name: str, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            given = [from_program(one) for one in args]
            named = {key: from_program(one) for key, one in kwargs.items()}
            return {"return_value": to_program(self.tools[name](*given, **named))}
        except ProgramEnd:
            raise
        except Exception as error:
            kind, said = as_seen(error)
            return {"exc_type": kind, "message": said}

    def _late(self) -> str:
        return f"TimeoutError: the program ran for more than {self.limits.time_limit_s:g} s. {UNDONE}"

    def _failed(self, error: Any) -> tuple[Kind, str, Any]:
        inner = error.exception()
        if isinstance(inner, TimeoutError) and "time limit exceeded" in str(inner):
            return "time", self._late(), None
        most = self.limits.output_characters
        message = str(inner)
        if len(message) > most:  # rendering the whole of it takes long
            frames = error.traceback()
            line = f"line {frames[-1].line}: " if frames else ""
            shown = f"{line}{type(inner).__name__}: {message[:most]}… [{len(message) - most} more characters]"
        else:
            shown = error.display()[-2 * most :]
        if isinstance(inner, MemoryError):
            return "memory", f"{shown.rstrip()}\n{UNDONE}", None
        if isinstance(inner, RuntimeError) and "suspension limit" in str(inner):
            return "budget", f"{shown.rstrip()}\n{UNDONE}", None
        return "error", shown, None


def as_seen(error: Exception) -> tuple[str, str]:
    """A tool's exception as a program sees it: the name of a built-in type, and the message."""
    kind = next((one.__name__ for one in type(error).__mro__ if one in _KNOWN), "RuntimeError")
    said = str(error) or type(error).__name__
    if kind == "RuntimeError" and type(error) is not RuntimeError:
        said = f"{type(error).__name__}: {said}"
    if isinstance(error, KeyError) and error.args:
        said = str(error.args[0])
    return kind, said[:2000]


def _slept(args: tuple) -> float:
    seconds = args[0] if args and isinstance(args[0], (int, float)) else 0.0
    return max(float(min(seconds, 1e9)), 0.0) if seconds == seconds else 0.0


def _of_sandbox(error: Exception) -> bool:
    from pydantic_monty import MontyError

    return isinstance(error, (MontyError, TimeoutError)) or type(error).__module__.startswith("pydantic_monty")


def _died(error: Exception) -> tuple[Kind, str, None]:
    said = _said(error)
    kind = "memory" if "memory limit" in said else "crash"
    return kind, f"The process of the program died ({said}). {UNDONE}", None


def _said(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
