"""The demo from end to end, as `make demo` runs it, with the numbers that it must reach."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.demo import missed_gates

ROOT = Path(__file__).parent.parent
GOOD = {"format": 1.0, "answer": 0.5, "soft_eg_f1": 0.6, "eg_f1_0.3_0.5": 0.9}
POOR = {"format": 1.0, "answer": 0.2, "soft_eg_f1": 0.1, "eg_f1_0.3_0.5": 0.2}


def stages(**changes: dict[str, float]) -> dict[str, dict[str, float]]:
    names = {"sft": GOOD, "sft/question_only": POOR, "sft/blank": POOR, "sft/mismatched": POOR}
    return {name: {**row, **changes.get(name.removeprefix("sft/"), {})} for name, row in names.items()}


def test_gates_hold_for_a_model_that_looks_and_fail_for_one_that_does_not():
    assert missed_gates(stages()) == []
    assert len(missed_gates(stages(sft=POOR))) == 3 + 2 + 6
    assert missed_gates(stages(sft={"format": 0.98})) == ["format 0.980 < 0.99"]
    assert len(missed_gates(stages(mismatched={"soft_eg_f1": 0.25}))) == 1
    assert len(missed_gates(stages(question_only={"answer": 0.36}))) == 1


@pytest.mark.demo
def test_the_demo_reaches_its_numbers(tmp_path):
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "experiments.demo", "--out", str(tmp_path / "demo")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    minutes = (time.monotonic() - start) / 60
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    summary = json.loads((tmp_path / "demo/summary.json").read_text())
    assert summary["held_out"] == {"clips": 240, "questions": 960}
    assert missed_gates(summary["stages"]) == []
    page = (tmp_path / "demo/report.html").read_text()
    assert page.count("<article") == 12
    print(f"{minutes:.1f} minutes, {summary['stages']['sft']}")
