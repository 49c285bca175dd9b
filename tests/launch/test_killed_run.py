"""A run of two processes, one of which is killed: the other ends, the launcher starts both again, nothing is lost."""

import signal
from pathlib import Path

import pytest

from tests.launch.launched_run import SFT, finish, launch, process_of, seconds_to_end, wait_for
from tests.training.finished_run import largest_difference
from tests.training.shapes_run import make_world

CHANGES = "steps=60, mesh=MeshConfig(fsdp=2), checkpoints=CheckpointConfig(save_every=5)"


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("number", [1, 0])
def test_a_killed_process_ends_the_others_and_all_go_on(tmp_path: Path, number: int) -> None:
    world = make_world(tmp_path / "world", train=8, val=1)
    finish(launch(SFT, world, tmp_path / "whole", CHANGES, processes=2))
    launched = launch(SFT, world, tmp_path / "killed", CHANGES, processes=2)
    wait_for(tmp_path / "killed" / "metrics.jsonl", 8, launched)
    process_of(launched, number).send_signal(signal.SIGKILL)
    output = finish(launched)
    print(output)
    assert seconds_to_end(output, number) < 60
    assert largest_difference(tmp_path / "killed", tmp_path / "whole") == 0.0
