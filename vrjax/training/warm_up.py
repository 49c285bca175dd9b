"""Warm-up: programs are compiled before the first step, from shapes; none is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from vrjax.ledger import Ledger, as_shape


class ShapeLedger(Ledger):
    """Runs nothing: what it is asked to run is answered with the shapes of the results, found once for each program.

    The trainer's and the engine's own code goes through a step before it, with shapes in place of arrays.
    """

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[tuple[str, Any], Any] = {}

    def answer(self, program: str, key: Any, jitted: Any, shapes: tuple[Any, ...]) -> Any:
        """Shapes of `jitted(*shapes)`, with their shardings."""
        raise NotImplementedError

    def run(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """Shapes of what `jitted(*args)` would return."""
        if (program, key) not in self._results:
            self._results[program, key] = self.answer(program, key, jitted, jax.tree.map(as_shape, args))
        return self._results[program, key]

    def compiled(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """A function that answers with the shapes."""
        results = self.run(program, key, jitted, *args)
        return lambda *_: results


def placed_shapes(results: Any, compiled: Any) -> Any:
    """Shapes of a program's results where the compiler puts them."""
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        results,
        compiled.output_shardings,
    )


class Rehearsal(ShapeLedger):
    """Compiles into `ledger`, a run's own, which then holds the programs of a step. say: gets a line for each."""

    def __init__(self, ledger: Ledger, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__()
        self._ledger, self._say = ledger, say

    def answer(self, program: str, key: Any, jitted: Any, shapes: tuple[Any, ...]) -> Any:
        before = len(self._ledger.entries)
        compiled = self._ledger.prepare(program, key, jitted, *shapes)
        for entry in self._ledger.entries[before:]:
            self._say(f"warm-up: {entry.program} compiled in {entry.seconds:.1f} s, for {entry.shapes}")
        return placed_shapes(jax.eval_shape(jitted, *shapes), compiled)


@contextmanager
def warming_up(ledger: Ledger, say: Callable[[str], None]) -> Iterator[Rehearsal]:
    """Warm up within; at the end it is said how many programs were compiled, and in how many seconds."""
    start, before = time.perf_counter(), len(ledger.entries)
    yield Rehearsal(ledger, say)
    count = len(ledger.entries) - before
    say(f"warm-up: {count} programs in {time.perf_counter() - start:.1f} s, before the first step")
