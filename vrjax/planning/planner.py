"""A run planned for a machine: does it fit, what takes the memory, how long can a step take at best.

plan = make_plan(config, "v5e:4x8")
plan.fits, plan.peak_gib, plan.chip_gib
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import Mesh

from vrjax.chips import GIB
from vrjax.errors import InputError
from vrjax.models.parameters import parameter_count
from vrjax.planning.advice import advise
from vrjax.planning.model_source import model_shapes
from vrjax.planning.policy_plan import plan_policy
from vrjax.planning.program_plan import ProgramPlan, device_bytes, fits, in_gib
from vrjax.planning.recorder import PlanLedger, TooLargeError
from vrjax.planning.supervised_plan import plan_supervised
from vrjax.planning.topology import Topology, host_mesh, open_topology
from vrjax.planning.workload import AssumedVideo, Workload, find_workload
from vrjax.sharding import is_cpu, local_mesh, make_mesh, processes_of
from vrjax.training.config import FreshModel, SftConfig
from vrjax.training.policy.config import GrpoConfig
from vrjax.training.state import TrainState


@dataclass(frozen=True)
class Plan:
    """model: its name; parameters: of it; memory: GiB of one device by what takes it; advice: what to change where it
    does not fit; notes: what the plan takes on trust; seconds: that planning took.
    """

    topology: Topology
    mesh: Mesh
    model: str
    parameters: int
    work: Workload
    programs: tuple[ProgramPlan, ...]
    memory: dict[str, float]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def fits(self) -> bool:
        return all(
            not program.refused and program.peak is not None and fits(program.peak, self.topology.chip)
            for program in self.programs
        )

    @property
    def largest(self) -> ProgramPlan:
        """The program that needs most memory."""
        return max(self.programs, key=lambda program: float("inf") if program.peak is None else program.peak)

    @property
    def peak_gib(self) -> float | None:
        return in_gib(self.largest.peak)

    @property
    def chip_gib(self) -> float | None:
        return in_gib(self.topology.chip.memory)

    def phases(self) -> dict[str, dict[str, Any]]:
        """Peak, and least seconds in a step, of each phase; of programs for several sizes the largest counts."""
        found: dict[str, dict[str, Any]] = {}
        slowest: dict[tuple[str, str], tuple[float, str]] = {}
        for program in self.programs:
            phase = found.setdefault(program.phase, {"peak_gib": 0.0, "flops": 0.0, "roofline_s": None, "bound_by": {}})
            phase["peak_gib"] = max(phase["peak_gib"], in_gib(program.peak) or 0.0)
            roofline = program.roofline(self.topology.chip)
            key = program.phase, program.name
            if roofline is not None and roofline[0] > slowest.get(key, (-1.0, ""))[0]:
                slowest[key] = roofline
        for (phase, name), (seconds, bound) in slowest.items():
            found[phase]["roofline_s"] = (found[phase]["roofline_s"] or 0.0) + seconds
            found[phase]["bound_by"][name] = bound
        for phase, content in found.items():
            most: dict[str, float] = {}
            for program in self.programs:
                if program.phase == phase:
                    most[program.name] = max(most.get(program.name, 0.0), program.calls * program.flops)
            content["flops"] = sum(most.values())
        return found

    @property
    def step_seconds(self) -> float | None:
        """Least seconds of a step: the phases but the start and what comes now and then, one after the other."""
        found = [
            phase["roofline_s"] for name, phase in self.phases().items() if name not in ("start", "validation", "audit")
        ]
        return None if not found or any(value is None for value in found) else sum(found)

    def as_json(self) -> dict[str, Any]:
        chip = self.topology.chip
        return {
            "topology": self.topology.name,
            "chip": chip.name,
            "devices": len(self.topology.devices),
            "processes": processes_of(self.mesh),
            "mesh": dict(self.mesh.shape),
            "model": self.model,
            "parameters": self.parameters,
            "work": {"buckets": [vars(bucket) for bucket in self.work.buckets], "source": self.work.source},
            "fits": self.fits,
            "peak_gib": self.peak_gib,
            "peak_program": self.largest.name,
            "chip_gib": self.chip_gib,
            "memory_gib": self.memory,
            "step_s": self.step_seconds,
            "phases": self.phases(),
            "compile_s": round(sum(program.compile_s for program in self.programs), 1),
            "plan_s": round(self.seconds, 1),
            "advice": list(self.advice),
            "notes": list(self.notes),
            "programs": [program.as_json(chip) for program in self.programs],
        }


def make_plan(
    config: Any,
    topology: str,
    *,
    assumed: AssumedVideo | None = None,
    every_size: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Compile every program of a run for a machine that need not be at hand, and add up what they need.

    assumed: the video that stands in where the run has no survey of its data yet. every_size: plan rows of shorter
    responses too. Raises InputError for a topology that does not exist, a mesh that does not multiply out to it or does
    not divide the model, a batch that it does not divide, a missing libtpu, or a model whose sizes are not at hand:
    before anything is compiled. A program that needs more memory than there is is a result, not an error.
    """
    if not isinstance(config, SftConfig | GrpoConfig):
        raise InputError(f"there is no plan for a {type(config).__name__}. Give a configuration of SFT or GRPO.")
    start = time.perf_counter()
    machine = open_topology(topology)
    notes = list[str]()
    if machine.stand_in:
        config = replace(config, compute="bfloat16") if config.compute == "auto" else config
        notes.append(
            f"Compiled for CPUs in the place of {machine.chip.name}s, with the plain form of attention: operations and "
            "what stays in memory are right, what comes and goes is that compiler's and likely more than a GPU's."
        )
    sizes = config.mesh
    mesh = make_mesh(sizes.data, sizes.fsdp, sizes.seq, sizes.tensor, machine.devices)
    model = model_shapes(config.model, mesh)
    work = find_workload(config, model.config, assumed or AssumedVideo())
    ledger = PlanLedger(say, machine.chip.memory)
    state = None
    try:
        if isinstance(config, GrpoConfig):
            own = local_mesh(mesh)
            local = host_mesh(machine, own)
            if local is not own:
                notes.append(
                    f"Sampling runs on the {own.devices.size} chips of a host, and is compiled for a slice of that "
                    "size: libtpu compiles nothing for a part of one. Try a first step on the machine before relying "
                    "on it."
                )
            state = plan_policy(config, model, mesh, local, work, ledger, every_size=every_size).state
        else:
            state = plan_supervised(config, model, mesh, work, ledger)
    except TooLargeError:
        notes.append("The training state alone does not fit, so nothing that works on it was planned.")
    programs, memory = tuple(ledger.programs), _memory(state, tuple(ledger.programs))
    if config.evaluate is not None and state is not None:
        narrow = config.compute == "bfloat16" or (config.compute == "auto" and not is_cpu(mesh))
        memory["weights for evaluate"] = round(device_bytes(state.all_params()) / (2 if narrow else 1) / GIB, 6)
        notes.append(
            "evaluate is the experiment's own function, and what it compiles is not planned. It is given the model's "
            f"weights beside the training state, {memory['weights for evaluate']:.1f} GiB a device."
        )
    source = config.model
    plan = Plan(
        topology=machine,
        mesh=mesh,
        model=f"{type(source).__name__}" if isinstance(source, FreshModel) else source.path,
        parameters=parameter_count(model.params),
        work=work,
        programs=programs,
        memory=memory,
        advice=(),
        notes=tuple(notes),
        seconds=time.perf_counter() - start,
    )
    return plan if plan.fits else replace(plan, advice=tuple(advise(config, mesh, plan.largest, machine.chip)))


def _memory(state: TrainState | None, programs: tuple[ProgramPlan, ...]) -> dict[str, float]:
    """GiB of one device: what stays, and the largest of what comes and goes. state: None where it did not fit."""
    if state is None:
        found = {"training state": programs[-1].outputs or programs[-1].peak or 0.0}
    else:
        found = {
            "trained parameters": device_bytes(state.params),
            "frozen parameters": device_bytes(state.frozen),
            "optimiser": device_bytes(state.optimizer),
        }
    by_name = {name: [one for one in programs if one.name == name] for name in {one.name for one in programs}}
    for name, program, size in (
        ("reference policy", "reference_of", "outputs"),
        ("sampling weights", "spread", "outputs"),
        ("prefix cache", "prefill", "outputs"),
        ("suffix caches", "start", "outputs"),
    ):
        if program in by_name:
            found[name] = max(getattr(one, size) for one in by_name[program])
    for program in ("update", "train", "prefill", "decode", "reference", "vision"):
        if program in by_name:
            found[f"activations of {program}"] = max(one.temporary for one in by_name[program])
    return {name: round(value / GIB, 6) for name, value in found.items()}
