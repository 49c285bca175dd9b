"""Plans for TPU slices that are not here, compiled by libtpu: installed, or its library named by VRJAX_LIBTPU.

Each runs in a process of its own, since a process in which libtpu is loaded looks for a TPU.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = "tests/planning/plan_config.py"
LIBRARY = Path(os.environ.get("VRJAX_LIBTPU") or "nowhere")
HERE = importlib.util.find_spec("libtpu") is not None or LIBRARY.is_file()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HERE, reason="libtpu is not installed (pip install 'vrjax[plan]')"),
]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {"TPU_LIBRARY_PATH": str(LIBRARY.resolve())} if LIBRARY.is_file() else {}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=580,
        env={**os.environ, **known, **environment},
    )  # fmt: skip


def vrjax_plan(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("vrjax.cli", "plan", *arguments, **environment)


@pytest.mark.parametrize(
    ("topology", "sizes"),
    [("v5e:2x2", {"PLAN_WIDTH": "512", "PLAN_LAYERS": "8"}), ("v6e:2x2", {}), ("v5p:2x2x1", {})],
)
def test_a_slice_that_is_not_here(topology: str, sizes: dict[str, str]) -> None:
    found = vrjax_plan(CONFIG, "--topology", topology, "--mesh.tensor", "2", "--json", **sizes)
    assert found.returncode == 0, found.stderr[-3000:]
    plan = json.loads(found.stdout)
    assert plan["fits"]
    assert plan["devices"] == 4
    assert plan["step_s"] > 0
    programs = {program["program"]: program for program in plan["programs"]}
    assert all(program["peak_gib"] < plan["chip_gib"] for program in programs.values())
    if sizes:  # smaller weights stay on the chip
        # A step of decoding reads the sampling weights once, and little else, whatever loops and fusions it is made of.
        weights, chunk = plan["memory_gib"]["sampling weights"] * 2**30, 32
        assert 0.7 * weights <= programs["decode"]["bytes"] / chunk <= 1.5 * weights


def test_too_little_memory_is_an_answer() -> None:
    """7 billion parameters with their moments on four chips of 16 GB: 87 GB of arrays alone."""
    found = vrjax_plan(CONFIG, "--topology", "v5e:2x2", "--json", PLAN_WIDTH="8192", PLAN_LAYERS="12")
    assert found.returncode == 1, found.stderr[-3000:]
    plan = json.loads(found.stdout)
    assert not plan["fits"]
    assert plan["peak_gib"] > plan["chip_gib"] > 15
    assert any("more than a TPU v5e has" in line for line in plan["advice"])
    assert any("a larger slice" in line for line in plan["advice"])


def test_a_slice_that_does_not_exist() -> None:
    found = vrjax_plan(CONFIG, "--topology", "v5e:3x5")
    assert found.returncode == 2
    assert "there is no such slice" in found.stderr


@pytest.mark.parametrize(
    ("slice_", "length", "heads", "key_heads", "size", "trunk", "branch"),
    [
        ("v5e:2x2", 15_232, 7, 1, 128, 7168, 1024),  # a quarter of a 7B's heads, the paper's rows
        ("v5p:2x2x1", 102_400, 8, 1, 128, 0, 0),
        ("v6e:2x2", 1024, 4, 2, 32, 0, 0),
    ],
)
def test_attention_kernels_compile(
    slice_: str, length: int, heads: int, key_heads: int, size: int, trunk: int, branch: int
) -> None:
    """Forward and gradients, and nothing of the size of the scores among what they need."""
    sizes = length, heads, key_heads, size, trunk, branch
    found = run("tests.planning.compile_tree_attention", slice_, *map(str, sizes))
    assert found.returncode == 0, found.stderr[-3000:]
    report = json.loads(found.stdout.splitlines()[-1])
    assert set(report["kernels"]) == {"tree_attention", "tree_attention_of_queries", "tree_attention_of_keys"}
    assert report["peak_bytes"] < 0.2 * 2 * heads * length**2 or length < 2000  # scores in bfloat16
