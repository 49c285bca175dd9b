"""Phases of a step against the goals for accelerators; on one where it is at hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.benchmarks.phases import judged
from vrjax.chips import chip_of
from vrjax.planning import open_topology

ROOT = Path(__file__).parents[3]


def content(**changes: float) -> dict:
    reached = {"prefill": (0.5, 0.1), "update": (0.6, 0.1), "decode": (0.01, 0.7)}
    rows = [
        {"phase": name, "utilisation": changes.get(name, of_products), "bandwidth_utilisation": of_copies}
        for name, (of_products, of_copies) in reached.items()
    ]
    return {"phases": rows}


def test_goals_are_held_by_what_bounds_a_phase() -> None:
    assert [row["reached"] for row in judged(content(), 1.1)] == [True] * 4
    assert [row["reached"] for row in judged(content(update=0.49), None)] == [True, False, True]
    assert not judged(content(), 1.2)[-1]["reached"]
    assert not judged(content(), 0.8)[-1]["reached"]


def test_the_devices_of_this_machine_are_a_topology() -> None:
    here = open_topology("here")
    assert here.devices == open_topology("cpu:1").devices
    assert here.chip.flops is None


@pytest.mark.parametrize(
    ("kind", "flops"),
    [("TPU v5 lite", 197e12), ("TPU v5", 459e12), ("TPU v6 lite", 918e12), ("NVIDIA H100 80GB HBM3", 989e12)],
)
def test_a_device_is_known_by_its_kind(kind: str, flops: float) -> None:
    """As their makers state them. "TPU v5" is a v5p, and the beginning of a v5e's name."""
    chip = chip_of(kind)
    assert chip is not None
    assert chip.flops == flops
    assert chip_of("cpu") is None


@pytest.mark.gpu
def test_three_billion_parameters_on_one_card(tmp_path: Path) -> None:
    """Prompt 4,096, eight responses of 512 tokens, bfloat16."""
    command = [sys.executable, "-m", "experiments.benchmarks.phases", "--out", str(tmp_path), "--json"]
    done = subprocess.run([*command, str(tmp_path / "found.json")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert all(row["reached"] for row in found["goals"])
