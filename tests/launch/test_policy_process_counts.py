"""GRPO on one, two and four processes, on a number of them that changes, and with one of four killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.launch.launched_run import (
    GRPO,
    finish,
    kill_all,
    launch,
    losses,
    process_of,
    rows_of,
    seconds_to_end,
    wait_for,
)
from tests.training.finished_run import largest_difference
from tests.training.shapes_run import make_world

STEPS, VIDEOS = 20, 10  # of four questions each: ten steps an epoch
CHANGES = (
    f"steps={STEPS}, max_programs=1, keep_rollouts=True, checkpoints=CheckpointConfig(save_every=4), "
    "optimizer=OptimizerConfig(learning_rate=1e-4, schedule='constant', weight_decay=0.0, b2=0.99), "
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), train=VIDEOS, val=1)


@pytest.fixture(scope="module")
def one(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on one process; other runs lie beside it, and share its compiled programs."""
    folder = tmp_path_factory.mktemp("grpo")
    finish(launch(GRPO, world, folder / "one", CHANGES, processes=1))
    return folder / "one"


def difference_of_losses(run: Path, one: Path) -> float:
    difference = float(np.abs(losses(run) - losses(one)).max())
    print(f"{run.name}: losses differ by {difference:.1e} at most, parameters by {largest_difference(run, one):.1e}")
    return difference


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(("processes", "mesh"), [(2, "fsdp=2, tensor=2"), (4, "data=2, fsdp=2, tensor=2")])
def test_recorded_responses_give_the_losses_of_one_process(world: Path, one: Path, processes: int, mesh: str) -> None:
    run = one.parent / f"of_{processes}"
    changes = f"{CHANGES} mesh=MeshConfig({mesh}), replay=Path({str(one / 'rollouts')!r})"
    finish(launch(GRPO, world, run, changes, processes=processes, devices=2))
    assert len(losses(one)) == STEPS
    assert difference_of_losses(run, one) < 1e-5
    assert largest_difference(run, one) < 1e-5


@pytest.mark.slow
@pytest.mark.alone
def test_process_count_may_change_from_start_to_start(world: Path, one: Path) -> None:
    """Four processes, all killed; two, asked to end; four. Every question is asked once an epoch, as one process does.

    Four record step 5 and are killed in step 6, the last checkpoint being that of step 4: two take step 5 from what
    four have recorded.
    """
    run, held = one.parent / "elastic", one.parent / "held"
    for processes, hold in ((4, 5), (2, 11), (4, -1)):
        hooks = f"from tests.launch.delivered import hold_rollout\nhold_rollout(Path({str(held)!r}), {hold})\n"
        launched = launch(GRPO, world, run, f"{CHANGES} mesh=MeshConfig(fsdp={processes})",
                          processes=processes, hooks=hooks)  # fmt: skip
        if hold >= 0:
            wait_for(held / f"held_{hold}", 1, launched)
        if processes == 4 and hold >= 0:
            kill_all(launched)
            continue
        if hold >= 0:
            launched.send_signal(signal.SIGTERM)
        finish(launched)
    recorded = [np.load(file)["processes"].item() for file in sorted((run / "rollouts").glob("step_*.p0.npz"))]
    print(f"processes that recorded each step: {recorded}")
    assert recorded[4:6] == [4, 2]
    assert recorded[-1] == 4

    mine, theirs = rows_of(run, "samples.jsonl"), rows_of(one, "samples.jsonl")
    videos = json.loads((world / "clips" / "train.json").read_text())
    questions = 4 * len(videos)
    assert questions == 4 * VIDEOS
    for epoch in range(2):
        asked = Counter(row["name"] for row in mine if epoch * 10 < row["step"] <= (epoch + 1) * 10)
        assert len(asked) == questions
        assert set(asked.values()) == {1}
    assert [(row["step"], row["name"], row["texts"]) for row in mine] == [
        (row["step"], row["name"], row["texts"]) for row in theirs
    ]
    assert difference_of_losses(run, one) < 1e-5


@pytest.mark.slow
@pytest.mark.alone
def test_a_killed_process_of_four_ends_the_others_and_all_go_on(world: Path, one: Path) -> None:
    changes = f"{CHANGES} mesh=MeshConfig(fsdp=4)"
    whole, run = one.parent / "whole", one.parent / "killed"
    finish(launch(GRPO, world, whole, changes, processes=4))
    launched = launch(GRPO, world, run, changes, processes=4)
    wait_for(run / "metrics.jsonl", 7, launched)
    process_of(launched, 2).send_signal(signal.SIGKILL)
    output = finish(launched)
    print(output)
    assert seconds_to_end(output, 2) < 60
    assert largest_difference(run, whole) == 0.0
    assert losses(run).tolist() == losses(whole).tolist()
    assert difference_of_losses(whole, one) < 1e-5
