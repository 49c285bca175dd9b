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

from vrjax.chips import GIB
from vrjax.flops import FlopRules, jaxpr_flops
from vrjax.hlo_text import read_traffic
from vrjax.ledger import as_shape, lowered_hash
from vrjax.planning.program_plan import ProgramPlan, device_bytes
from vrjax.training.warm_up import ShapeLedger, placed_shapes

# "Used 16.5G of 15.75G hbm", or "the total memory required for HLO temporaries (25.49G) exceeds available HBM (15.75G)"
_USED = re.compile(r"(?:Used |memory required for [\w ]*\()([\d.]+)([KMGT]?)(?: of |\) exceeds)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TooLargeError(Exception):
    """The training state alone does not fit: there is no use in compiling what works on it."""


# Of what is not part of the rollout.
PHASES = {
    "place": "start", "adapters": "start", "reference_of": "start", "train": "update", "validate": "validation",
    "reference": "reference", "log_probs": "log_probs", "processed": "audit", "update": "update",
}  # fmt: skip


class PlanLedger(ShapeLedger):
    """limit: bytes of a device, past which no more is planned once the training state (`place`) needs them; calls: of
    programs that are called more than once a step, and loop_trips: turns of a loop whose end the program decides, by
    program; alive: what is held on the devices meanwhile, by name.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None, limit: float | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.calls: dict[str, int] = {}
        self.loop_trips: dict[str, int] = {}
        self.alive: dict[str, Any] = {}
        self.programs: list[ProgramPlan] = []
        self._say = say

    def answer(self, program: str, key: Any, jitted: Any, shapes: tuple[Any, ...]) -> Any:
        """The same, and enters the program's plan. Raises TooLargeError where there is no use in going on."""
        results = self._compile(program, key, jitted, shapes)
        held = self.programs[-1].peak
        if program == "place" and self.limit is not None and (held is None or held > self.limit):
            raise TooLargeError
        return results

    def _compile(self, program: str, key: Any, jitted: Any, abstract: tuple[Any, ...]) -> Any:
        here = frozenset(id(leaf) for leaf in jax.tree.leaves(abstract))
        resident = {name: device_bytes(tree, here) for name, tree in self.alive.items()}
        resident = {name: value for name, value in resident.items() if value}
        start = time.perf_counter()
        traced = jitted.trace(*abstract)
        trips = self.loop_trips.get(program, 1)
        flops = jaxpr_flops(traced.jaxpr, FlopRules(loop_trips=trips))
        lowered = traced.lower()
        trace_s = time.perf_counter() - start
        devices = _devices(abstract)
        common = {
            "name": program, "key": str(key), "phase": PHASES.get(program, "rollout"),
            "hash": lowered_hash(lowered), "calls": self.calls.get(program, 1), "devices": devices,
            "resident": resident, "flops": flops / devices, "trace_s": trace_s,
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
        traffic = read_traffic(compiled.as_text(), trips)
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
        return placed_shapes(lowered.out_info, compiled)

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
