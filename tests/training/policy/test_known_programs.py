"""What a policy run may compile after its first step, and what it says or does about anything else."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.training.policy_run import policy_config
from vrjax.errors import RunError
from vrjax.ledger import Ledger
from vrjax.run_directory import RunDirectory
from vrjax.training.buckets import RowSize
from vrjax.training.logging import RunLog, enter_program
from vrjax.training.policy.config import RolloutConfig
from vrjax.training.policy.known_programs import group_sizes, reachable_buckets
from vrjax.training.policy_optimisation import grpo

pytestmark = pytest.mark.usefixtures("compiled")
ROLLOUT = RolloutConfig(prompts=1, group=2, max_tokens=40, top_p=1.0)


def ledger_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_other_lengths_are_expected_in_later_steps(world, tmp_path) -> None:
    """One prompt a step: prompts and responses of later steps have other lengths, all of them known."""
    grpo(policy_config(world, tmp_path / "run", steps=3, rollout=ROLLOUT, recompilation="stop"))
    ledger = ledger_of(tmp_path / "run")
    assert len([row for row in ledger if row["program"] == "update"]) > 1
    assert not any(row["after_warm_up"] for row in ledger)


def test_what_was_not_known_stops_a_run_that_asks_for_it(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vrjax.training.policy_optimisation.known_programs", lambda *_: frozenset())
    config = policy_config(world, tmp_path / "run", steps=5, rollout=ROLLOUT, recompilation="stop")
    with pytest.raises(RunError, match=r"was about to be compiled again after warm-up.*vrjax buckets"):
        grpo(config)


def test_what_was_not_known_is_said(tmp_path, capsys) -> None:
    run, double = RunDirectory(tmp_path), jax.jit(lambda x: 2 * x)
    ledger = Ledger("record", partial(enter_program, run, RunLog(run, tensorboard=False)))
    ledger.run("double", 1, double, np.zeros(1))
    ledger.freeze({("double", 2)})
    ledger.run("double", 2, double, np.zeros(2))
    assert "after warm-up" not in capsys.readouterr().err
    ledger.run("double", 3, double, np.zeros(3))
    assert [row["after_warm_up"] for row in ledger_of(tmp_path)] == [False, False, True]
    said = capsys.readouterr().err.replace("\n", " ")
    assert "double was compiled after warm-up" in said
    assert "See `vrjax buckets`" in said


def test_every_level_of_responses_has_a_size(world, tmp_path) -> None:
    """4 responses of up to 64 tokens: shares of 256 predicted tokens, behind 136 - 64 = 72 (up to 80) of a prompt."""
    config = policy_config(world, tmp_path, rollout=RolloutConfig(prompts=4, group=4, max_tokens=64))
    sizes = group_sizes(config, RowSize(136, 64, 2, 16, 1), 4)
    assert [size.targets for size in sizes] == [16, 32, 48, 64, 96, 128, 192, 256]
    assert {size.length - size.targets for size in sizes} == {80}
    assert [size.targets for size in group_sizes(config, RowSize(136, 64, 2, 16, 1), 4, every_size=False)] == [256]


def test_groups_drawn_again_may_join_buckets(world, tmp_path) -> None:
    wide, long = RowSize(100, 10, 8, 64, 4), RowSize(200, 10, 2, 64, 4)
    config = policy_config(world, tmp_path)
    assert reachable_buckets(config, (wide, long)) == {wide, long}
    again = replace(config, rollout=replace(config.rollout, resample_rounds=2))
    assert reachable_buckets(again, (wide, long)) == {wide, long, RowSize(200, 10, 8, 64, 4)}
