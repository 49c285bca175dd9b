"""Tools that ask no model: cut the video, think, finish."""

from __future__ import annotations

from typing import Any

from vrjax.agents.sandbox import ProgramEnd
from vrjax.agents.tools.context import ToolContext
from vrjax.agents.tools.declaration import tool
from vrjax.agents.video_handle import Video, cut


@tool
def get_segment(context: ToolContext, start: float, end: float) -> Video:
    """Cut out the part of the video from `start` to `end`, in seconds from the start of the whole video.

    Returns a Video to hand to the other tools; it has `.start` and `.end`. Times that it leads to are counted from the
    start of the whole video.
    """
    part, clipped = cut(context.whole, start, end)
    if clipped:
        context.noted.notes["segment_clipped"] += 1
    return part


@tool
def think(text: str) -> str:
    """Write down how to go on, for a step that looks at nothing. Returns the text."""
    return text


@tool
def finish(answer: object) -> None:
    """Give the final answer, in the form that the question asks for. This ends the work at once."""
    raise ProgramEnd(answer_text(answer))


def answer_text(answer: Any) -> str:
    """An answer as text; two numbers as `<start> <end>`, in seconds. Raises ValueError for an empty one."""
    if isinstance(answer, Video):
        answer = (answer.start, answer.end)
    if (
        isinstance(answer, (tuple, list))
        and len(answer) in (2, 3)
        and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in answer[:2])
    ):
        return " ".join([f"<{answer[0]:.1f}> <{answer[1]:.1f}>", *map(str, answer[2:])])
    text = "" if answer is None else str(answer).strip()
    if not text:
        raise ValueError("finish needs an answer: give it as text")
    return text[:20_000]
