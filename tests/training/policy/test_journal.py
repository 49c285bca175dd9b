"""A journal that one number of processes wrote and another reads; who has which prompt is written down by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.generation.requests import Sample
from vrjax.rewards import Reward
from vrjax.training.policy.groups import Group
from vrjax.training.policy.journal import Journal
from vrjax.training.policy.prompts import PromptItem
from vrjax.training.processes import own_rows


def item_of(name: str) -> PromptItem:
    return cast(PromptItem, SimpleNamespace(name=name))


def group(name: str) -> Group:
    """Two responses, of 1 and 2 tokens, with numbers that only this prompt has."""
    number = int(name[1:])
    samples = tuple(
        Sample(f"{name} {n}", np.full(n, number), np.full(n, -number, np.float32), np.full(n, 0.5, np.float32), True)
        for n in (1, 2)
    )
    return Group(item_of(name), samples, 3, (Reward(float(number)), Reward(None)))


def write(folder: Path, prompts: list[list[str]], step: int = 7, **note: Any) -> None:
    """prompts: of each process."""
    for process, names in enumerate(prompts):
        told = {"iterator": {"next": 32}, "damaged": [[f"bad{process}", "cut"]], "dropped": 1, **note}
        Journal(folder, process, len(prompts)).write(step, [group(name) for name in names], told)


def names(folder: Path, processes: int, step: int = 7) -> list[list[str]]:
    found = []
    for process in range(processes):
        journal = Journal(folder, process, processes)
        assert journal.has(step)
        found.append([each.item.name for each in journal.read(step, item_of)[0]])
    return found


FOUR = [["q0", "q4"], ["q1", "q5"], ["q2", "q6"], ["q3", "q7"]]  # a batch of eight, dealt out to four


def test_any_number_of_processes_reads_what_four_wrote(tmp_path: Path) -> None:
    write(tmp_path, FOUR)
    assert names(tmp_path, 4) == FOUR
    assert names(tmp_path, 2) == [["q0", "q2", "q4", "q6"], ["q1", "q3", "q5", "q7"]]
    assert names(tmp_path, 1) == [["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"]]
    assert names(tmp_path, 8) == [["q0"], ["q1"], ["q2"], ["q3"], ["q4"], ["q5"], ["q6"], ["q7"]]


def test_groups_and_notes_come_back_whole(tmp_path: Path) -> None:
    write(tmp_path, FOUR)
    groups, note = Journal(tmp_path, 1, 2).read(7, item_of)
    assert [each.sampled_at for each in groups] == [3, 3, 3, 3]
    assert groups[1].samples[1].tokens.tolist() == [3, 3]
    assert groups[1].samples[1].raw_log_probs.tolist() == [-3, -3]
    assert [reward.value for reward in groups[1].rewards] == [3.0, None]
    assert note["iterator"] == {"next": 32}
    both = [Journal(tmp_path, process, 2).read(7, item_of)[1] for process in range(2)]
    assert sorted(name for each in both for name, _ in each["damaged"]) == ["bad0", "bad1", "bad2", "bad3"]
    assert sum(each["dropped"] for each in both) == 4


def test_a_process_with_fewer_groups_leaves_none_out(tmp_path: Path) -> None:
    """Process 1's second video cannot be read."""
    write(tmp_path, [["q0", "q4"], ["q1"], ["q2", "q6"], ["q3", "q7"]])
    assert names(tmp_path, 2) == [["q0", "q2", "q4", "q7"], ["q1", "q3", "q6"]]


def test_files_left_over_from_more_processes_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, [["q8"], ["q9"], ["q10"], ["q11"]])
    write(tmp_path, [["q0", "q2"], ["q1", "q3"]])
    assert names(tmp_path, 2) == [["q0", "q2"], ["q1", "q3"]]
    assert names(tmp_path, 4) == [["q0"], ["q1"], ["q2"], ["q3"]]


def test_a_step_that_not_all_have_written_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, FOUR)
    Journal(tmp_path, 2, 4).path(7).unlink()
    assert not any(Journal(tmp_path, process, count).has(7) for count in (1, 2, 4) for process in range(count))
    write(tmp_path, [["q0", "q2"], ["q1", "q3"]])
    Journal(tmp_path, 1, 4).write(7, [], {})  # four began to write over what two had
    assert not Journal(tmp_path, 0, 2).has(7)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, FOUR)
    file = Journal(tmp_path, 3).path(7)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"p3\.npz: cannot be read"):
        Journal(tmp_path, 0, 2).has(7)


def test_pruning_leaves_nothing_of_a_larger_number(tmp_path: Path) -> None:
    write(tmp_path, FOUR, step=7)
    write(tmp_path, FOUR, step=8)
    for process in range(2):
        Journal(tmp_path, process, 2).prune(7)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"step_000008.p{n}.npz" for n in range(4)]


def test_rows_of_one_process_are_dealt_out_as_prompts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four prompts in two rows each, over two processes."""
    monkeypatch.setattr("jax.process_count", lambda: 2)
    monkeypatch.setattr("jax.process_index", lambda: 1)
    assert own_rows(["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"], 2) == ["1a", "1b", "3a", "3b"]
