"""Look for the frames that matter, window by window, then answer from those."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from vrjax.agents.frame_store import StoredFrame
from vrjax.agents.tools.context import Noted, ToolContext, shown, windows
from vrjax.agents.tools.declaration import tool
from vrjax.agents.video_handle import Video

T = TypeVar("T")

CHOOSE = (
    "These are frames of one part of a video, in order of time, each after its number. Which of them show something "
    "that bears on the query? Name their numbers; name none where nothing bears on it."
)
ANSWER = (
    "These frames were chosen from a video because they may bear on the query. Answer the query from what they show, "
    "with the times that support it. Say so where they do not show enough."
)
REASONED = (
    "These frames were chosen from a video because they may bear on the question. First write out your reasoning: what "
    "is seen, when, and how it leads to the answer. Then give the answer in the form that the question asks for."
)


class RelevantFrames(BaseModel):
    frames: list[int]


class ReasonedAnswer(BaseModel):
    reasoning: str
    answer: str


async def _retrieve(context: ToolContext, query: str, video: Video) -> list[StoredFrame]:
    """The chosen frames, at most one window of them; evenly spread ones where none was chosen."""
    plan, window = context.plan(video), context.settings.window
    parts = windows(plan, window)
    spread = set(evenly(parts[-1].stop, window))
    places = asyncio.Semaphore(context.settings.windows_at_once)

    async def choose(part: range) -> tuple[ToolContext, list[StoredFrame], list[StoredFrame]]:
        async with places:
            own = with_own_notes(context)
            frames = await own.frames(plan, part)
            first = part.start + 1
            found = await own.ask_form(RelevantFrames, f"{CHOOSE}\n\nQuery: {query}", *shown(frames, first))
        numbers = sorted(set(found.frames))
        known = [number for number in numbers if first <= number < first + len(frames)]
        if len(known) < len(numbers):
            own.noted.notes["unknown_frame"] += len(numbers) - len(known)
        # Frames are kept from here on, since the cache may have let them go when all windows are done.
        evenly_spread = [frame for place, frame in zip(part, frames, strict=True) if place in spread]
        return own, [frames[number - first] for number in known], evenly_spread

    chosen, fallback = [], []
    for own, found, evenly_spread in await gather(choose(part) for part in parts):
        merge(context, own)
        chosen.extend(found)
        fallback.extend(evenly_spread)
    if not chosen:
        context.noted.notes["no_frame_chosen"] += 1
        chosen = fallback
    if len(chosen) > window:
        context.noted.notes["chosen_left_out"] += len(chosen) - window
        chosen = [chosen[place] for place in evenly(len(chosen), window)]
    context.noted.chosen.extend(round(frame.seconds, 3) for frame in chosen)
    return chosen


@tool
async def retrieval_qa(context: ToolContext, query: str, video: Video) -> str:
    """Answer a query about what can be seen in a video, or in a part of it.

    All frames are searched for those that bear on the query, and the answer comes from these. Ask about one thing at a
    time, in full sentences. Returns text, with times in seconds where they matter; it may be wrong or say that nothing
    was found.
    """
    frames = await _retrieve(context, query, video)
    return await context.ask(f"{ANSWER}\n\nQuery: {query}", *shown(frames))


async def answer_from_frames(context: ToolContext) -> tuple[str, str]:
    """(answer, reasoning): the question answered by retrieval alone."""
    frames = await _retrieve(context, context.question, context.whole)
    found = await context.ask_form(ReasonedAnswer, f"{REASONED}\n\n{context.question}", *shown(frames))
    return found.answer, found.reasoning


retrieval_qa = replace(retrieval_qa, answers=("qa",), answer=answer_from_frames)


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; where one fails the others are given up and its error is raised."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def with_own_notes(context: ToolContext) -> ToolContext:
    """The same context with a fresh sheet, for one of several that work side by side."""
    return replace(context, noted=Noted())


def merge(context: ToolContext, part: ToolContext) -> None:
    """Add a part's sheet to the whole one."""
    into, noted = context.noted, part.noted
    into.frames.extend(noted.frames)
    into.chosen.extend(noted.chosen)
    into.requests += noted.requests
    into.usage = into.usage + noted.usage
    into.notes.update(noted.notes)
    into.replies.extend(noted.replies)


def evenly(count: int, most: int) -> Sequence[int]:
    """At most `most` places of `count`, evenly spread, both ends included."""
    if count <= most:
        return range(count)
    return sorted({round(number * (count - 1) / max(most - 1, 1)) for number in range(most)})
