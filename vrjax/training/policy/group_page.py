"""A page of groups: the frames, the G responses, their evidence against the reference, rewards and advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from vrjax.evaluation import report
from vrjax.evidence import parse_response
from vrjax.rewards import Reward
from vrjax.training.policy.groups import Group
from vrjax.video import FramePlan, ReaderPool

MOST_GROUPS = 8


def write_group_page(
    path: Path,
    step: int,
    groups: Sequence[Group],
    advantages: Float[np.ndarray, "B G"],
    plan_of: Callable[[str], FramePlan],
    pool: ReaderPool,
) -> None:
    """Write the first groups of a step, each response a card; the frames stand on the first card of a group."""
    sections = []
    for group, row in zip(groups[:MOST_GROUPS], advantages, strict=False):
        duration = group.item.record.duration
        frames = report.frame_strip(plan_of(group.item.name), pool)
        cards = []
        for number, (sample, reward, advantage) in enumerate(zip(group.samples, group.rewards, row, strict=True), 1):
            response = parse_response(sample.text)
            cards.append(
                report.Card(
                    question=f"response {number}: reward {_number(reward.value)}, advantage {advantage:+.2f}",
                    caption=_parts(reward)
                    + f"; {len(sample.tokens)} tokens"
                    + ("" if sample.finished else ", cut off"),
                    right=bool(reward.parts.get("answer")),
                    answer=response.answer or "(nothing)",
                    reference=group.item.question.answer,
                    frames=frames if number == 1 else (),
                    true_bars=report.reference_bars(group.item.question, duration),
                    said_bars=report.response_bars(response, duration),
                    response=sample.text,
                )
            )
        title = f"{group.item.name}: {group.item.question.question}"
        sections.append(report.Gallery(title, cards))
    subtitle = f"The first {min(len(groups), MOST_GROUPS)} of {len(groups)} groups, as sampled and judged."
    report.write_report(path, f"step {step}", subtitle, sections)


def _number(value: float | None) -> str:
    return "unscored" if value is None else f"{value:.3f}"


def _parts(reward: Reward) -> str:
    named = ", ".join(f"{name} {_number(value)}" for name, value in reward.parts.items()) or "no parts"
    return f"{named}. {reward.note}" if reward.note else named
