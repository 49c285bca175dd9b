"""Warm-up: programs are compiled before the first step, from shapes; none is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from vrjax.ledger import Ledger, as_shape


class Rehearsal(Ledger):
    """Compiles into `ledger` what it is asked to run, runs nothing, and answers with shapes.

    The trainer's and the engine's own code goes through a step before it, with shapes in place of arrays; afterwards
    `ledger` holds the programs of that step. say: gets a line for each that was compiled.
    """

    def __init__(self, ledger: Ledger, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__()
        self._ledger, self._say = ledger, say
        self._results: dict[tuple[str, Any], Any] = {}

    def run(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """Shapes of what `jitted(*args)` would return, with their shardings."""
        if (program, key) not in self._results:
            shapes, before = jax.tree.map(as_shape, args), len(self._ledger.entries)
            compiled = self._ledger.prepare(program, key, jitted, *shapes)
            for entry in self._ledger.entries[before:]:
                self._say(f"warm-up: {entry.program} compiled in {entry.seconds:.1f} s, for {entry.shapes}")
            self._results[program, key] = jax.tree.map(
                lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
                jax.eval_shape(jitted, *shapes),
                compiled.output_shardings,
            )
        return self._results[program, key]

    def compiled(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """A function that answers with the shapes."""
        results = self.run(program, key, jitted, *args)
        return lambda *_: results


@contextmanager
def warming_up(ledger: Ledger, say: Callable[[str], None]) -> Iterator[Rehearsal]:
    """Warm up within; at the end it is said how many programs were compiled, and in how many seconds."""
    start, before = time.perf_counter(), len(ledger.entries)
    yield Rehearsal(ledger, say)
    count = len(ledger.entries) - before
    say(f"warm-up: {count} programs in {time.perf_counter() - start:.1f} s, before the first step")
