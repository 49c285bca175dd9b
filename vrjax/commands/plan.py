"""`vrjax plan`: does a run fit a machine, and how long can a step take there? No accelerator is needed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from vrjax.errors import InputError


@dataclass(frozen=True)
class PlanRun:
    """Compile every program of a run for a machine that need not be at hand, and say what they need there.

    They are the trainer's and the sampler's own programs, with shapes in place of arrays. TPU slices need
    `pip install 'vrjax[plan]'` (libtpu), and no TPU. Where the run has a directory with a survey of its data, its
    buckets are planned; else the largest rows that the configuration allows. Fields of the configuration can be changed
    as for `vrjax train`. Exit code 1: it does not fit.

    Examples::

        vrjax plan experiments/sft.py --topology cpu:8
        vrjax plan experiments/eg_reasoner_7b.py --topology v5e:4x8 --mesh.tensor 4 --micro-batches 2
        vrjax plan experiments/eg_reasoner_7b.py --topology h100:8 --picture plan.svg
    """

    valued: ClassVar[tuple[str, ...]] = ("--topology", "--out", "--picture", "--video")
    flags: ClassVar[tuple[str, ...]] = ("--json", "--every-size", "--help", "-h")
    """Own options, with a value and without; any other changes a field of the configuration."""

    experiment: tyro.conf.Positional[Path]
    """Python file that sets `config`."""
    topology: str
    """v5e:4x8, v6e:4x4, v5p:2x2x4 (chips of a TPU slice), h100:8, h200:8 (CPU devices stand in), cpu:8 (fake
    devices), or here (this machine's own)."""
    video: str = "1280x720x600"
    """WIDTHxHEIGHTxSECONDS of the videos where there is no survey of them yet."""
    every_size: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Plan rows of short responses too, not the longest alone (policy runs)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the plan as JSON."""
    out: Path | None = None
    """Write the JSON to this file too."""
    picture: Path | None = None
    """Draw the plan, as .svg, .png or .pdf."""

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
        """The command's own arguments, wherever they stand, and those that change fields of the configuration."""
        own: list[str] = []
        fields: list[str] = []
        words = iter(arguments)
        named = False
        for word in words:
            name = word.split("=", 1)[0].replace("_", "-")
            if name in cls.flags or (name in cls.valued and "=" in word):
                own.append(word)
            elif name in cls.valued:
                own += [word, *(value for value in [next(words, None)] if value is not None)]
            elif not named and not word.startswith("-"):
                own.append(word)
                named = True
            else:
                fields.append(word)
        return own, fields

    def run(self, rest: Sequence[str] = ()) -> int:
        """Plan, print, and return the exit code. rest: fields to change, `--field.path value …`."""
        from vrjax.planning.topology import prepare

        prepare(self.topology)
        from vrjax.planning import AssumedVideo, draw_plan, make_plan
        from vrjax.training.experiment import load_experiment, override

        found = re.fullmatch(r"(\d+)x(\d+)x(\d+(?:\.\d+)?)", self.video)
        if found is None:
            raise InputError(f"--video {self.video}: give WIDTHxHEIGHTxSECONDS, such as 1280x720x600.")
        if self.picture is not None and self.picture.suffix not in (".svg", ".png", ".pdf"):
            raise InputError(f"{self.picture}: a picture ends in .svg, .png or .pdf.")
        config = override(load_experiment(self.experiment), rest, f"vrjax plan {self.experiment}")
        plan = make_plan(
            config,
            self.topology,
            assumed=AssumedVideo(int(found[1]), int(found[2]), float(found[3])),
            every_size=self.every_size,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
        content = plan.as_json()
        if self.out is not None:
            self.out.write_text(json.dumps(content, indent=1) + "\n")
        if self.picture is not None:
            draw_plan(plan, self.picture)
        if self.json:
            print(json.dumps(content, indent=1))
        else:
            _show(content)
        return 0 if plan.fits else 1


def _show(content: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console = Console(width=max(console.width, 120))
    mesh = ", ".join(f"{name} {size}" for name, size in content["mesh"].items())
    console.print(
        f"{content['model']}: {content['parameters'] / 1e9:.2f} billion parameters on {content['topology']}, "
        f"{content['devices']} devices ({mesh}), {content['processes']} process(es)"
    )
    console.print(f"rows: {content['work']['source']}")
    table = Table("phase", "program", "GiB a device", "TFLOP a device", "GB moved", "GB sent", "least s", "bound by")
    for one in content["programs"]:
        sent = sum(part["bytes"] for part in one["collectives"].values())
        peak = "does not fit" if one["refused"] and one["peak_gib"] is None else f"{one['peak_gib']:.2f}"
        seconds = "" if one["roofline_s"] is None else f"{one['roofline_s']:.3f}"
        calls, work = one["calls"], (one["flops"], one["bytes"], sent)
        name = one["program"] + (f" × {calls}" if calls > 1 else "")
        table.add_row(
            one["phase"], name, peak, f"{calls * work[0] / 1e12:.2f}", f"{calls * work[1] / 1e9:.2f}",
            f"{calls * work[2] / 1e9:.2f}", seconds, one["bound_by"] or "",
        )  # fmt: skip
    console.print(table)
    for name, value in content["memory_gib"].items():
        console.print(f"  {name}: {value:.3f} GiB")
    peak = "unknown" if content["peak_gib"] is None else f"{content['peak_gib']:.2f} GiB"
    verdict = "fits" if content["fits"] else "does not fit"
    chip = "" if content["chip_gib"] is None else f" of {content['chip_gib']:.2f} GiB"
    console.print(f"{verdict}: at most {peak}{chip} a device, in {content['peak_program']}")
    if content["step_s"] is not None:
        console.print(f"a step takes {content['step_s']:.1f} s or more (judges and data apart)")
    for line in [*content["notes"], *content["advice"]]:
        console.print(f"  {line}")
