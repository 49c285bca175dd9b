"""What the update costs: operations counted from its jaxpr, memory and array shapes from the compiled program.

The model is that of the benchmarks (experiments/benchmarks/generation.py). Nothing is run: arguments are shapes.
"""

from __future__ import annotations

import math
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

from vrjax.errors import InputError
from vrjax.flops import FlopRules, count_flops
from vrjax.generation.prompts import Prompt
from vrjax.generation.requests import Sample
from vrjax.loading import abstract_model
from vrjax.models.decoder import DecoderConfig, Remat
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig
from vrjax.records import Question, VideoRecord
from vrjax.training.buckets import RowSize
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
VISION = VisionConfig(layers=1, width=64, heads=2, mlp=64, out_width=512, full_layers=(), window=4, tokens_per_second=2)


def update_of(prompt_length: int, group: int, split: int = 1, *, padded: bool = True, remat: Remat = True):
    """The update of one group in `split` rows, its arguments as shapes, and the tokens of a row."""
    config = Qwen2_5VLConfig(TEXT, VISION, 1, 2, 3, 4)
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
    if padded:
        bucket = RowSize(prompt_length + COMPLETION, COMPLETION, 1, 4, 1)
        size = size.padded(bucket, COMPLETION, group // split, 4)
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
    policy = Policy(graph, ForwardOptions(dtype=jnp.float32, remat=remat, unroll=False), 1.0)
    update = make_update(policy, size.reach, optimizer, lambda step: 1e-6, LOSS, group // split)
    return jax.jit(update, donate_argnums=0), (state, rows, targets), size.length


@cache
def compiled(prompt_length: int, group: int):
    """The compiled update, and the tokens of its row."""
    update, arguments, length = update_of(prompt_length, group)
    return update.lower(*arguments).compile(), length


def temporary(prompt_length: int, group: int) -> int:
    """Bytes that the compiled update needs beside its arguments and results."""
    analysis = compiled(prompt_length, group)[0].memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def shapes_of(program) -> set[tuple[int, ...]]:
    """Shapes of all floating-point arrays in a compiled program, ones and all."""
    found = re.findall(r"\b(?:f32|bf16|f16)\[([\d,]+)\]", program.as_text())
    return {tuple(map(int, shape.split(","))) for shape in found}


# ---------------------------------------------------------------- operations


@pytest.mark.parametrize("padded", [False, True])
def test_the_prompt_is_paid_for_once(padded: bool) -> None:
    prompt, group = 1090, 8
    shared, plain = (update_of(prompt, group, split, padded=padded) for split in (1, group))
    share = count_flops(shared[0], *shared[1]) / count_flops(plain[0], *plain[1])
    asked = (prompt + group * COMPLETION) / (group * (prompt + COMPLETION))
    assert share == pytest.approx(asked, rel=0.15)


def test_what_the_backward_pass_computes_again() -> None:
    """All of a layer costs a second forward pass of it; all but attention spares attention's; nothing spares it all."""
    settings: tuple[Remat, ...] = (True, "attention", False)
    updates = [update_of(1090, 8, remat=remat) for remat in settings]
    everything, but_attention, nothing = (count_flops(update, *arguments) for update, arguments, _ in updates)
    length = updates[0][2]
    queries_and_keys = TEXT.width * (TEXT.heads + 2 * TEXT.kv_heads) * TEXT.head_size
    out, gate_and_up = TEXT.heads * TEXT.head_size * TEXT.width, 2 * TEXT.width * TEXT.mlp
    assert everything > but_attention > nothing
    # Nobody reads the last product of a layer, so it is not computed again.
    again = 2 * length * TEXT.layers * (queries_and_keys + out + gate_and_up)
    assert but_attention - nothing == pytest.approx(again, rel=0.01)


def test_products_are_counted_by_hand() -> None:
    a, b = jnp.ones((5, 7)), jnp.ones((7, 11))
    assert count_flops(lambda a, b: jnp.tanh(a @ b), a, b) == 2 * 5 * 7 * 11
    assert count_flops(jax.vmap(jnp.dot), jnp.ones((3, 5, 7)), jnp.ones((3, 7, 11))) == 3 * 2 * 5 * 7 * 11
    backward = jax.value_and_grad(lambda a, b: (a @ b).sum(), argnums=(0, 1))
    assert count_flops(backward, a, b) == 3 * 2 * 5 * 7 * 11


def test_convolutions_are_counted_by_hand() -> None:
    image, kernel = jnp.ones((2, 6, 9, 9)), jnp.ones((10, 3, 3, 3))  # two groups of three input channels

    def convolve(image, kernel):
        return jax.lax.conv_general_dilated(image, kernel, (2, 2), "VALID", feature_group_count=2)

    assert convolve(image, kernel).shape == (2, 10, 4, 4)
    assert count_flops(convolve, image, kernel) == 2 * (2 * 10 * 4 * 4) * (3 * 3 * 3)


def test_loops_count_each_turn_and_recomputing_counts_again() -> None:
    x, weights = jnp.ones((5, 7)), jnp.ones((4, 7, 7))
    once = 2 * 5 * 7 * 7

    def run(weights, x, layer):
        return jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)[0].sum()

    def layer(x, w):
        return jnp.sin(x @ w) @ w

    assert count_flops(lambda w, x: run(w, x, layer), weights, x) == 4 * 2 * once
    kept = count_flops(jax.grad(lambda w, x: run(w, x, layer)), weights, x)
    assert kept == 4 * (2 + 4) * once
    again = count_flops(jax.grad(lambda w, x: run(w, x, jax.checkpoint(layer))), weights, x)
    assert again == kept + 4 * once  # the first product; the second one's result is not needed
    assert count_flops(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: x @ weights[0], x), x) == 3 * once


