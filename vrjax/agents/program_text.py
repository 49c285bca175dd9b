"""The one program in an agent's reply, and the words beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})\s*([\w+.#-]*)[^`]*$")
PYTHON = frozenset({"", "python", "py", "python3", "tool_code"})


@dataclass(frozen=True)
class Reply:
    """program: what is to be run, or None, and `problem` says to the agent why. thought: all other words."""

    thought: str
    program: str | None = None
    problem: str | None = None


def read_reply(text: str, cut: bool = False) -> Reply:
    """Take the one fenced block of Python out of a reply. cut: whether the reply ended at its limit of tokens.

    A block opens with a line of three or more backticks (or tildes) and closes with a line of as many of them alone.
    """
    blocks: list[tuple[str, str]] = []
    words: list[str] = []
    inside: tuple[str, str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        match = _FENCE.match(line)
        if inside is None:
            if match:
                inside, lines = (match[1], match[2].lower()), []
            else:
                words.append(line)
        elif match and not match[2] and match[1][0] == inside[0][0] and len(match[1]) >= len(inside[0]):
            blocks.append((inside[1], "\n".join(lines)))
            inside = None
        else:
            lines.append(line)
    thought = "\n".join(words).strip()
    if inside is not None:
        why = "the reply reached its limit of tokens" if cut else "the block is not closed"
        return Reply(thought, problem=f"Nothing was run: {why}. Reply with one whole block, ```python … ```.")
    if not blocks:
        what = "is empty" if not text.strip() else "holds no block of code"
        return Reply(thought, problem=f"Nothing was run: the reply {what}. Reply with one block, ```python … ```.")
    if len(blocks) > 1:
        return Reply(
            thought,
            problem=f"Nothing was run: the reply holds {len(blocks)} blocks of code, and only one is run at a time. "
            "Reply with the first step alone.",
        )
    language, program = blocks[0]
    if language not in PYTHON:
        return Reply(thought, problem=f"Nothing was run: the block is {language}, and only Python is run here.")
    if not program.strip():
        return Reply(thought, problem="Nothing was run: the block is empty.")
    return Reply(thought, program)
