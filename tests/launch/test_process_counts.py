"""Supervised fine-tuning on one, two and four processes, and on a number of them that changes."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.launch.delivered import delivered, seen
from tests.launch.launched_run import SFT, finish, launch, losses, rows_of, wait_for
from tests.training.shapes_run import make_world
from vrjax.records import load_records

STEPS, VIDEOS = 20, 16  # four batches an epoch
CHANGES = (
    "steps={steps}, batch=BatchConfig(videos=4, questions=4, max_programs=1), "
    "optimizer=OptimizerConfig(learning_rate=1e-4, schedule='constant', weight_decay=0.0, b2=0.99), "
    "mesh=MeshConfig({mesh})"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"), train=VIDEOS, val=1)


def run(world: Path, folder: Path, name: str, processes: int, mesh: str, hold: int = -1):
    hooks = f"from tests.launch.delivered import note_rows\nnote_rows(Path({str(folder / f'{name}_rows')!r}), {hold})\n"
    changes = CHANGES.format(mesh=mesh, steps=STEPS)
    return launch(SFT, world, folder / name, changes, processes=processes, hooks=hooks)


def run_with_unlike_video(world: Path, run: Path, processes: int, mesh: str, reader: int, *, fails: bool):
    """One epoch in which process `reader` reads one of the videos otherwise (see `read_otherwise`)."""
    record = load_records(world / "clips" / "train.json")[0].video_id
    hooks = f"from tests.launch.delivered import read_otherwise\nread_otherwise({reader}, {record!r}, fails={fails})\n"
    changes = CHANGES.format(mesh=mesh, steps=VIDEOS // 4) + ", input=InputConfig(max_damaged_share=0.1)"
    return record, launch(SFT, world, run, changes, processes=processes, hooks=hooks, restarts=0)


@pytest.fixture(scope="module")
def one(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on one process; other runs lie beside it, and share its compiled programs."""
    folder = tmp_path_factory.mktemp("sft")
    finish(run(world, folder, "one", 1, ""))
    return folder / "one"


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(("processes", "mesh"), [(2, "fsdp=2"), (4, "fsdp=2, tensor=2")])
def test_losses_are_those_of_one_process(world: Path, one: Path, processes: int, mesh: str) -> None:
    name = f"of_{processes}"
    finish(run(world, one.parent, name, processes, mesh))
    difference = np.abs(losses(one.parent / name) - losses(one)).max()
    print(f"{processes} processes ({mesh}): losses differ by {difference:.1e} at most")
    assert len(losses(one)) == STEPS
    assert difference < 1e-5


@pytest.mark.slow
@pytest.mark.alone
def test_a_video_that_one_of_its_readers_cannot_read_trains_nothing(world: Path, one: Path) -> None:
    """Two processes hold the same rows; the second runs out of time with one video."""
    record, together = run_with_unlike_video(world, one.parent / "late", 2, "tensor=2", 1, fails=True)
    finish(together)
    finish(run_with_unlike_video(world, one.parent / "unreadable", 1, "", -1, fails=True)[1])
    assert [row["record"] for row in rows_of(one.parent / "late", "damage.jsonl")] == [record]
    difference = np.abs(losses(one.parent / "late") - losses(one.parent / "unreadable")).max()
    assert difference < 1e-5
    assert np.abs(losses(one.parent / "late") - losses(one)[: VIDEOS // 4]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.alone
def test_processes_that_read_a_video_differently_stop(world: Path, one: Path) -> None:
    record, together = run_with_unlike_video(world, one.parent / "unlike", 2, "tensor=2", 1, fails=False)
    output = together.communicate(timeout=300)[0]
    assert together.returncode != 0
    assert f"record {record}: processes 0, 1 train on it together, but have read different things" in output


@pytest.mark.slow
@pytest.mark.alone
def test_process_count_may_change_from_start_to_start(world: Path, one: Path) -> None:
    """4, 2 and 4 processes: every video once an epoch, and the losses of one process that never stopped."""
    folder, name = one.parent, "elastic"
    for processes, mesh, hold in ((4, "fsdp=4", 5), (2, "fsdp=2", 10), (4, "fsdp=2, tensor=2", -1)):
        launched = run(world, folder, name, processes, mesh, hold)
        if hold >= 0:
            wait_for(folder / f"{name}_rows" / "process_0.jsonl", hold + 1, launched)
            launched.send_signal(signal.SIGTERM)
        finish(launched)
    batches, whole = delivered(folder / f"{name}_rows"), delivered(folder / "one_rows")
    counts = [batch["processes"] for batch in batches]
    print(f"processes of each batch: {counts}")
    assert sorted(counts[:6]) == [4] * 6  # batch 5 is the one that waited
    assert 2 in counts[6:12]
    assert counts[-1] == 4
    assert [batch["rows"] for batch in batches] == [batch["rows"] for batch in whole]
    found = seen(batches)
    assert found.keys() == {0, 1, 2, 3, 4}
    assert all(rows == Counter(found[0].keys()) and len(rows) == VIDEOS for rows in found.values())
    difference = np.abs(losses(folder / name) - losses(one)).max()
    print(f"4, 2, 4 processes: losses differ by {difference:.1e} at most")
    assert difference < 1e-5
