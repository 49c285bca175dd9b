"""A trace as text for a critic: each program with its result, the answer, and nothing of what it cost."""

from __future__ import annotations

from vrjax.agents.trace import Trace


def trace_text(trace: Trace, characters: int) -> str:
    """The trace in about so many characters at most; the middle of long results is left out, and then of the whole."""
    each = max(200, characters // max(len(trace.steps), 1))
    pieces = []
    for number, step in enumerate(trace.steps, 1):
        lines = [f"Step {number}"]
        if step.thought:
            lines.append(f"Thought: {shortened(step.thought, each // 3)}")
        if step.program is not None:
            lines.append(f"Program:\n{shortened(step.program, each // 2)}")
        for call in step.calls if step.program is None else ():
            lines.append(f"Tool used alone: {call.tool.removeprefix('direct:')}")
        if step.result:
            lines.append(f"Result:\n{shortened(step.result, each // 2)}")
        pieces.append("\n".join(lines))
    answer = trace.answer if trace.answer is not None else f"none ({trace.error or trace.outcome})"
    return shortened("\n\n".join(pieces), characters) + f"\n\nAnswer: {shortened(answer, 2000)}"


def shortened(text: str, characters: int) -> str:
    """The text, or its two ends with how much was left out between them."""
    if len(text) <= characters:
        return text
    half = max(characters // 2, 1)
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
