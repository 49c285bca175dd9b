"""Read a timed transcript in pieces that a model can take in, then bring together what was found."""

from __future__ import annotations

from collections.abc import Sequence

from vrjax.agents.tools.context import Spoken, ToolContext
from vrjax.agents.tools.declaration import tool
from vrjax.agents.tools.retrieval import gather, merge, with_own_notes

READ = (
    "This is a piece of the transcript of a video, a line for each utterance with its time in seconds. Write down "
    "whatever in it bears on the query, with times and the words that matter. Write NOTHING where nothing does."
)
JOIN = (
    "The transcript of a video was read piece by piece with a query in mind. Bring what was found together into one "
    "answer to the query, with times. Say so where it does not answer the query."
)


def transcript_lines(transcript: Sequence[Spoken]) -> list[str]:
    """A line for each utterance, with its times in seconds."""
    return [f"[{one.start:.1f}-{one.end:.1f}] {one.text}" for one in transcript]


def pieces(transcript: Sequence[Spoken], characters: int) -> list[str]:
    """The transcript in pieces of at most so many characters, cut between utterances; a longer one is cut within."""
    found, lines, size = [], [], 0
    for line in transcript_lines(transcript):
        for first in range(0, max(len(line), 1), characters):
            part = line[first : first + characters]
            if lines and size + len(part) + 1 > characters:
                found.append("\n".join(lines))
                lines, size = [], 0
            lines.append(part)
            size += len(part) + 1
    return [*found, "\n".join(lines)] if lines else found


@tool
async def asr_understanding(context: ToolContext, query: str) -> str:
    """Answer a query from what is said in the video, by its transcript.

    Returns text with times in seconds; it says so where nothing that is said bears on the query.
    """
    if context.transcript is None:
        raise LookupError("this video has no transcript")
    parts = pieces(context.transcript, context.settings.transcript_characters)
    if not parts:
        return "Nothing is said in this video."

    async def read(part: str) -> tuple[ToolContext, str]:
        own = with_own_notes(context)
        return own, await own.ask(f"{READ}\n\nQuery: {query}\n\nTranscript:\n{part}")

    found = []
    for own, text in await gather(read(part) for part in parts):
        merge(context, own)
        if text.strip().strip(".").upper() != "NOTHING":
            found.append(text)
    if not found:
        return "Nothing that is said bears on the query."
    if len(parts) == 1:
        return found[0]
    listed = "\n\n".join(f"Part {number}:\n{text}" for number, text in enumerate(found, 1))
    return await context.ask(f"{JOIN}\n\nQuery: {query}\n\n{listed}")