def test_what_cannot_be_read_off_is_refused_or_said() -> None:
    x, w = jnp.ones((5, 7)), jnp.ones((7, 7))

    def until_large(x):
        return jax.lax.while_loop(lambda x: x.sum() < 1e6, lambda x: x @ w, x)

    with pytest.raises(InputError, match="loop_trips"):
        count_flops(until_large, x)
    assert count_flops(until_large, x, rules=FlopRules(loop_trips=9)) == 9 * 2 * 5 * 7 * 7

    def either(x):
        return jax.lax.cond(x.sum() > 0, lambda x: x @ w @ w, lambda x: x, x)

    assert count_flops(either, x) == 2 * 2 * 5 * 7 * 7

    def kernel(x_ref, out_ref):
        out_ref[...] = x_ref[...]

    def hidden(x):
        return pallas.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), name="mine", interpret=True)(x)

    with pytest.raises(InputError, match="'mine'"):
        count_flops(hidden, x)
    assert count_flops(hidden, x, rules=FlopRules(kernels={"mine": lambda equation: 42.0})) == 42


# ---------------------------------------------------------------- memory


@pytest.mark.slow
def test_memory_grows_with_the_prompt_not_with_its_square() -> None:
    assert temporary(8192, 8) <= 2.2 * temporary(4096, 8)


@pytest.mark.slow
def test_memory_hardly_grows_with_the_group() -> None:
    assert temporary(4096, 8) <= 1.3 * temporary(4096, 2)


def test_no_array_of_all_pairs_of_tokens_nor_of_tokens_by_vocabulary() -> None:
    """Neither by its shape, nor, were it flattened, by its size."""
    program, length = compiled(4096, 8)
    found = shapes_of(program)
    assert (TEXT.vocabulary, TEXT.width) in found  # the text is read as it is meant to be
    for shape in found:
        assert shape.count(length) < 2, shape
        assert not (length in shape and TEXT.vocabulary in shape), shape
    assert max(math.prod(shape) for shape in found) < length * min(length, TEXT.vocabulary)


def test_the_search_for_such_arrays_finds_them() -> None:
    x = jnp.ones((123, 8))
    program = jax.jit(lambda x: jax.nn.softmax(x @ x.T) @ x).lower(x).compile()
    assert any(shape.count(123) == 2 for shape in shapes_of(program))
