"""Look for when something happens, window by window, recall first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pydantic import BaseModel

from vrjax.agents.tools.context import ToolContext, shown, windows
from vrjax.agents.tools.declaration import tool
from vrjax.agents.tools.retrieval import gather, merge, with_own_notes
from vrjax.agents.video_handle import Video

FIND = (
    "These are frames of one part of a video, in order of time, each after its number and time in seconds. Name every "
    "stretch of time in which the query may hold: better one too many than one too few. Give start and end in seconds "
    "and say in a few words why. Name none only where nothing comes near."
)
CHOOSE = (
    "A search for the moment that a question asks for found these stretches of a video. Reason about which of them is "
    "meant, then give its start and end in seconds; join or shorten stretches where the question asks for it."
)


class FoundRange(BaseModel):
    start: float
    end: float
    why: str


class FoundRanges(BaseModel):
    ranges: list[FoundRange]


class ChosenRange(BaseModel):
    reasoning: str
    start: float
    end: float


async def _find(context: ToolContext, query: str, video: Video) -> list[tuple[float, float, str]]:
    plan = context.plan(video)
    parts = windows(plan, context.settings.window)
    places = asyncio.Semaphore(context.settings.windows_at_once)

    async def look(part: range) -> tuple[ToolContext, list[tuple[float, float, str]]]:
        async with places:
            own = with_own_notes(context)
            frames = await own.frames(plan, part)
            found = await own.ask_form(FoundRanges, f"{FIND}\n\nQuery: {query}", *shown(frames, part.start + 1))
        ranges = []
        for one in found.ranges:
            low, high = max(one.start, video.start), min(one.end, video.end)
            if one.end < one.start:
                own.noted.notes["reversed_range"] += 1
            elif low > high:
                own.noted.notes["range_outside"] += 1
            else:
                if (low, high) != (one.start, one.end):
                    own.noted.notes["range_clipped"] += 1
                ranges.append((round(low, 3), round(high, 3), one.why))
        return own, ranges

    found = []
    for own, ranges in await gather(look(part) for part in parts):
        merge(context, own)
        found.extend(ranges)
    return sorted(found, key=lambda one: one[:2])


@tool
async def find_when(context: ToolContext, query: str, video: Video) -> list[tuple[float, float, str]]:
    """Find when an event or action may happen in a video, or in a part of it.

    Returns a list of (start, end, why) in order of time, in seconds from the start of the whole video. It names what
    comes near, so check what it found before you rely on it; the list may be empty.
    """
    return await _find(context, query, video)


async def answer_with_span(context: ToolContext) -> tuple[str, str]:
    """(answer, reasoning): the span that the question asks for, as `<start> <end>`, by localisation alone."""
    found = await _find(context, context.question, context.whole)
    if not found:
        raise LookupError("find_when found nothing")
    listed = "\n".join(f"{start:.1f} to {end:.1f} s: {why}" for start, end, why in found)
    whole = f"The video is {context.whole.end:.1f} s long."
    chosen = await context.ask_form(ChosenRange, f"{CHOOSE}\n\n{context.question}\n\n{whole} Found:\n{listed}")
    low, high = sorted(min(max(time, context.whole.start), context.whole.end) for time in (chosen.start, chosen.end))
    if (low, high) != (chosen.start, chosen.end):
        context.noted.notes["answer_clipped"] += 1
    return f"<{low:.1f}> <{high:.1f}>", f"Found: {listed}\n{chosen.reasoning}"


find_when = replace(find_when, answers=("localise",), answer=answer_with_span)
