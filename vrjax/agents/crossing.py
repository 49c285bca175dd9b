"""Values on their way between a program and this process. What comes from a program is bounded before it is touched.

A few nested lists can share their parts so that they stand for more elements than any memory holds: whatever walks or
prints a program's value does so with a budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from vrjax.agents.video_handle import Video

MOST_VALUES = 20_000
MOST_CHARACTERS = 500_000
DEEPEST = 40


class _Budget:
    def __init__(self, values: int, characters: int) -> None:
        self.values, self.characters = values, characters

    def spend(self, characters: int) -> None:
        self.values -= 1
        self.characters -= characters
        if self.values < 0 or self.characters < 0:
            raise ValueError(
                f"the value is too large to be passed on: more than {MOST_VALUES} values or {MOST_CHARACTERS} "
                "characters"
            )


def from_program(value: Any) -> Any:
    """A program's value as plain Python: None, bool, int, float, str, bytes, list, tuple, dict, set, Video.

    Objects of a class of the program with start and end become a Video, others a dict of their attributes.
    Raises ValueError where it is too large or too deep, TypeError for what cannot be passed (functions, classes).
    """
    return _plain(value, _Budget(MOST_VALUES, MOST_CHARACTERS), 0)


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"the value is nested more than {DEEPEST} levels deep")
    budget.spend(len(value) if isinstance(value, (str, bytes)) else 1)
    if value is None or isinstance(value, (bool, float, str, bytes, Video)):
        return value
    if isinstance(value, int):
        if value.bit_length() > 4096:
            raise ValueError("the number is too large to be passed on")
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_plain(item, budget, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items) if isinstance(value, tuple) else set(items)
    if isinstance(value, Mapping):
        return {_plain(key, budget, depth + 1): _plain(item, budget, depth + 1) for key, item in value.items()}
    attributes = getattr(value, "attributes", None)
    if isinstance(attributes, Mapping):  # an instance that lives in the sandbox
        found = {str(key): _plain(item, budget, depth + 1) for key, item in attributes.items()}
        numbers = [found.get(name) for name in ("start", "end")]
        if all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
            return Video(*numbers)  # pyright: ignore[reportArgumentType]
        return found
    raise TypeError(f"a {type(value).__name__} cannot be passed on")


def to_program(value: Any) -> Any:
    """A tool's result as the sandbox takes it; dataclasses keep their fields as attributes.

    Raises TypeError for other objects, ValueError where it is nested too deep.
    """
    return _given(value, 0)


def _given(value: Any, depth: int) -> Any:
    from pydantic_monty import ClassInstance

    if depth > DEEPEST:
        raise ValueError(f"the tool's result is nested more than {DEEPEST} levels deep")
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)([_given(item, depth + 1) for item in value]) if type(value) in (list, tuple) else [
            _given(item, depth + 1) for item in value
        ]  # fmt: skip
    if isinstance(value, (set, frozenset)):
        return {_given(item, depth + 1) for item in value}
    if isinstance(value, Mapping):
        return {_given(key, depth + 1): _given(item, depth + 1) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ClassInstance(value, eager_attrs="all")
    raise TypeError(f"the tool returned a {type(value).__name__}, which a program cannot hold")


def as_json(value: Any) -> Any:
    """A plain value for a trace file. Videos, tuples, sets and bytes are marked so that `from_json` gives them back."""
    if isinstance(value, Video):
        return {"__video__": [value.start, value.end]}
    if isinstance(value, tuple):
        return {"__tuple__": [as_json(item) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {"__set__": [as_json(item) for item in sorted(value, key=repr)]}
    if isinstance(value, bytes):
        return {"__bytes__": value.hex()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and not any(key.startswith("__") for key in value):
            return {key: as_json(item) for key, item in value.items()}
        return {"__dict__": [[as_json(key), as_json(item)] for key, item in value.items()]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return repr(value)[:1000]


def from_json(value: Any) -> Any:
    """The value of which `as_json` made this; a dataclass other than Video comes back as a dict."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        kind, content = next(iter(value.items()))
        if kind == "__video__":
            return Video(*content)
        if kind == "__tuple__":
            return tuple(from_json(item) for item in content)
        if kind == "__set__":
            return {from_json(item) for item in content}
        if kind == "__bytes__":
            return bytes.fromhex(content)
        if kind == "__dict__":
            return {from_json(key): from_json(item) for key, item in content}
    return {key: from_json(item) for key, item in value.items()}


def bounded_repr(value: Any, characters: int) -> str:
    """`repr` that stops at about so many characters, whatever the value; what was left out shows as `…`."""
    pieces: list[str] = []
    left = characters

    def put(text: str) -> None:
        nonlocal left
        pieces.append(text[: max(left, 0)])
        left -= len(text)

    def walk(item: Any, depth: int) -> None:
        if left <= 0 or depth > DEEPEST:
            put("…")
        elif isinstance(item, (str, bytes)):
            put(repr(item[: left + 1]))
        elif isinstance(item, int) and not isinstance(item, bool) and item.bit_length() > 4096:
            put(f"an integer of {item.bit_length()} bits")
        elif isinstance(item, (list, tuple, set, frozenset)):
            marks = ("[", "]") if isinstance(item, list) else ("(", ")") if isinstance(item, tuple) else ("{", "}")
            put(marks[0])
            for number, part in enumerate(item):
                put(", " if number else "")
                if left <= 0:
                    break
                walk(part, depth + 1)
            put(",)" if isinstance(item, tuple) and len(item) == 1 else marks[1])
        elif isinstance(item, Mapping):
            put("{")
            for number, (key, part) in enumerate(item.items()):
                put(", " if number else "")
                if left <= 0:
                    break
                walk(key, depth + 1)
                put(": ")
                walk(part, depth + 1)
            put("}")
        elif isinstance(attributes := getattr(item, "attributes", None), Mapping):
            put(f"{getattr(item, 'name', 'object')}(")
            for number, (key, part) in enumerate(attributes.items()):
                put(f"{', ' if number else ''}{key}=")
                walk(part, depth + 1)
            put(")")
        else:
            put(repr(item))

    walk(value, 0)
    return "".join(pieces) + ("…" if left < 0 else "")
