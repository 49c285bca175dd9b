"""The update by shared prefix against the plain one: every response with its prompt in a row of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.training.policy_run import policy_config
from vrjax.generation.prompts import ChatTokenizer, Vision, build_prompt
from vrjax.generation.requests import Sample
from vrjax.models.attention import Reach, Visibility, row_attention
from vrjax.models.qwen2_5_vl import Qwen2_5VL
from vrjax.records import Question, VideoRecord
from vrjax.rewards import Reward
from vrjax.training.advantages import group_advantages
from vrjax.training.forward import ForwardOptions
from vrjax.training.policy.groups import Group, reward_matrix
from vrjax.training.policy.packing import (
    NO_ROW,
    GroupRows,
    GroupSize,
    feature_places,
    judge,
    pack_part,
    pack_targets,
    recorded,
    split_groups,
    stack_features,
    token_places,
)
from vrjax.training.policy.programs import Policy, make_log_probs, make_update
from vrjax.training.policy.prompts import PromptItem
from vrjax.training.policy_loss import Counted, PolicyLossConfig
from vrjax.training.rows import stack_rows
from vrjax.training.state import OptimizerConfig, TrainState, make_optimizer, split_parameters

GROUP, TEMPERATURE = 4, 0.7
LOSS = PolicyLossConfig(kl_weight=0.05)


@pytest.fixture(scope="module")
def model(world: Path):
    config = policy_config(world, world / "unused").model.config
    graph, params = nnx.split(Qwen2_5VL(config, nnx.Rngs(3)))
    # Sharp attention and live biases: default weights hide faults.
    keys = iter(jax.random.split(jax.random.key(5), 200))
    params = jax.tree.map(lambda x: x * 1.3 + 0.1 * jax.random.normal(next(keys), x.shape), params)
    return config, graph, params, ChatTokenizer.load(world / "tokenizer")


@pytest.fixture(scope="module")
def groups(model) -> list[Group]:
    """Three prompts (a video, two images, text alone) with ragged responses; one response unscored."""
    config, _, _, chat = model
    rng = np.random.default_rng(0)

    def look(grid, seconds, key):
        return Vision(rng.integers(0, 255, (grid[0] * grid[1] * grid[2], 1176), np.uint8), grid, seconds, key)

    shown = [[look((5, 4, 4), 1.0, "video")], [look((1, 4, 8), None, "a"), look((1, 4, 4), None, "b")], []]
    found = []
    for number, vision in enumerate(shown):
        prompt = build_prompt(chat, config, "Which shape slides?", vision, name=f"v/q{number}")
        question = Question(question_id=f"q{number}", question="Which shape slides?")
        record = VideoRecord(video_id="v", video_path="v.mp4", duration=5.0, questions=(question,))
        item = PromptItem(record, question, replace(prompt, trunk=len(prompt)))
        samples = []
        for length in rng.integers(1, 14, GROUP):
            tokens = rng.integers(20, config.text.vocabulary - 8, length).astype(np.int32)
            zeros = np.zeros(length, np.float32)
            samples.append(Sample("", tokens, zeros, zeros, True))
        rewards = [Reward(float(value)) for value in rng.random(GROUP)]
        if number == 1:
            rewards[2] = Reward.unscored("the judge did not answer")
        found.append(Group(item, tuple(samples), 0, tuple(rewards)))
    return found


def rows_of(model, groups, split: int, features):
    """Rows and targets with `split` rows a group; GROUP rows is the plain form."""
    config, _, _, chat = model
    parts = split_groups(groups, split)
    size = NO_ROW
    for part in parts:
        size = size.joined(part.size(4))
    size = replace(size, length=size.length + 40, targets=size.targets + 9) if split == 1 else size
    places = [feature_places(part, 4) for part in parts]
    text = stack_rows([pack_part(part, at, size, chat.pad_id) for part, at in zip(parts, places, strict=True)])
    held = stack_features([[features[item.key] for item in part.group.item.prompt.vision] for part in parts], size,
                          config.text.width)  # fmt: skip
    advantages = group_advantages(reward_matrix(groups, GROUP))
    lengths = [group.lengths for group in groups]
    counted = [[reward.value is not None for reward in group.rewards] for group in groups]
    judged = judge(lengths, counted, advantages, Counted.of(lengths, counted), LOSS)
    owner = [number // split for number in range(len(parts))]
    targets = pack_targets(parts, owner, judged, size)
    return parts, size, GroupRows(text, token_places(parts, size), held, None), targets


@pytest.fixture(scope="module")
def features(model, groups):
    from vrjax.generation.engine import Engine
    from vrjax.loading import LoadedModel

    config, graph, params, chat = model
    engine = Engine(LoadedModel(config, graph, params, chat))
    items = [item for group in groups for item in group.item.prompt.vision]
    return dict(zip([item.key for item in items], engine.encode(items), strict=True))


def updated(model, groups, features, split: int, micro_batches: int = 1, unroll: bool = False, **loss):
    _, graph, params, _ = model
    parts, size, rows, targets = rows_of(model, groups, split, features)
    policy = Policy(graph, ForwardOptions(dtype=jnp.float32, remat=True, unroll=unroll), TEMPERATURE)
    optimizer = make_optimizer(OptimizerConfig(learning_rate=0.0, b1=0.0, clip_norm=1e9, schedule="constant"), 10)
    trained, frozen = split_parameters(params, freeze_vision=True)
    state = TrainState(jnp.zeros((), jnp.int32), trained, frozen, optimizer.init(trained))
    # old and reference policies: the same tokens, shifted by a known function of token and place
    token = np.asarray(rows.text.targets)
    shift = 0.3 * np.sin(token + rows.place)
    own = np.asarray(make_log_probs(policy, size.reach)(trained, frozen, rows)[0])
    targets = replace(targets, old=jnp.asarray(own + shift), reference=jnp.asarray(own - shift / 2))
    rate = lambda step: 0.0  # noqa: E731
    update = make_update(policy, size.reach, optimizer, rate, replace(LOSS, **loss), GROUP // split, micro_batches)
    state, sums, log_probs = jax.jit(update)(state, rows, targets)
    gradients = next(part.mu for part in jax.tree.leaves(state.optimizer, is_leaf=lambda x: hasattr(x, "mu"))
                     if hasattr(part, "mu"))  # fmt: skip
    per_token = {}
    for part, row in zip(parts, np.asarray(log_probs), strict=True):
        start = 0
        for number, length in enumerate(part.group.lengths[part.first : part.last], part.first):
            per_token[part.group.item.name, number] = row[start : start + length]
            start += length
    return {name: float(value) for name, value in sums.items()}, gradients, per_token


@pytest.mark.parametrize("change", [{}, {"ratio": "response"}, {"ratio": "response_mean"}, {"loss_mean": "token"}])
def test_shared_prefix_equals_one_row_a_response(model, groups, features, change) -> None:
    sums, gradients, log_probs = updated(model, groups, features, 1, **change)
    plain_sums, plain_gradients, plain_log_probs = updated(model, groups, features, GROUP, **change)
    for name in ("loss", "kl", "entropy", "clip_share"):
        assert sums[name] == pytest.approx(plain_sums[name], abs=1e-6), name
    for name, values in plain_log_probs.items():
        np.testing.assert_allclose(log_probs[name], values, atol=1e-5)
    biggest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(plain_gradients))
    for mine, plain in zip(jax.tree.leaves(gradients), jax.tree.leaves(plain_gradients), strict=True):
        np.testing.assert_allclose(mine, plain, atol=1e-5 * biggest)


@pytest.mark.parametrize("split", [pytest.param(1, marks=pytest.mark.slow), GROUP])
def test_the_last_layer_may_run_for_the_read_tokens_alone(model, groups, features, split, monkeypatch) -> None:
    """What a program with its loop written out does where a row is much longer than what is read of it."""
    whole = updated(model, groups, features, split)
    monkeypatch.setattr("vrjax.training.forward.READ_SHARE", 0)
    short = updated(model, groups, features, split, unroll=True)
    assert short[0]["loss"] == pytest.approx(whole[0]["loss"], abs=1e-6)
    biggest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(whole[1]))
    for mine, theirs in zip(jax.tree.leaves(short[1]), jax.tree.leaves(whole[1]), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * biggest)
    for name, values in whole[2].items():
        np.testing.assert_allclose(short[2][name], values, atol=1e-5)


def test_micro_batches_equal_one_batch(model, groups, features) -> None:
    whole = updated(model, groups, features, 1)
    parts = updated(model, groups, features, 1, micro_batches=3)
    assert parts[0]["loss"] == pytest.approx(whole[0]["loss"], abs=1e-6)
    biggest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(whole[1]))
    for mine, theirs in zip(jax.tree.leaves(parts[1]), jax.tree.leaves(whole[1]), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=4e-6 * biggest)
    for name, values in whole[2].items():
        np.testing.assert_allclose(parts[2][name], values, atol=5e-6)


def test_a_group_may_be_split_over_rows(model, groups, features) -> None:
    whole, halves = updated(model, groups, features, 1), updated(model, groups, features, 2)
    assert halves[0]["loss"] == pytest.approx(whole[0]["loss"], abs=1e-6)
    biggest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(whole[1]))
    for mine, theirs in zip(jax.tree.leaves(halves[1]), jax.tree.leaves(whole[1]), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * biggest)


@pytest.mark.slow
def test_reach_leaves_out_only_what_nobody_sees() -> None:
    """Long rows, many branches: with and without `reach`, values and gradients agree."""
    trunk, branches = 150, [90, 120, 30, 100, 110, 60, 80, 128]
    branch = np.concatenate([np.zeros(trunk, int), *[np.full(n, i) for i, n in enumerate(branches, 1)]])
    length = len(branch) + 20
    branch = np.pad(branch, (0, 20))[None]
    segment = (np.arange(length) < length - 20)[None].astype(np.int32)
    seen = Visibility(jnp.asarray(segment), jnp.asarray(branch, jnp.int32))
    keys = jax.random.split(jax.random.key(0), 4)
    q = jax.random.normal(keys[0], (1, length, 4, 8)) * 3
    k, v = (jax.random.normal(key, (1, length, 2, 8)) for key in keys[1:3])
    out = jax.random.normal(keys[3], q.shape)

    def score(arguments, reach):
        return (row_attention(*arguments, seen, reach) * out).sum()

    plain = jax.value_and_grad(score)((q, k, v), None)
    for reach in (Reach(160, 128), Reach(150, 128), Reach(256, 160)):
        found = jax.value_and_grad(score)((q, k, v), reach)
        np.testing.assert_allclose(found[0], plain[0], rtol=1e-5)
        for mine, theirs in zip(found[1], plain[1], strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-4)
    assert len(Reach(150, 128).keys(600, 700)) == 2  # and it does leave something out
    too_short = jax.value_and_grad(score)((q, k, v), Reach(150, 8))
    assert abs(float(too_short[0] - plain[0])) > 1e-3


def test_rows_grow_as_prompt_plus_responses(model, groups) -> None:
    part = split_groups(groups, 1)[0]
    size = part.size(4)
    prompt, lengths = len(groups[0].item.prompt), groups[0].lengths
    assert size == GroupSize(prompt + sum(lengths), sum(lengths), prompt, max(lengths), 20)
    assert recorded([part, None], size, "raw_log_probs").shape == (2, sum(lengths))
