"""`traces.jsonl`: a line for each question, on disk before the next is waited for; and many questions, resumed.

OUT/settings.json   what the traces depend on: another start must have the same
OUT/traces.jsonl    one `trace.QuestionRun` a line
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from vrjax.agents.question import Task, VideoAgent
from vrjax.agents.trace import QuestionRun
from vrjax.errors import InputError, RunError
from vrjax.records import first_problem

TRACES, SETTINGS = "traces.jsonl", "settings.json"


def read_traces(folder: Path) -> dict[str, QuestionRun]:
    """The runs of a folder (or of a file) by question id. A last line that was cut short by a kill is left out.

    Raises InputError where there is no such file, or a line is no run.
    """
    path = folder / TRACES if folder.is_dir() else folder
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Give a folder with {TRACES}.") from error
    found: dict[str, QuestionRun] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            run = QuestionRun.model_validate_json(line)
        except ValidationError as error:
            if number == len(lines):
                continue
            raise InputError(f"{path}: line {number}: {first_problem(error)}. Remove the line.") from error
        found[run.id] = run
    return found


class TraceFile:
    """The file of one process, open for appending; a context manager.

    Raises InputError where another process writes it, or it holds runs with other settings; RunError where it cannot be
    written.
    """

    def __init__(self, folder: Path, settings: dict) -> None:
        self.folder, self._settings = folder, json.loads(json.dumps(settings))
        self._file: IO[bytes] | None = None

    def __enter__(self) -> TraceFile:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / TRACES).open("a+b")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise InputError(
                    f"{self.folder}: another process writes these traces. Wait, or name another."
                ) from None
            self._check_settings()
            self._cut_broken_line()
        except OSError as error:
            raise RunError(f"{self.folder}: cannot be written ({error.strerror}). Check the folder.") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()  # and with it the lock
            self._file = None

    def append(self, run: QuestionRun) -> None:
        """Write one run; it is on disk when this returns."""
        assert self._file is not None, "open the file first"
        try:
            # ASCII: lone surrogates of model text stay what they are.
            self._file.write(json.dumps(run.model_dump(mode="json")).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(f"{self.folder / TRACES}: cannot be written ({error.strerror}). Free some space.") from error

    def _check_settings(self) -> None:
        path = self.folder / SETTINGS
        if not path.exists():
            partial = path.with_name(f".{SETTINGS}.partial")
            partial.write_text(json.dumps(self._settings, indent=1) + "\n", encoding="utf-8")
            os.replace(partial, path)
            return
        found = json.loads(path.read_text(encoding="utf-8"))
        other = [key for key in sorted({*found, *self._settings}) if found.get(key) != self._settings.get(key)]
        if other:
            raise InputError(
                f"{self.folder}: holds traces made with other settings ({', '.join(other)}). Restore them, or name "
                "another folder."
            )

    def _cut_broken_line(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        content = self._file.read()
        tail = len(content) - content.rfind(b"\n") - 1
        if tail:
            self._file.truncate(len(content) - tail)


async def run_questions(
    agent: VideoAgent,
    tasks: Sequence[Task],
    folder: Path,
    *,
    questions_at_once: int = 4,
    on_run: Callable[[QuestionRun], None] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, QuestionRun]:
    """Answer what has no run in the folder yet, and return all runs by id, in the order of the tasks.

    Safe to kill: a question that was under way is begun again. Runs that ended in an error for want of a reply are
    made again too. on_run: told of each run as it comes. settings: what the folder's traces depend on, by default the
    mode and all of the agent's. Raises InputError for settings other than those of the folder, ChatError where no
    further request would be answered.
    """
    for task in tasks:
        agent.plan(task)  # what cannot work is known before anything is asked
    with TraceFile(folder, dict(settings or {"mode": agent.mode, **agent.settings})) as file:
        done = read_traces(folder)
        left = [task for task in tasks if task.id not in done or may_pass(done[task.id])]
        order = {video: number for number, video in enumerate(dict.fromkeys(task.video for task in left))}
        waiting = iter(sorted(left, key=lambda task: order[task.video]))

        async def work() -> None:
            for task in waiting:  # shared by all workers
                run = await agent.answer(task)
                file.append(run)
                done[run.id] = run
                if on_run is not None:
                    on_run(run)

        workers = [asyncio.create_task(work()) for _ in range(max(questions_at_once, 1))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    return {task.id: done[task.id] for task in tasks}


def may_pass(run: QuestionRun) -> bool:
    """Whether a run has no answer because a model did not reply; an agent that found none has ended its work."""
    return run.answer is None and any(trace.outcome == "failed" for trace in run.traces)
