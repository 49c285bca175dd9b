"""What a reward is: a plain function `(prompt, response, record) → Reward`, sync or async.

```python
def short(prompt: RewardPrompt, response: str, record: RewardRecord) -> Reward:
    return Reward(float(len(response.split()) < 200))
```
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from vrjax.records import Question, VideoRecord


@dataclass(frozen=True)
class Reward:
    """What one response is worth.

    value: the reward; None is *unscored*, which is never the same as 0. parts: what it is made of, by name, for logs; a
    part of None is unscored. note: a sentence for people. fault: why it is unscored, in one word that can be counted.

    Raises:
        ValueError: the value or a part is neither a finite number nor None.
    """

    value: float | None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    note: str = ""
    fault: str = ""

    def __post_init__(self) -> None:
        for name, number in (("value", self.value), *self.parts.items()):
            if number is not None and not _is_finite(number):
                raise ValueError(f"a reward's {name} must be a finite number or None, found {number!r}")
        if self.value is None and not self.fault:
            object.__setattr__(self, "fault", "unscored")

    @classmethod
    def unscored(cls, note: str, fault: str = "unscored", parts: Mapping[str, float | None] | None = None) -> Reward:
        """A response that could not be scored. It takes no part in its group's statistics."""
        return cls(None, parts or {}, note, fault)

    def as_row(self) -> dict[str, Any]:
        """The reward as a JSON row; `from_row` reads it back."""
        return {"value": self.value, "parts": dict(self.parts), "note": self.note, "fault": self.fault}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Reward:
        """The reward that `as_row` wrote."""
        return cls(row["value"], dict(row["parts"]), row["note"], row["fault"])


def _is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except (TypeError, OverflowError):
        return False


class RewardRecord(NamedTuple):
    """What is known about a question: the video's record, and the question's own."""

    video: VideoRecord
    question: Question

    @property
    def name(self) -> str:
        """`video_id/question_id`, as the trainer's reports write it."""
        return f"{self.video.video_id}/{self.question.question_id}"


@dataclass(frozen=True)
class RewardPrompt:
    """What the model was asked. question: the text. name: `video_id/question_id` of the record it was made from."""

    question: str
    name: str

    @classmethod
    def of(cls, record: RewardRecord) -> RewardPrompt:
        """The prompt of a record's question as it stands."""
        return cls(record.question.question, record.name)


class RewardItem(NamedTuple):
    """One response to score: the arguments of a reward."""

    prompt: RewardPrompt
    response: str
    record: RewardRecord


RewardFunction: TypeAlias = Callable[[RewardPrompt, str, RewardRecord], Reward | Awaitable[Reward]]


def reward_name(reward: RewardFunction) -> str:
    """What messages call a reward: its function's or class's name."""
    return getattr(reward, "__name__", None) or type(reward).__name__
