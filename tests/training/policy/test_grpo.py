"""Whole policy runs of a tiny model: what they leave behind, how they resume, and what stops them."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from tests.training.finished_run import parameters
from tests.training.policy_run import colours_reward, policy_config
from vrjax.errors import InputError, RunError, VrjaxError
from vrjax.generation import prefix_cache
from vrjax.loading import load, load_run, save
from vrjax.models.lora import LoraConfig
from vrjax.rewards import Reward
from vrjax.training.config import CheckpointConfig, ModelDirectory
from vrjax.training.policy.config import AlarmConfig, AuditConfig, RolloutConfig, ScoringConfig
from vrjax.training.policy_loss import PolicyLossConfig
from vrjax.training.policy_optimisation import grpo

pytestmark = pytest.mark.usefixtures("compiled")


def metrics_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_bits(a: Path, b: Path) -> None:
    mine, theirs = parameters(a), parameters(b)
    assert mine.keys() == theirs.keys()
    different = [name for name in mine if not np.array_equal(mine[name], theirs[name])]
    assert not different
    rows = [[{k: v for k, v in row.items() if "second" not in k and "util" not in k} for row in metrics_of(run)]
            for run in (a, b)]  # fmt: skip
    assert rows[0] == rows[1]


class TerminateAt:
    """`colours_reward`, which asks the process to end at its n-th call."""

    __module__, __qualname__ = colours_reward.__module__, colours_reward.__qualname__  # the same run to config.json

    def __init__(self, call: int) -> None:
        self.left = call

    def __call__(self, prompt, response, record):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return colours_reward(prompt, response, record)


@pytest.fixture(scope="module")
def whole(world: Path, tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Path:
    """Six uninterrupted steps."""
    run = tmp_path_factory.mktemp("grpo") / "whole"
    grpo(policy_config(world, run, page_every=3, keep_rollouts=True))
    return run


def test_it_learns_and_the_directory_explains_itself(whole: Path) -> None:
    rows = metrics_of(whole)
    assert [row["step"] for row in rows] == list(range(1, 7))
    assert rows[-1]["reward"] > rows[0]["reward"] + 0.1
    for row in rows:
        assert row["audit/most"] < 2e-5  # the sampler's log-probs are the update's
        assert row["reward"] == pytest.approx(row["reward/colours"])
        assert row["unscored"] == 0
        assert {
            "entropy",
            "kl",
            "clip_share",
            "response_length",
            "truncated",
            "equal_groups",
            "grad_norm",
        } <= row.keys()
        assert {f"tokens_per_second/{phase}" for phase in ("prefill", "decode", "update", "reference")} <= row.keys()
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-9)
    assert rows[-1]["kl"] > 0
    samples = [json.loads(line) for line in (whole / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 6 * 4
    assert all(len(sample["texts"]) == len(sample["rewards"]) == len(sample["advantages"]) == 4 for sample in samples)
    page = (whole / "groups" / "step_000003.html").read_text()
    assert page.count("<article") == 4 * 4
    assert page.count("<img") >= 4
    assert (whole / "config.json").is_file()
    assert json.loads((whole / "ended.json").read_text())["step"] == 6
    assert (whole / "ledger.jsonl").is_file()
    assert len(list((whole / "rollouts").glob("step_*.npz"))) == 6


@pytest.mark.slow
@pytest.mark.parametrize("call", [5, 37])
def test_sigterm_and_again_ends_at_the_same_bits(world, tmp_path, whole, call) -> None:
    """In the middle of a rollout, and while later groups are judged."""
    config = policy_config(world, tmp_path / "cut")
    first = grpo(replace(config, reward=TerminateAt(call)))
    assert first.ended == "terminated"
    assert not (tmp_path / "cut/ended.json").exists()
    assert first.step < 6
    assert grpo(config).step == 6
    assert_same_bits(tmp_path / "cut", whole)


@pytest.mark.slow
def test_a_checkpoint_behind_the_journal_replays_the_updates(world, tmp_path, whole) -> None:
    """Killed after step 5 with the last checkpoint at 4: step 5 is taken again from the journal, not sampled."""
    calls = []

    def counting(prompt, response, record):
        calls.append(prompt.name)
        if len(calls) > 5 * 16:
            return None  # no reward at all: the run dies in step 6
        return colours_reward(prompt, response, record)

    counting.__module__, counting.__qualname__ = colours_reward.__module__, colours_reward.__qualname__
    config = policy_config(world, tmp_path / "cut", checkpoints=CheckpointConfig(save_every=4),
                           scoring=ScoringConfig(attempts=1, max_unscored_share=1.0))  # fmt: skip
    whole_config = replace(config, run_dir=tmp_path / "whole")
    grpo(whole_config)
    with pytest.raises(VrjaxError):
        grpo(replace(config, reward=counting))
    calls.clear()

    def counted(prompt, response, record):
        calls.append(prompt.name)
        return colours_reward(prompt, response, record)

    counted.__module__, counted.__qualname__ = colours_reward.__module__, colours_reward.__qualname__
    grpo(replace(config, reward=counted))
    assert len(calls) == 16  # step 6 alone
    assert_same_bits(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
def test_lookahead_is_one_step_behind_and_resumes(world, tmp_path) -> None:
    config = policy_config(world, tmp_path / "whole", lookahead=1, steps=4, keep_rollouts=True)
    grpo(config)
    samples = [json.loads(line) for line in (tmp_path / "whole" / "samples.jsonl").read_text().splitlines()]
    ages = {row["step"]: row["step"] - 1 - row["sampled_at"] for row in samples}
    assert ages == {1: 0, 2: 1, 3: 1, 4: 1}
    assert all(row["audit/most"] < 2e-5 for row in metrics_of(tmp_path / "whole"))
    cut = replace(config, run_dir=tmp_path / "cut")
    assert grpo(replace(cut, reward=TerminateAt(40))).ended == "terminated"
    grpo(cut)
    assert_same_bits(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
def test_inner_epochs_clip_and_resume_between_updates(world, tmp_path) -> None:
    config = policy_config(world, tmp_path / "whole", inner_epochs=3, steps=3)
    grpo(config)
    rows = metrics_of(tmp_path / "whole")
    assert rows[-1]["clip_share"] > 0
    assert rows[-1]["audit/most"] < 2e-5
    cut = replace(config, run_dir=tmp_path / "cut")
    assert grpo(replace(cut, reward=TerminateAt(32))).ended == "terminated"  # the last judgement of step 2
    saved = sorted(int(path.name) for path in (tmp_path / "cut" / "checkpoints").iterdir() if path.name.isdigit())
    grpo(cut)
    assert saved[-1] in (3, 4)  # before the first update of step 2, or between it and the second
    assert_same_bits(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
def test_an_off_by_one_in_the_sampler_s_positions_stops_the_run(world, tmp_path, monkeypatch) -> None:
    honest = prefix_cache.prefill

    def shifted(*args, **kwargs):
        prefix = honest(*args, **kwargs)
        return replace(prefix, next_position=prefix.next_position + 1)

    monkeypatch.setattr("vrjax.generation.engine.prefill", shifted)
    jax.clear_caches()
    with pytest.raises(RunError, match=r"sampler and the update disagree .* kept in .*audit_step_1\.npz"):
        grpo(policy_config(world, tmp_path / "run"))
    kept = np.load(tmp_path / "run" / "audit_step_1.npz")
    assert {"tokens", "recorded", "targets", "positions"} <= set(kept.files)


@pytest.mark.slow
def test_truncated_log_probs_are_audited_apart(world, tmp_path) -> None:
    rollout = RolloutConfig(prompts=4, group=4, max_tokens=12, top_p=0.9, temperature=0.7, min_tokens=2)
    grpo(policy_config(world, tmp_path / "run", rollout=rollout, steps=2, audit=AuditConfig(processed_every=1)))
    for row in metrics_of(tmp_path / "run"):
        assert row["audit/most"] < 2e-5
        assert row["audit/processed/most"] < 2e-5


def test_equal_rewards_teach_exactly_nothing(world, tmp_path) -> None:
    config = policy_config(world, tmp_path / "run", reward=lambda *_: Reward(0.3), steps=2,
                           loss=PolicyLossConfig(kl_weight=0.0))  # fmt: skip
    grpo(config)
    assert all(row["equal_groups"] == 1.0 and row["grad_norm"] == 0.0 for row in metrics_of(tmp_path / "run"))


def test_unscored_responses_take_no_part(world, tmp_path) -> None:
    def moody(prompt, response, record):
        if len(response) % 2:
            raise TimeoutError("the judge sleeps")
        return colours_reward(prompt, response, record)

    scoring = ScoringConfig(attempts=1, max_unscored_share=1.0)
    grpo(policy_config(world, tmp_path / "run", reward=moody, steps=2, scoring=scoring))
    rows = metrics_of(tmp_path / "run")
    assert all(0 < row["unscored"] < 1 for row in rows)
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    for sample in samples:
        for reward, advantage in zip(sample["rewards"], sample["advantages"], strict=True):
            assert (reward["value"] is not None) or advantage == 0.0


@pytest.mark.slow
def test_groups_that_teach_nothing_are_drawn_again(world, tmp_path) -> None:
    def even_only(prompt, response, record):
        return colours_reward(prompt, response, record) if "touch" in prompt.question else Reward(0.0)

    grpo(policy_config(world, tmp_path / "plain", reward=even_only, steps=2))
    rollout = RolloutConfig(prompts=4, group=4, max_tokens=12, top_p=1.0, resample_rounds=4)
    grpo(policy_config(world, tmp_path / "again", reward=even_only, steps=2, rollout=rollout))
    plain, again = metrics_of(tmp_path / "plain"), metrics_of(tmp_path / "again")
    assert sum(row["equal_groups"] for row in again) < sum(row["equal_groups"] for row in plain)
    assert sum(row["dropped_groups"] for row in again) > 0


@pytest.mark.slow
def test_adapters_train_resume_and_merge_on_export(world, tmp_path) -> None:
    base = tmp_path / "base"
    first = policy_config(world, tmp_path / "first", steps=1)
    grpo(first)
    save(load_run(tmp_path / "first")[0], base)
    config = policy_config(world, tmp_path / "run", model=ModelDirectory(str(base)), lora=LoraConfig(rank=4), steps=4)
    grpo(replace(config, run_dir=tmp_path / "whole"))
    assert grpo(replace(config, reward=TerminateAt(20))).ended == "terminated"
    grpo(config)
    assert_same_bits(tmp_path / "run", tmp_path / "whole")
    rows = metrics_of(tmp_path / "run")
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-9)
    assert rows[-1]["kl"] > 0  # the base model is the reference
    adapted, loaded = load_run(tmp_path / "run")[0], load(base)
    changed = {".".join(map(str, path)) for (path, a), (_, b) in
               zip(nnx.to_flat_state(adapted.params), nnx.to_flat_state(loaded.params), strict=True)
               if not np.array_equal(a.get_value(), b.get_value())}  # fmt: skip
    assert changed == {f"text.layers.{name}" for name in ("q", "k", "v", "o", "gate", "up", "down")}


@pytest.mark.slow
def test_a_refreshed_reference_is_kept_with_the_checkpoint(world, tmp_path) -> None:
    config = policy_config(world, tmp_path / "whole", refresh_reference=2, steps=5)
    grpo(config)
    rows = metrics_of(tmp_path / "whole")
    assert rows[2]["kl"] == pytest.approx(0, abs=1e-9)  # refreshed after step 2
    assert rows[3]["kl"] > 0
    cut = replace(config, run_dir=tmp_path / "cut")
    grpo(replace(cut, reward=TerminateAt(52)))
    grpo(cut)
    assert_same_bits(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
def test_the_tower_may_be_trained(world, tmp_path) -> None:
    every = CheckpointConfig(save_every=1, keep_last=2)
    grpo(policy_config(world, tmp_path / "run", freeze_vision=False, steps=2, micro_batches=2, checkpoints=every))
    assert all(row["audit/most"] < 2e-5 for row in metrics_of(tmp_path / "run"))
    first, second = (load_run(tmp_path / "run", step=step)[0].params for step in (1, 2))
    for (path, a), (_, b) in zip(nnx.to_flat_state(first), nnx.to_flat_state(second), strict=True):
        if path[0] == "vision" and path[-1] in ("patch_embedding", "merger_out"):
            assert not np.array_equal(a.get_value(), b.get_value()), path


def test_a_collapse_is_named(world, tmp_path) -> None:
    alarms = AlarmConfig(window=2, shortest=100.0, stop=True)
    with pytest.raises(RunError, match="responses are down to"):
        grpo(policy_config(world, tmp_path / "run", alarms=alarms))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rollout": {"group": 1}}, "compared with the others"),
        ({"rollout": {"temperature": 0.0}}, "above 0"),
        ({"micro_batches": 3}, "does not divide into 3 micro-batches"),
        ({"lookahead": 1, "rollout": {"resample_rounds": 2}}, "lookahead to 0"),
        ({"reward": "nowhere.py:reward"}, "nowhere.py"),
    ],
)
def test_wrong_settings_are_named_before_the_model_loads(world, tmp_path, monkeypatch, change, message) -> None:
    monkeypatch.setattr("vrjax.training.policy.preparation.open_model", lambda *_: pytest.fail("the model was loaded"))

    def start() -> None:
        changes = dict(change)
        if "rollout" in changes:
            changes["rollout"] = replace(policy_config(world, tmp_path).rollout, **changes["rollout"])
        grpo(policy_config(world, tmp_path / "run", **changes))

    with pytest.raises(InputError, match=message):
        start()
