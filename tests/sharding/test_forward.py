import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrjax.errors import InputError, RunError
from vrjax.models import tree_attention_tpu
from vrjax.models.attention import plain_attention
from vrjax.models.decoder import unsharded
from vrjax.sharding import RowAttention, check_form, make_mesh, make_row_attention, placement_of, update_rules

ROOT = Path(__file__).parents[2]


def run_on_devices(script: Path, count: int, *arguments: str, timeout: float = 300):
    flags = f"--xla_force_host_platform_device_count={count} --xla_backend_optimization_level=0"  # compiles sooner
    env = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=timeout, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def report(request):
    return run_on_devices(request.path.parent / "forward_on_eight_devices.py", 8)


@pytest.fixture(scope="module")
def llama(request):
    return run_on_devices(request.path.parent / "llama_on_eight_devices.py", 8)


def test_an_engine_on_four_devices_answers_as_on_one(request, tmp_path):
    """The model lies where `--devices` says, and the engine goes by that: samples, beams and readings are the same."""
    report = run_on_devices(request.path.parent / "engine_on_four_devices.py", 4, str(tmp_path))
    alone, together = report["alone"], report["together"]
    assert (alone["devices"], together["devices"]) == (1, 4)
    assert (alone["share"], together["share"]) == (1, 1 / 2)
    for tokens in ("samples", "samples of kept prefixes", "beams"):
        assert alone[tokens] == together[tokens]
    for numbers in ("log_probs", "log_probs of kept prefixes", "scores", "readings"):
        one, other = (np.concatenate([np.ravel(row) for row in found[numbers]]) for found in (alone, together))
        np.testing.assert_allclose(one, other, atol=1e-5)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "shares"),
    [
        ("update", {"gate": 1 / 4, "k": 1 / 4, "embedding": 1 / 4}),
        ("rollout", {"gate": 1 / 2, "k": 1 / 2, "embedding": 1 / 2}),
        ("prompts cut by tokens", {"gate": 1, "k": 1, "embedding": 1}),
    ],
)
def test_a_llama_on_eight_devices_equals_one(llama, rules, shares):
    """Its tied embedding is cut over the vocabulary, and is the head at the same time."""
    assert llama["devices"] == 8
    assert llama[rules]["shares"] == shares
    assert llama[rules]["logits"] <= 1e-5
    assert llama[rules]["same_tokens"]
    assert llama[rules]["log_probs"] <= 1e-4


@pytest.mark.slow
def test_attention_on_meshes_equals_one_device(request):
    """Rows, heads and tokens cut; the plain form, and the TPU's kernels interpreted. Output and gradients."""
    report = run_on_devices(request.path.parent / "attention_on_eight_devices.py", 8)
    assert len(report) == 9
    for name, differences in report.items():
        assert max(differences) <= 1e-5, name


@pytest.mark.slow
def test_a_long_row_over_four_devices(request):
    """32,768 tokens, two layers, the tokens cut over four devices: a third of the memory on each, or less."""
    report = run_on_devices(request.path.parent / "long_row_on_four_devices.py", 4, timeout=900)
    print(report)
    assert report["spread"] > 0.1
    assert report["log_probs"] <= 1e-4
    assert report["gradients"] <= 1e-4
    one, four = report["megabytes"]
    assert one / four >= 3


def test_heads_that_do_not_divide_are_named():
    mesh = make_mesh(1, 1, 1, 1)
    shape = dict(mesh.shape) | {"seq": 4}
    with pytest.raises(InputError, match="attention cuts 6 heads, 3 to a key head, over seq 4"):
        RowAttention(SimpleNamespace(shape=shape), update_rules(), 6, 2, "plain")  # type: ignore[arg-type]


def test_a_form_that_the_devices_do_not_have_is_named():
    with pytest.raises(InputError, match="cpu devices have no form 'tpu' for float32"):
        make_row_attention(make_mesh(), update_rules(), SimpleNamespace(heads=2, kv_heads=1), jnp.float32, "tpu")  # type: ignore[arg-type]


def test_a_fused_form_is_held_against_the_plain_one(monkeypatch):
    """Before a run's first step, on its own devices: kernels interpreted here pass, a kernel that is off does not."""
    fused = RowAttention(make_mesh(), update_rules(), 4, 2, "tpu", interpret=True)
    assert 0 < check_form(fused, 16, jnp.float32) <= 1e-5
    assert check_form(replace(fused, form="plain"), 16) == 0
    scores = tree_attention_tpu._scores
    monkeypatch.setattr(tree_attention_tpu, "_scores", lambda *arguments: 1.1 * scores(*arguments))
    with pytest.raises(RunError, match=r"the tpu form of attention differs from the plain one by .* Set attention to"):
        check_form(fused, 16, jnp.float32)


def test_a_fused_form_that_does_not_run_is_said():
    """A kernel for TPUs that is not interpreted does not compile for a CPU, as another driver may not take it."""
    fused = RowAttention(make_mesh(), update_rules(), 4, 2, "tpu")
    with pytest.raises(RunError, match=r"the tpu form of attention does not run on these devices \(.*VRJAX_ATTENTION"):
        check_form(fused, 16)


def test_placement_goes_by_the_devices_of_the_weights(monkeypatch):
    config = SimpleNamespace(heads=2, kv_heads=1, head_size=8)
    placed = placement_of({"w": jnp.ones(2)}, config)  # type: ignore[arg-type]
    assert placed.shard is unsharded
    assert isinstance(placed.attention, RowAttention)
    assert placed.attention.mesh.devices.tolist() == [[[[jax.devices()[0]]]]]
    assert placement_of({"w": np.ones(2)}, config) == (unsharded, plain_attention)  # type: ignore[arg-type]
    monkeypatch.setenv("VRJAX_ATTENTION", "fast")
    with pytest.raises(InputError, match="VRJAX_ATTENTION=fast: give auto or plain"):
        placement_of({"w": jnp.ones(2)}, config)  # type: ignore[arg-type]
