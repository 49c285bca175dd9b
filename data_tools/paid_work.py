"""Items that each need paid replies: run together, kept one by one, resumed, and stopped without losing a reply."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from data_tools.stage_files import Journal, Row
from vrjax.errors import InputError, RunError
from vrjax.llm.chat import ChatError

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


async def work_through(
    items: Sequence[T],
    key: Callable[[T], str],
    one: Callable[[T], Awaitable[Row]],
    journal: Journal,
    at_once: int,
    progress: Callable[[int, int], None] | None = None,
) -> Failures[T]:
    """Do what the journal does not hold yet; returns what failed.

    one: the row of an item, to which its key is added; a ChatError or InputError from it fails that item alone. key:
    names an item and all that its result depends on. at_once: items under way together. On SIGTERM and Ctrl-C no
    further item is begun, those under way are finished and kept, and RunError is raised; so too where the budget is
    used up or the key is refused.
    """
    left = [item for item in items if key(item) not in journal.rows]
    failures: Failures[T] = Failures()
    places = asyncio.Semaphore(at_once)
    stopping: list[str] = []
    done = len(items) - len(left)

    async def run(item: T) -> None:
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
            journal.add({"key": key(item), **row})
            done += 1
            if progress is not None:
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
            for item in left:
                group.create_task(run(item))
    except* RunError as errors:
        raise errors.exceptions[0] from None
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
