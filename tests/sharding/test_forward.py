import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_on_eight_devices(script: Path):
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"  # compiles in half the time
    env = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def report(request):
    return run_on_eight_devices(request.path.parent / "forward_on_eight_devices.py")


@pytest.fixture(scope="module")
def llama(request):
    return run_on_eight_devices(request.path.parent / "llama_on_eight_devices.py")


@pytest.mark.parametrize(("rules", "share"), [("update", 1 / 4), ("rollout", 1 / 2)])
def test_eight_devices_equal_one(report, rules, share):
    assert report["devices"] == 8
    assert report[rules]["share_of_gate"] == share
    assert report[rules]["vision"] <= 1e-5
    assert report[rules]["logits"] <= 1e-5


def test_activations_are_cut_as_far_as_they_divide(report):
    """(batch, length, mlp) over data 2, fsdp 2, tensor 2: the shape of one device's piece."""
    assert report["activations"] == {
        "(8, 8, 6)": [2, 8, 3],
        "(6, 8, 6)": [3, 8, 3],  # data divides 6, data and fsdp do not
        "(1, 8, 5)": [1, 8, 5],
    }


@pytest.mark.parametrize(
    ("rules", "shares"),
    [
        ("update", {"gate": 1 / 4, "k": 1 / 4, "embedding": 1 / 4}),
        ("rollout", {"gate": 1 / 2, "k": 1 / 2, "embedding": 1 / 2}),
    ],
)
def test_a_llama_on_eight_devices_equals_one(llama, rules, shares):
    """Its tied embedding is cut over the vocabulary, and is the head at the same time."""
    assert llama["devices"] == 8
    assert llama[rules]["shares"] == shares
    assert llama[rules]["logits"] <= 1e-5
    assert llama[rules]["same_tokens"]
    assert llama[rules]["log_probs"] <= 1e-4
