"""A plan as a picture: memory of each phase's largest program against the chip's, and the least seconds of each."""

from __future__ import annotations

from pathlib import Path

from vrjax.chips import GIB
from vrjax.errors import InputError
from vrjax.planning.planner import Plan
from vrjax.planning.program_plan import ProgramPlan

_COLOURS = {
    "arguments": "#4269d0",
    "new results": "#6cc5b0",
    "activations": "#efb118",
    "training state": "#9498a0",
    "reference policy": "#c3a0d0",
    "sampling weights": "#97bbf5",
    "vision features": "#a9d18e",
    "in all, says the compiler": "#d4504c",
}


def draw_plan(plan: Plan, path: str | Path) -> None:
    """Write the picture; its form (svg, png, pdf) is that of the file's name. Raises InputError for any other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"{path}: a picture ends in .svg, .png or .pdf.")
    phases = list(dict.fromkeys(program.phase for program in plan.programs))
    seconds = {name: content["roofline_s"] for name, content in plan.phases().items()}
    timed = any(seconds.values())
    figure = Figure(figsize=(10, 1.2 + 0.5 * len(phases)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2 if timed else 1, width_ratios=[3, 1] if timed else None, squeeze=False)[0]
    memory, shown = panels[0], set()
    for row, phase in enumerate(phases):
        largest = max((one for one in plan.programs if one.phase == phase), key=lambda one: one.peak or float("inf"))
        start = 0.0
        for name, value in parts_of(largest).items():
            label = name if name not in shown else None
            shown.add(name)
            memory.barh(row, value / GIB, left=start / GIB, color=_COLOURS.get(name, "#bbbbbb"), label=label)
            start += value
        memory.text(start / GIB, row, f" {start / GIB:.1f}", va="center", fontsize=8)
    memory.set_yticks(range(len(phases)), phases)
    memory.invert_yaxis()
    if plan.chip_gib is not None:
        memory.axvline(plan.chip_gib, color="#d4504c", linestyle="--", label=f"{plan.topology.chip.name}")
    memory.set_xlabel("GiB of one device")
    memory.legend(fontsize=7, loc="lower right")
    if timed:
        panels[1].barh(range(len(phases)), [seconds[phase] or 0.0 for phase in phases], color="#4269d0")
        panels[1].set_yticks(range(len(phases)), [""] * len(phases))
        panels[1].invert_yaxis()
        panels[1].set_xlabel("least seconds of a step")
    verdict = "fits" if plan.fits else "does not fit"
    mesh = " × ".join(f"{name} {size}" for name, size in plan.mesh.shape.items() if size > 1) or "one device"
    figure.suptitle(f"{plan.model} on {plan.topology.name} ({mesh}): {verdict}", fontsize=10)
    figure.savefig(path)


def parts_of(program: ProgramPlan) -> dict[str, float]:
    """Bytes of one device while a program runs, by what takes them; they add up to its peak."""
    if program.refused:
        rest = (program.peak or 0.0) - sum(program.resident.values())
        return {**program.resident, "in all, says the compiler": max(rest, 0.0)}
    return {
        **program.resident,
        "arguments": program.arguments,
        "new results": program.outputs - program.aliased,
        "activations": program.temporary,
    }
