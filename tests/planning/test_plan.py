"""Plans against what runs compile and hold, and against counts by hand; on TPU slices where libtpu is installed."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from tests.training.policy_run import policy_config
from tests.training.shapes_run import tiny_config
from vrjax.errors import InputError
from vrjax.planning import AssumedVideo, make_plan, open_topology
from vrjax.planning.recorder import needed_bytes
from vrjax.records import load_records, save_records
from vrjax.training import BatchConfig, DatasetConfig, RolloutConfig, grpo, sft
from vrjax.training.experiment import load_experiment

ROOT = Path(__file__).parents[2]
CONFIG = "tests/planning/plan_config.py"
HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None


def vrjax_plan(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vrjax.cli", "plan", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=580,
        env={**os.environ, **environment},
    )  # fmt: skip


def ledger_of(run: Path) -> dict[tuple[str, str], str]:
    rows = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    return {(row["program"], row["shapes"]): row["program_hash"] for row in rows}


def hashes(plan) -> dict[tuple[str, str], str]:
    return {(program.name, program.key): program.hash for program in plan.programs}


def test_a_policy_run_compiles_what_was_planned(world: Path, tmp_path: Path) -> None:
    """Program by program, by the hash of what the compiler is given."""
    record = load_records(world / "clips" / "train.json")[0]
    twice = [record.questions[0].model_copy(update={"question_id": name}) for name in ("a", "b")]
    save_records(world / "clips" / "one.json", [record.model_copy(update={"questions": tuple(twice)})])
    # both prompts are as long as their bucket, and all responses as long as they can be
    rollout = RolloutConfig(prompts=2, group=2, max_tokens=16, min_tokens=16, top_p=0.9)
    config = policy_config(world, tmp_path / "run", steps=1, rollout=rollout, max_programs=1)
    config = replace(config, data=(DatasetConfig(world / "clips" / "one.json"),))
    grpo(config)
    ran, planned = ledger_of(tmp_path / "run"), hashes(make_plan(config, "cpu:1"))
    assert {name for name, _ in planned} == {
        "place", "reference_of", "spread", "vision", "unstack", "prefill", "start", "decode", "reference", "update",
    }  # fmt: skip
    assert {key: value for key, value in planned.items() if key[0] != "place"} == ran


@pytest.mark.slow
def test_a_supervised_run_compiles_what_was_planned(world: Path, tmp_path: Path) -> None:
    batch = BatchConfig(videos=2, questions=2, max_programs=1)
    config = tiny_config(world, tmp_path / "run", steps=1, batch=batch)
    config = replace(config, optimizer=replace(config.optimizer, warmup=0), validation=config.data)
    sft(config)
    assert ledger_of(tmp_path / "run") == {
        key: value for key, value in hashes(make_plan(config, "cpu:1")).items() if key[0] != "place"
    }


def test_memory_of_one_device_is_that_of_its_arrays(world: Path, tmp_path: Path) -> None:
    config = policy_config(world, tmp_path / "run", evaluate=lambda model, step, folder: {})
    plan = make_plan(config, "cpu:1", assumed=AssumedVideo(seconds=10.0, question=32))
    assert plan.fits
    weights = plan.parameters * 4 / 2**30
    assert plan.memory["weights for evaluate"] == pytest.approx(weights, abs=2e-6)
    assert any("what it compiles is not planned" in note for note in plan.notes)
    held = plan.memory["trained parameters"] + plan.memory["frozen parameters"]
    assert held == pytest.approx(weights, abs=2e-6)
    update = next(program for program in plan.programs if program.name == "update")
    resident = sum(update.resident.values())
    assert update.peak == update.arguments + update.outputs - update.aliased + update.temporary + resident
    assert set(update.resident) == {"reference policy", "vision features"}


@pytest.mark.slow
def test_eight_fake_devices(tmp_path: Path) -> None:
    """data 2, fsdp 2, tensor 2: an eighth of the work each, and gradients that are summed over the rows' devices."""
    fields = ["--mesh.data", "2", "--mesh.fsdp", "2", "--mesh.tensor", "2"]
    picture = tmp_path / "plan.svg"
    eight = vrjax_plan(CONFIG, "--topology", "cpu:8", *fields, "--json", "--picture", str(picture))
    assert eight.returncode == 0, eight.stderr[-3000:]
    one = json.loads(vrjax_plan(CONFIG, "--topology", "cpu:1", "--json").stdout)
    eight = json.loads(eight.stdout)
    programs = [{program["program"]: program for program in plan["programs"]} for plan in (one, eight)]
    assert eight["fits"]
    assert eight["mesh"] == {"data": 2, "fsdp": 2, "seq": 1, "tensor": 2}
    assert programs[1]["update"]["flops"] == pytest.approx(programs[0]["update"]["flops"] / 8)
    assert not programs[0]["update"]["collectives"]
    assert programs[1]["update"]["collectives"]["all-reduce"]["bytes"] > 0
    assert eight["memory_gib"]["trained parameters"] < 0.3 * one["memory_gib"]["trained parameters"]
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topology", "cpu:4", "--mesh.tensor", "3"], "the sizes ask for a multiple of 3 devices, but there are 4"),
        (["--topology", "cpu:8", "--mesh.tensor", "8"], "4 heads  not divisible by 8 (tensor 8)"),
        (["--topology", "cpu:8"], "does not divide into 1 micro-batches over data × fsdp = 8"),
    ],
)
def test_what_cannot_be_planned_is_named_first(arguments: list[str], says: str) -> None:
    found = vrjax_plan(CONFIG, *arguments)
    assert found.returncode == 2, found.stderr[-2000:]
    assert says in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("v9z:2x2", "topology 'v9z:2x2' is not known"),
        ("v5e", "topology 'v5e' is not known"),
        ("cpu:0", "give a number of devices"),
        ("v5e:2x2x2", "a v5e slice has 2 sizes" if HAS_LIBTPU else "libtpu is not installed.*vrjax.plan"),
    ],
)
def test_a_topology_that_is_none_is_named(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        open_topology(name)


def test_a_video_that_leaves_no_room_is_named() -> None:
    config = load_experiment(ROOT / CONFIG)
    with pytest.raises(InputError, match="rows of 40 tokens leave 8 for it beside the responses"):
        make_plan(replace(config, max_length=40), "cpu:1")


def test_more_fake_devices_than_this_process_has() -> None:
    with pytest.raises(InputError, match="XLA_FLAGS=--xla_force_host_platform_device_count=512"):
        open_topology("cpu:512")
    assert len(open_topology("cpu:1").devices) == 1
    assert jax.devices("cpu")[0] in open_topology("cpu:1").devices


@pytest.mark.parametrize(
    ("message", "gib"),
    [
        ("XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 16.52G of 15.75G hbm.", 16.52),
        ("Ran out of memory on HBM, the total memory required for HLO temporaries (25.49G) exceeds available HBM "
         "(15.75G).", 25.49),
        ("RESOURCE_EXHAUSTED: something else", None),
    ],
)  # fmt: skip
def test_what_a_compiler_says_that_it_needs(message: str, gib: float | None) -> None:
    found = needed_bytes(message)
    assert found == (None if gib is None else pytest.approx(gib * 2**30))
