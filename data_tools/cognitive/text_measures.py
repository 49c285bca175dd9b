"""Parse depth and reading grade of a stream of texts, over several processes."""

from __future__ import annotations

import functools
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice

from data_tools.cognitive.parse_depth import load_parser, parse_depths
from data_tools.cognitive.reading_grade import TextCounts, check_installed, count

CHUNK = 1000  # texts a task
MOST_REMEMBERED = 200_000  # texts; short answers come again and again


@dataclass(frozen=True)
class TextMeasure:
    """Of one text: parse depth (mean and largest over its sentences; None where it is empty) and word counts."""

    mean_depth: float | None
    largest_depth: float | None
    counts: TextCounts


def measure_texts(texts: Iterable[str], workers: int = 1) -> Iterator[TextMeasure]:
    """The measure of each text, in order; a bounded number of texts is held at a time.

    workers: processes; they are started once there are more texts than one task. Raises InputError with the
    command that installs what is missing.
    """
    check_installed()
    stream = iter(texts)
    known: dict[str, TextMeasure] = {}
    first, second = _chunk(stream), _chunk(stream)
    if workers <= 1 or not second:
        for chunk in _chunks(first, second, stream):
            yield from _settle(chunk, known, _measure(_new(chunk, known)))
        return
    load_parser()  # what is missing is said here, not by a process
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: deque[tuple[list[str], Future[list[tuple[str, TextMeasure]]]]] = deque()
        for chunk in _chunks(first, second, stream):
            waiting.append((chunk, pool.submit(_measure, _new(chunk, known))))
            if len(waiting) > 2 * workers:
                done, future = waiting.popleft()
                yield from _settle(done, known, future.result())
        for done, future in waiting:
            yield from _settle(done, known, future.result())


def _chunk(stream: Iterator[str]) -> list[str]:
    return list(islice(stream, CHUNK))


def _chunks(first: list[str], second: list[str], stream: Iterator[str]) -> Iterator[list[str]]:
    chunk = first
    following = second
    while chunk:
        yield chunk
        chunk, following = following, _chunk(stream)


def _new(chunk: Sequence[str], known: dict[str, TextMeasure]) -> list[str]:
    return list(dict.fromkeys(text for text in chunk if text not in known))


def _settle(
    chunk: Sequence[str], known: dict[str, TextMeasure], measured: list[tuple[str, TextMeasure]]
) -> Iterator[TextMeasure]:
    fresh = dict(measured)
    found = [fresh[text] if text in fresh else known[text] for text in chunk]
    if len(known) < MOST_REMEMBERED:
        known.update(fresh)
    yield from found


@functools.cache
def _parser():
    return load_parser()


def _measure(texts: list[str]) -> list[tuple[str, TextMeasure]]:
    depths = parse_depths(_parser(), texts)
    return [
        (text, TextMeasure(*(depth or (None, None)), counts=count(text)))
        for text, depth in zip(texts, depths, strict=True)
    ]
