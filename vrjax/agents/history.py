"""The conversation of an agent, kept within its model's context by a stated rule.

Results are left out first, the oldest first, whole; then the words beside the oldest programs. Question, tools and
programs stay. What was left out is said in its place, with its length.
"""

from __future__ import annotations

from dataclasses import dataclass

from vrjax.llm import Message


@dataclass(frozen=True)
class Turn:
    """reply: of the agent, verbatim. program: in it, or None. result: what it was shown."""

    reply: str
    program: str | None
    result: str


def fit(head: tuple[Message, ...], turns: list[Turn], tail: str, most: int) -> tuple[tuple[Message, ...], int]:
    """(messages of at most `most` characters, where leaving out can do that; how many results and words were left out).

    head: system and question; tail: joined to the last result.
    """
    replies = [turn.reply or "(no reply)" for turn in turns]
    results = [turn.result for turn in turns]
    size = sum(len(message.text) for message in head) + sum(map(len, replies)) + sum(map(len, results)) + len(tail)
    left_out = 0
    # The last result is what the agent is to go on from.
    for number in range(len(turns) - 1):
        note = f"[This result was left out to save room: {len(results[number])} characters.]"
        if size > most and len(note) < len(results[number]):
            size -= len(results[number]) - len(note)
            results[number] = note
            left_out += 1
    for number, turn in enumerate(turns[:-1]):
        program = f"```python\n{turn.program}\n```" if turn.program is not None else "(a reply without a program)"
        if size > most and len(program) < len(replies[number]):
            size -= len(replies[number]) - len(program)
            replies[number] = program
            left_out += 1
    messages = list(head)
    for number, (reply, result) in enumerate(zip(replies, results, strict=True)):
        last = number == len(turns) - 1
        messages += [Message.assistant(reply), Message.user(f"{result}\n\n{tail}" if last and tail else result)]
    if not turns and tail:
        messages[-1] = Message.user(*messages[-1].parts, f"\n\n{tail}")
    return tuple(messages), left_out
