"""A ledger that runs nothing: it compiles each program that it is asked to run, for devices that may not be at hand.

The trainer's and the engine's own code runs before it with shapes in place of arrays, and gets the shapes and shardings
of the results back. So what is planned are their own jitted functions, in their own order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import jax

from vrjax.flops import FlopRules, jaxpr_flops
from vrjax.hlo_text import read_traffic
from vrjax.ledger import Ledger, as_shape, lowered_hash
from vrjax.planning.program_plan import ProgramPlan, device_bytes
from vrjax.planning.topology import GIB

# "Used 16.5G of 15.75G hbm", or "the total memory required for HLO temporaries (25.49G) exceeds available HBM (15.75G)"
_USED = re.compile(r"(?:Used |memory required for [\w ]*\()([\d.]+)([KMGT]?)(?: of |\) exceeds)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TooLargeError(Exception):
    """The training state alone does not fit: there is no use in compiling what works on it."""


class PlanLedger(Ledger):
    """limit: bytes of a device, past which no more is planned once the training state (`place`) needs them; phase,
    calls: of the programs that come next; alive: what is held on the devices meanwhile, by name; loop_trips: turns of a
    loop whose end the program decides.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None, limit: float | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.phase, self.calls, self.loop_trips = "", 1, 1
        self.alive: dict[str, Any] = {}
        self.programs: list[ProgramPlan] = []
        self._say = say
        self._results: dict[tuple[str, Any], Any] = {}

    def run(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """Shapes of what `jitted(*args)` would return; compiled once for each name and key."""
        if (program, key) not in self._results:
            self._results[program, key] = self._compile(program, key, jitted, args)
            held = self.programs[-1].peak
            if program == "place" and self.limit is not None and (held is None or held > self.limit):
                raise TooLargeError
        return self._results[program, key]

    def compiled(self, program: str, key: Any, jitted: Any, *args: Any) -> Any:
        """A function that answers with the shapes."""
        results = self.run(program, key, jitted, *args)
        return lambda *_: results

    def _compile(self, program: str, key: Any, jitted: Any, args: tuple[Any, ...]) -> Any:
        abstract = jax.tree.map(as_shape, args)
        here = frozenset(id(leaf) for leaf in jax.tree.leaves(abstract))
        resident = {name: device_bytes(tree, here) for name, tree in self.alive.items()}
        resident = {name: value for name, value in resident.items() if value}
        start = time.perf_counter()
        traced = jitted.trace(*abstract)
        rules = FlopRules(loop_trips=self.loop_trips, branches="mean")
        flops = jaxpr_flops(traced.jaxpr, rules)
        lowered = traced.lower()
        trace_s = time.perf_counter() - start
        devices = _devices(abstract)
        common = {
            "name": program, "key": str(key), "phase": self.phase, "hash": lowered_hash(lowered), "calls": self.calls,
            "devices": devices, "resident": resident, "flops": flops / devices, "trace_s": trace_s,
        }  # fmt: skip
        start = time.perf_counter()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            seconds = time.perf_counter() - start
            used = needed_bytes(str(error))
            peak = None if used is None else used + sum(resident.values())
            plan = ProgramPlan(**common, compile_s=seconds, peak=peak, refused=_first_lines(str(error)),
                               arguments=device_bytes(abstract))  # fmt: skip
            self._enter(plan)
            return jax.tree.map(as_shape, lowered.out_info)
        seconds = time.perf_counter() - start
        memory = compiled.memory_analysis()
        traffic = read_traffic(compiled.as_text(), self.loop_trips)
        held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        unread = device_bytes(abstract) - memory.argument_size_in_bytes
        if unread > 0.01 * memory.argument_size_in_bytes:  # more than the compiler's padding
            resident["arguments that it does not read"] = unread
        # A TPU's compiler reports no temporaries, but the peak with them; a CPU's reports them.
        alone = max(held + memory.temp_size_in_bytes, memory.peak_memory_in_bytes)
        plan = ProgramPlan(
            **common,
            compile_s=seconds,
            arguments=memory.argument_size_in_bytes,
            outputs=memory.output_size_in_bytes,
            aliased=memory.alias_size_in_bytes,
            temporary=alone - held,
            code=memory.generated_code_size_in_bytes,
            bytes=traffic.bytes,
            sent=dict(traffic.sent),
            counts=dict(traffic.counts),
            peak=alone + sum(resident.values()),
        )
        self._enter(plan)
        return jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            lowered.out_info,
            compiled.output_shardings,
        )

    def _enter(self, plan: ProgramPlan) -> None:
        self.programs.append(plan)
        peak = "does not fit" if plan.refused else f"{(plan.peak or 0) / GIB:.2f} GiB"
        self._say(f"{plan.name} {plan.key}: {peak}, traced in {plan.trace_s:.0f} s, compiled in {plan.compile_s:.0f} s")


def needed_bytes(message: str) -> float | None:
    """Bytes that a program needs, of the compiler's own sentence that it has fewer."""
    found = _USED.search(message)
    return None if found is None else float(found[1]) * _UNITS[found[2]]


def _first_lines(message: str) -> str:
    return " ".join(line.strip() for line in message.strip().splitlines()[:3])[:400]


def _devices(tree: Any) -> int:
    """How many devices a program runs on: those of its arguments, one where they lie nowhere."""
    counts = [len(leaf.sharding.device_set) for leaf in jax.tree.leaves(tree) if leaf.sharding is not None]
    return max(counts, default=1)
