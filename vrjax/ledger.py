"""The compile ledger: every compiled program by name and shape, with the seconds its compilation took.

Programs are compiled ahead of their first call, so that compile time is measured apart from run time. After `freeze`
(warm-up is over) a new shape that nobody planned is a mistake in the buckets: it raises, or is only recorded, as the
caller chose.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, field
from typing import Any

import jax

from vrjax.errors import RunError


@dataclass(frozen=True)
class LedgerEntry:
    """program: name; shapes: of its arguments that vary; seconds: compile time; after_warm_up: came unexpectedly;
    program_hash: of what was given to the compiler (`lowered_hash`).
    """

    program: str
    shapes: str
    seconds: float
    after_warm_up: bool
    program_hash: str = ""

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def lowered_hash(lowered: Any) -> str:
    """Sixteen digits that name a lowered program (its StableHLO text): equal ones compile to the same."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]


def call(program: str, key: Any, jitted: Any, *args: Any) -> Any:
    """`Ledger.run` without a ledger."""
    del program, key
    return jitted(*args)


@dataclass
class Ledger:
    """Compiles and remembers. `on_unexpected`: "record" or "stop" once frozen; `listener` sees each new entry.

    asked: how often each program was asked for, by its name and key.
    """

    on_unexpected: str = "record"
    listener: Callable[[LedgerEntry], None] | None = None
    entries: list[LedgerEntry] = field(default_factory=list)
    asked: Counter[tuple[str, Any]] = field(default_factory=Counter)
    _compiled: dict[tuple[str, Any], Any] = field(default_factory=dict)
    _frozen: bool = False
    _planned: Container[tuple[str, Any]] = ()

    def freeze(self, planned: Container[tuple[str, Any]] = ()) -> None:
        """Warm-up is over: from now on a compilation is unexpected, but for `planned` programs (name, key), which may
        still come, each once.
        """
        self._frozen, self._planned = True, planned

    def unexpected(self) -> list[LedgerEntry]:
        return [entry for entry in self.entries if entry.after_warm_up]

    def run(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """Call `jitted(*args)`; `key` (hashable) must tell apart all shapes that the caller ever passes."""
        return self.compiled(program, key, jitted, *args)(*args)

    def compiled(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """The compiled program that `run` would call."""
        self.asked[program, key] += 1
        return self.prepare(program, key, jitted, *args)

    def prepare(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """The same, where nothing is to be called yet: shapes will do for `args`."""
        compiled = self._compiled.get((program, key))
        if compiled is None:
            unexpected = self._frozen and (program, key) not in self._planned
            if unexpected and self.on_unexpected == "stop":
                raise RunError(
                    f"program {program!r} was about to be compiled again after warm-up, for {key}. Add a bucket: "
                    "`vrjax buckets` shows what the data needs."
                )
            start = time.perf_counter()
            lowered = jitted.lower(*args)
            compiled = lowered.compile()
            seconds = time.perf_counter() - start
            entry = LedgerEntry(program, str(key), seconds, unexpected, lowered_hash(lowered))
            self.entries.append(entry)
            if self.listener is not None:
                self.listener(entry)
            self._compiled[program, key] = compiled
        return compiled

    def text(self, program: str, key: Any) -> str:
        """What the compiler made of a program: its HLO, for `hlo_text`."""
        return self._compiled[program, key].as_text()


def shape_key(tree: Any) -> tuple:
    """Shapes and types of all arrays of a tree: a key for `Ledger.run` where a caller has nothing shorter."""
    return tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in jax.tree.leaves(tree))


def as_shape(value: Any) -> Any:
    """The shape of an array, with its sharding where the array is bound to devices."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    sharding = value.sharding if isinstance(value, jax.Array) and value.committed else None
    sharding = getattr(value, "sharding", None) if not isinstance(value, jax.Array) else sharding
    weak = bool(getattr(value, "weak_type", False))
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding, weak_type=weak)
