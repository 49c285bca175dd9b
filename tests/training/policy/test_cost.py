"""What the update costs: operations counted from its jaxpr, memory and array shapes from the compiled program.

The model is that of the benchmarks (experiments/benchmarks/generation.py). Nothing is run: arguments are shapes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.flops import FlopRules, count_flops
from vrjax.generation.engine import Sample
from vrjax.generation.prompts import Prompt
from vrjax.loading import abstract_model
from vrjax.models.decoder import DecoderConfig
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig
from vrjax.records import Question, VideoRecord
from vrjax.training.forward import ForwardOptions
from vrjax.training.policy.groups import Group
from vrjax.training.policy.packing import (
    NO_ROW,
    GroupRows,
    judge,
    pack_part,
    pack_targets,
    split_groups,
    token_places,
)
from vrjax.training.policy.programs import Policy, make_update
from vrjax.training.policy.prompts import PromptItem
from vrjax.training.policy_loss import Counted, PolicyLossConfig
from vrjax.training.rows import stack_rows
from vrjax.training.state import OptimizerConfig, TrainState, make_optimizer, split_parameters

COMPLETION = 64
LOSS = PolicyLossConfig(kl_weight=0.0)
TEXT = DecoderConfig(
    vocabulary=8192, width=512, layers=8, heads=8, kv_heads=2, head_size=64, mlp=1408, norm_eps=1e-6, rope_theta=1e6,
    tied=False, qkv_bias=True, max_positions=16384, sections=(8, 12, 12),
)  # fmt: skip
VISION = VisionConfig(
    layers=1, width=64, heads=2, mlp=64, out_width=512, full_layers=(), window=4, tokens_per_second=2
)
# Found again in the text of a program: no product of other sizes here.
ODD_VOCABULARY = 7919


def update_of(prompt_length: int, group: int, split: int = 1, *, rounded: bool = True, vocabulary: int = 8192):
    """The update of one group in `split` rows, its arguments as shapes, and the size of a row."""
    config = Qwen2_5VLConfig(replace(TEXT, vocabulary=vocabulary), VISION, 1, 2, 3, 4)
    tokens = np.full(prompt_length, 9, np.int32)
    positions = np.broadcast_to(np.arange(prompt_length, dtype=np.int32), (3, prompt_length))
    prompt = Prompt(tokens, positions, prompt_length, trunk=prompt_length)
    question = Question(question_id="q", question="?")
    record = VideoRecord(video_id="v", video_path="v.mp4", duration=5.0, questions=(question,))
    zeros = np.zeros(COMPLETION, np.float32)
    sample = Sample("", np.full(COMPLETION, 9, np.int32), zeros, zeros, True)
    groups = [Group(PromptItem(record, question, prompt), (sample,) * group, 0)]

    parts, size = split_groups(groups, split), NO_ROW
    for part in parts:
        size = size.joined(part.size(4))
    size = size.rounded() if rounded else size
    text = stack_rows([pack_part(part, [], size, 0) for part in parts])
    lengths, counted = [groups[0].lengths], [[True] * group]
    judged = judge(lengths, counted, np.ones((1, group)), Counted.of(lengths, counted), LOSS)
    rows = GroupRows(text, token_places(parts, size), None, None)
    targets = pack_targets(parts, [0] * split, judged, size)

    graph, params = abstract_model(config)
    optimizer = make_optimizer(OptimizerConfig(schedule="constant"), 1)
    trained, frozen = split_parameters(params, freeze_vision=True)
    step = jax.ShapeDtypeStruct((), jnp.int32)
    state = TrainState(step, trained, frozen, jax.eval_shape(optimizer.init, trained))  # type: ignore[arg-type]
    policy = Policy(graph, ForwardOptions(dtype=jnp.float32, remat=True, unroll=False), 1.0)
    update = make_update(policy, size.reach, optimizer, lambda step: 1e-6, LOSS, group // split)
    return jax.jit(update, donate_argnums=0), (state, rows, targets), size


@cache
def compiled(prompt_length: int, group: int, vocabulary: int = 8192):
    update, arguments, size = update_of(prompt_length, group, vocabulary=vocabulary)
    return update.lower(*arguments).compile(), size


def temporary(prompt_length: int, group: int) -> int:
    """Bytes that the compiled update needs beside its arguments and results."""
    return compiled(prompt_length, group)[0].memory_analysis().temp_size_in_bytes


# ---------------------------------------------------------------- operations


@pytest.mark.parametrize("rounded", [False, True])
def test_the_prompt_is_paid_for_once(rounded: bool) -> None:
    prompt, group = 1090, 8
    shared, plain = (update_of(prompt, group, split, rounded=rounded) for split in (1, group))
    share = count_flops(shared[0], *shared[1]) / count_flops(plain[0], *plain[1])
    asked = (prompt + group * COMPLETION) / (group * (prompt + COMPLETION))
    print(f"share of operations {share:.4f}, of tokens {asked:.4f}, ratio {share/asked:.3f}")
    assert share == pytest.approx(asked, rel=0.15)


# ---------------------------------------------------------------- memory


def test_memory_grows_with_the_prompt_not_with_its_square() -> None:
    print(temporary(8192, 8) / 2**20, temporary(4096, 8) / 2**20, temporary(4096, 2) / 2**20)
    assert temporary(8192, 8) <= 2.2 * temporary(4096, 8)


def test_memory_hardly_grows_with_the_group() -> None:
    assert temporary(4096, 8) <= 1.3 * temporary(4096, 2)
