"""JSON in what a model wrote: fenced, with words around it, trailing commas, or as a Python literal.

Nothing is guessed: two different values, a cut-off one, NaN or a key given twice are errors, so that the caller asks
again. Nothing is evaluated; Python literals go through `ast.literal_eval` alone.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

LONGEST_LITERAL = 100_000  # characters; Python's parser takes memory on long hostile ones
CLOSING = {"{": "}", "[": "]"}
THINKING = re.compile(r"\A.*</think(?:ing)?>|<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True)
class FoundJson:
    """value: the JSON value. repairs: what departed from plain JSON: text_around, trailing_comma, python_literal."""

    value: Any
    repairs: tuple[str, ...] = ()


def extract_json(text: str) -> Any:
    """The one JSON object (or else list) in a text; or the value that the whole text is.

    Raises ValueError that says what is wrong, in words that may be put to the model: none, several different ones, cut
    off, NaN or infinite numbers, a key given twice.
    """
    return find_json(text).value


def find_json(text: str) -> FoundJson:
    """`extract_json` with what had to be repaired."""
    stripped = text.strip()
    if not stripped:
        raise ValueError("the reply is empty")
    try:
        return _parse(stripped)
    except ValueError as error:
        problem = str(error)
    # A reasoning model's draft is not its answer.
    chunks = list(_chunks(THINKING.sub("", text)))
    found: list[FoundJson] = []
    for chunk in chunks:
        try:
            found.append(_parse(chunk))
        except ValueError as error:
            problem = str(error)
    found = [one for one in found if isinstance(one.value, dict)] or found
    if not found:
        raise ValueError(problem if chunks else "the reply holds no JSON")
    if any(json.dumps(one.value, sort_keys=True) != json.dumps(found[0].value, sort_keys=True) for one in found):
        raise ValueError("the reply holds several different JSON values, and it is not clear which one counts")
    return FoundJson(found[0].value, ("text_around", *found[0].repairs))


def _parse(text: str) -> FoundJson:
    try:
        return FoundJson(_strict(text))
    except _Refused as error:
        raise ValueError(str(error)) from None
    except (ValueError, RecursionError) as error:
        problem = f"not valid JSON: {error}" if isinstance(error, ValueError) else "nested too deeply"
    try:
        return FoundJson(_strict(TRAILING_COMMA.sub(r"\1", text)), ("trailing_comma",))
    except _Refused as error:
        raise ValueError(str(error)) from None
    except (ValueError, RecursionError):
        pass
    try:
        return FoundJson(_literal(text), ("python_literal",))
    except _Refused as error:
        raise ValueError(str(error)) from None
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        raise ValueError(problem) from None


class CutOffError(ValueError):
    """An object begins and does not end."""


class _Refused(Exception):
    """It can be parsed, but must not be used."""


def _strict(text: str) -> Any:
    # strict=False lets a model break lines within a string.
    return json.loads(text, strict=False, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_unique)


def _constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"{text} is not a finite number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise _Refused(f"the key {key!r} is given twice with different values")
        found[key] = value
    return found


def _literal(text: str) -> Any:
    """A Python literal of JSON's types: 'single quotes', True, None; true, false and null are understood too."""
    if len(text) > LONGEST_LITERAL or text[:1] not in CLOSING:
        raise ValueError("too long, or no object and no list")
    return _as_json(_JsonNames().visit(ast.parse(text, mode="eval")).body)


class _JsonNames(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        names = {"true": True, "false": False, "null": None}
        if node.id in ("NaN", "nan", "Infinity", "inf"):
            raise _Refused(f"{node.id} is not a number")
        return ast.Constant(names[node.id]) if node.id in names else node


def _as_json(node: ast.expr) -> Any:
    if isinstance(node, ast.Dict):
        if any(key is None for key in node.keys):
            raise ValueError("not a literal")
        pairs = [(_as_json(key), _as_json(value)) for key, value in zip(node.keys, node.values, strict=True) if key]
        if not all(isinstance(key, str) for key, _ in pairs):
            raise ValueError("a key is not text")
        return _unique(pairs)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_as_json(item) for item in node.elts]
    value = ast.literal_eval(node)
    if isinstance(value, float):
        return _finite(repr(value))
    if value is None or isinstance(value, (str, int)):
        return value
    raise ValueError("not of a JSON type")


def _chunks(text: str) -> Iterator[str]:
    """Each stretch from an opening bracket to the one that closes it, outermost only, in one pass.

    One that is never closed is the end: what is inside a cut-off object is not the object. Raises ValueError then.
    """
    start, depth, index = -1, 0, 0
    quote = ""
    while index < len(text):
        letter = text[index]
        if quote:
            if letter == "\\":
                index += 1
            elif letter == quote and (quote == '"' or _next(text, index) in ",:}]"):
                quote = ""
        elif depth and (letter == '"' or (letter == "'" and _previous(text, index) in "{[,:")):
            quote = letter
        elif letter in CLOSING:
            start = index if depth == 0 else start
            depth += 1
        elif depth and letter in "}]":
            depth -= 1
            if depth == 0:
                yield text[start : index + 1]
        index += 1
    if depth and text[start] == "{":
        raise CutOffError("the JSON is cut off before its end")


def _next(text: str, index: int) -> str:
    match = re.compile(r"\s*(\S)").match(text, index + 1)
    return match[1] if match else "}"


def _previous(text: str, index: int) -> str:
    while index > 0 and text[index - 1].isspace():
        index -= 1
    return text[index - 1] if index else "{"
