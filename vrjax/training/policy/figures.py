"""What is logged of a step: rewards and their parts, the policy's health, and how fast each phase ran."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from vrjax.chips import chip_of
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig
from vrjax.training.advantages import varied_groups
from vrjax.training.policy.groups import Group
from vrjax.training.processes import total, union


def peak_flops() -> float | None:
    """Dense bfloat16 operations a second of this process's devices together, as their maker states them; None for a
    kind that is not listed, such as CPUs.
    """
    chip = chip_of(jax.local_devices()[0].device_kind)
    return None if chip is None or chip.flops is None else chip.flops * jax.local_device_count()


@dataclass
class StepTimes:
    """Seconds of a step's phases. `mark` waits for the arrays that a phase left behind."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def mark(self, phase: str, arrays: Any = None) -> None:
        """What was done since the last mark was `phase`."""
        jax.block_until_ready(arrays)
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True)
class Work:
    """Floating-point operations of a model's phases, by formula: 2 for each weight that a token meets, 4 · heads · size
    for each pair of tokens that attend, per layer.
    """

    config: Qwen2_5VLConfig

    @property
    def _layer_weights(self) -> int:
        text = self.config.text
        heads, kv_heads = text.heads * text.head_size, text.kv_heads * text.head_size
        return text.layers * text.width * (2 * heads + 2 * kv_heads + 3 * text.mlp)

    @property
    def _head(self) -> int:
        return 2 * self.config.text.vocabulary * self.config.text.width

    def _pairs(self, pairs: float) -> float:
        text = self.config.text
        return 4 * text.layers * text.heads * text.head_size * pairs

    def vision(self, patches: int, frame_patches: int) -> float:
        """patches: in all; frame_patches: of a frame, over which the full layers attend."""
        vision = self.config.vision
        weights = vision.layers * vision.width * (4 * vision.width + 3 * vision.mlp)
        merged = vision.merge_size**2 * vision.width
        merger = merged * (merged + vision.out_width) / vision.merge_size**2
        near = min((vision.window * vision.merge_size) ** 2, frame_patches)
        full = len(vision.full_layers)
        seen = (vision.layers - full) * near + full * frame_patches
        return patches * (2 * (weights + merger) + 4 * vision.width * seen)

    def prefill(self, lengths: Sequence[int]) -> float:
        tokens, pairs = sum(lengths), sum(n * n for n in lengths) / 2
        return 2 * self._layer_weights * tokens + self._pairs(pairs) + self._head * len(lengths)

    def decode(self, groups: Sequence[tuple[int, Sequence[int]]]) -> float:
        """groups: prompt length, and the lengths of its responses."""
        tokens = sum(sum(lengths) for _, lengths in groups)
        pairs = sum(prompt * n + n * n / 2 for prompt, lengths in groups for n in lengths)
        return (2 * self._layer_weights + self._head) * tokens + self._pairs(pairs)

    def forward(self, groups: Sequence[tuple[int, Sequence[int]]]) -> float:
        """One pass over packed rows: P + G·C tokens a group."""
        lengths = [prompt + sum(responses) for prompt, responses in groups]
        pairs = sum(prompt**2 / 2 + sum(prompt * n + n * n / 2 for n in responses) for prompt, responses in groups)
        predicted = sum(sum(responses) for _, responses in groups)
        return 2 * self._layer_weights * sum(lengths) + self._pairs(pairs) + self._head * predicted


def reward_figures(groups: Sequence[Group], rewards: Float[np.ndarray, "B G"]) -> dict[str, float]:
    """Mean and standard deviation of the reward and of each part, shares unscored and of groups without variance.

    Over all processes.
    """
    samples = [reward for group in groups for reward in group.rewards]
    names = union([name for reward in samples for name in reward.parts])
    figures: dict[str, float] = {}
    figures |= _moments("reward", [reward.value for reward in samples])
    for name in names:
        figures |= _moments(f"reward/{name}", [reward.parts.get(name) for reward in samples])
    equal = int((~varied_groups(rewards)).sum()) if len(groups) else 0
    unscored, count, equal_all, group_count = total(
        [sum(reward.value is None for reward in samples), len(samples), equal, len(groups)]
    )
    figures["unscored"] = unscored / max(count, 1)
    figures["equal_groups"] = equal_all / max(group_count, 1)
    return figures


def _moments(name: str, values: Sequence[float | None]) -> dict[str, float]:
    known = [value for value in values if value is not None]
    count, first, second = total([len(known), sum(known), sum(value * value for value in known)])
    if not count:
        return {name: math.nan, f"{name}/std": math.nan}
    mean = first / count
    return {name: mean, f"{name}/std": math.sqrt(max(second / count - mean * mean, 0.0))}


def response_figures(groups: Sequence[Group]) -> dict[str, float]:
    """Mean length in tokens, and the share that was cut off."""
    lengths = [length for group in groups for length in group.lengths]
    cut = sum(not sample.finished for group in groups for sample in group.samples)
    tokens, count, cut_all = total([sum(lengths), len(lengths), cut])
    return {"response_length": tokens / max(count, 1), "truncated": cut_all / max(count, 1)}


def speed_figures(
    seconds: Mapping[str, float], tokens: Mapping[str, float], flops: Mapping[str, float], peak: float | None
) -> dict[str, float]:
    """Seconds, tokens a second and, where the device's peak is known, its share that each phase reached."""
    figures = {f"seconds/{phase}": value for phase, value in seconds.items()}
    for phase, value in seconds.items():
        if value > 0 and tokens.get(phase):
            figures[f"tokens_per_second/{phase}"] = tokens[phase] / value
        if value > 0 and flops.get(phase):
            figures[f"flops_per_second/{phase}"] = flops[phase] / value
            if peak is not None:
                figures[f"utilisation/{phase}"] = flops[phase] / value / peak
    return figures


# The phase that a program is part of; those of no phase (spread, start, compact) are in "other rollout".
PHASE_OF = {
    "vision": "vision",
    "prefill": "prefill",
    "decode": "decode",
    "processed": "packing",
    "reference": "reference",
    "log_probs": "update",
    "update": "update",
}


def phase_work(metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and operations of a step's phases, read back from its figures. What the rollout did beside vision,
    prefill and decoding (waiting for videos, weights laid out for sampling) is "other rollout".
    """
    found = {name.split("/")[1]: value for name, value in metrics.items() if name.startswith("seconds/")}
    parts = {phase: found.pop(phase) for phase in ("vision", "prefill", "decode") if phase in found}
    rest = max(found.pop("rollout", 0.0) - sum(parts.values()), 0.0)
    seconds = {**parts, "other rollout": rest, **found}
    speed = {phase: metrics.get(f"flops_per_second/{phase}") for phase in seconds}
    return seconds, {phase: seconds[phase] * value for phase, value in speed.items() if value is not None}


def shown_figures(metrics: Mapping[str, float]) -> str:
    """The figures beside the progress bar."""
    words = [f"reward {metrics['reward']:.3f}"]
    words += [f"{name} {metrics[key]:.3f}" for name, key in (("entropy", "entropy"), ("kl", "kl")) if key in metrics]
    words.append(f"{metrics['response_length']:.0f} tokens  {metrics['seconds']:.1f} s")
    return "  ".join(words)
