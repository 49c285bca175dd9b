"""Items that each need paid replies: run together, kept one by one, resumed, and stopped without losing a reply.

A reply is in the client's cache, under its final name, before `one` sees it, and a row is in the journal, synced,
before its item counts as done. So a kill costs no reply that was kept; calls that are under way when the process dies
(as many as the clients' concurrency) may have been charged, and are made again.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from data_tools.stage_files import Journal, Row
from data_tools.stage_output import progress_bar
from vrjax.errors import InputError, RunError
from vrjax.llm.chat import ChatError
from vrjax.llm.client import ChatClient

T = TypeVar("T")

# After one of these the rest would fail as well.
ENDING = ("budget", "unauthorised")


@dataclass
class Failures(Generic[T]):
    """Items without a result: (item, kind, message). They are in no journal; a later run tries them again."""

    items: list[tuple[T, str, str]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(kind for _, kind, _ in self.items)


def work_through(
    items: Mapping[str, T],
    one: Callable[[T], Awaitable[Row]],
    journal: Journal,
    clients: Iterable[ChatClient],
    at_once: int,
    what: str,
) -> Failures[T]:
    """Do what the journal does not hold yet, in an event loop of its own; returns what failed.

    items: by a key that names an item and all that its result depends on. one: the row of an item; a ChatError or
    InputError from it fails that item alone. clients: closed at the end. at_once: items under way together. what: the
    items, for the bar. On SIGTERM and Ctrl-C no further item is begun, those under way are finished and kept, and
    RunError is raised; so too where the budget is used up or the key is refused.
    """

    async def everything() -> Failures[T]:
        try:
            with progress_bar(what) as progress:
                return await _work(items, one, journal, at_once, progress)
        finally:
            for client in clients:
                await client.aclose()

    return asyncio.run(everything())


async def _work(
    items: Mapping[str, T],
    one: Callable[[T], Awaitable[Row]],
    journal: Journal,
    at_once: int,
    progress: Callable[[int, int], None],
) -> Failures[T]:
    left = {key: item for key, item in items.items() if key not in journal.rows}
    failures: Failures[T] = Failures()
    places = asyncio.Semaphore(at_once)
    stopping: list[str] = []
    done = len(items) - len(left)

    async def run(key: str, item: T) -> None:
        nonlocal done
        async with places:
            if stopping:
                return
            try:
                row = await one(item)
            except ChatError as error:
                failures.items.append((item, error.kind, str(error)))
                if error.kind in ENDING:
                    stopping.append(str(error))
                return
            except InputError as error:
                failures.items.append((item, "bad_request", str(error)))
                return
            journal.add({"key": key, **row})
            done += 1
            progress(done, len(items))

    loop = asyncio.get_running_loop()
    caught = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stopping.append, f"stopped by {number.name}.")
            caught.append(number)
        except (NotImplementedError, ValueError, RuntimeError):
            pass  # not in the main thread, or not on this system: then a kill is a kill
    try:
        async with asyncio.TaskGroup() as group:
            for key, item in left.items():
                group.create_task(run(key, item))
    except ExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
    if stopping:
        raise RunError(f"{stopping[0]} {done} of {len(items)} are done and kept; the same command goes on from there.")
    return failures


def check_share(failures: Failures[T], total: int, most: float, what: str) -> None:
    """Raises RunError where more than `most` of the items failed; what succeeded is kept."""
    failed = len(failures.items)
    if total and failed / total > most:
        kinds = ", ".join(f"{kind}: {number}" for kind, number in failures.counts.most_common())
        raise RunError(
            f"{failed} of {total} {what} got no usable reply ({kinds}), more than the share of {most:g}. The last: "
            f"{failures.items[-1][2]} Run the command again to ask for those alone."
        )
