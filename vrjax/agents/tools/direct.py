"""The whole question put to the model at once, with evenly spread frames: what the agent is compared with."""

from __future__ import annotations

from vrjax.agents.tools.context import ToolContext, shown
from vrjax.agents.tools.retrieval import ReasonedAnswer
from vrjax.agents.tools.speech import transcript_lines

DIRECT = (
    "These are frames of a video, in order of time. First write out your reasoning, then answer the question in the "
    "form that it asks for."
)


async def direct_inference(context: ToolContext, with_transcript: bool = False) -> tuple[str, str]:
    """(answer, reasoning) from one window of frames over the whole video, and what fits of the transcript."""
    plan = context.plan(context.whole, most=context.settings.window)
    frames = await context.frames(plan)
    parts = [f"{DIRECT}\n\n{context.question}", *shown(frames)]
    if with_transcript:
        if context.transcript is None:
            raise LookupError("this video has no transcript")
        text = "\n".join(transcript_lines(context.transcript))
        most = context.settings.transcript_characters
        if len(text) > most:
            context.noted.notes["transcript_characters_left_out"] += len(text) - most
        parts.append(f"What is said:\n{text[:most]}")
    found = await context.ask_form(ReasonedAnswer, *parts)
    return found.answer, found.reasoning
