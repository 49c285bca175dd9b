"""A tool is a typed function with a docstring: its signature and docstring are all that an agent sees of it.

    from vrjax.agents import ToolContext, Video, tool

    @tool
    async def count_cuts(context: ToolContext, video: Video) -> int:
        \"\"\"Count the cuts in a video.\"\"\"

A first parameter that is a ToolContext is filled in, and the agent does not see it. Functions may be async or not.
"""

from __future__ import annotations

import asyncio
import inspect
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrjax.agents.tools.context import ToolContext
from vrjax.agents.video_handle import Video, as_video
from vrjax.errors import InputError
from vrjax.user_files import run_file


@dataclass(frozen=True)
class Tool:
    """name, signature and docstring as an agent sees them.

    wants_context: whether `function` takes a ToolContext first. videos: names of the parameters that are videos.
    answers: kinds of question that this tool alone can answer, by `answer(context) -> (answer, reasoning)`.
    """

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    docstring: str
    wants_context: bool
    videos: frozenset[str]
    answers: tuple[str, ...] = ()
    answer: Callable[..., Any] | None = None

    @property
    def head(self) -> str:
        """The function's first line."""
        return f"def {self.name}{_signature_text(self.signature)}:"

    @property
    def text(self) -> str:
        """The function's head and docstring."""
        return f"{self.head}\n{textwrap.indent(chr(34) * 3 + self.docstring + chr(34) * 3, '    ')}"

    def bind(self, whole: Video, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, defaults filled in, videos checked. Raises TypeError or ValueError."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        for name in self.videos & set(arguments):
            if arguments[name] is None:
                arguments[name] = whole
            try:
                arguments[name] = as_video(arguments[name], whole)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self.name}(): {name}: {error}") from None
        for name, value in arguments.items():
            if self.signature.parameters[name].annotation in (str, "str") and not isinstance(value, str):
                raise TypeError(f"{self.name}(): {name} must be text, not {type(value).__name__}")
        return arguments

    async def call(self, context: ToolContext, arguments: Mapping[str, Any]) -> Any:
        """Run the function; one that is not async runs in a thread, so that nothing else waits for it."""
        given = (context,) if self.wants_context else ()
        if inspect.iscoroutinefunction(self.function):
            return await self.function(*given, **arguments)
        return await asyncio.to_thread(self.function, *given, **arguments)


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function. Raises InputError where its signature or docstring would tell an agent too little."""
    name = getattr(function, "__name__", "")
    where = f"{inspect.getsourcefile(function) or 'tool'}: {name}"
    if not name.isidentifier() or inspect.isclass(function):
        raise InputError(f"{where}: is not a named function. Decorate a function.")
    docstring = inspect.getdoc(function)
    if not docstring:
        raise InputError(f"{where}: has no docstring, which is what an agent reads. Say what it does and returns.")
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise InputError(f"{where}: its types cannot be read ({error}). Import what they name.") from error
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    wants_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    shown = parameters[1:] if wants_context else parameters
    for parameter in shown:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InputError(f"{where}: the parameter {parameter.name} cannot be shown to an agent. Name each one.")
        if parameter.name not in hints:
            raise InputError(f"{where}: the parameter {parameter.name} has no type. Add one.")
    if "return" not in hints:
        raise InputError(f"{where}: has no return type. Add one.")
    signature = signature.replace(
        parameters=[parameter.replace(annotation=hints[parameter.name]) for parameter in shown],
        return_annotation=hints["return"],
    )
    videos = frozenset(one.name for one in shown if hints[one.name] is Video or hints[one.name] == Video | None)
    return Tool(name, function, signature, docstring, wants_context, videos)


def load_tools(path: Path) -> tuple[Tool, ...]:
    """The tools that a file defines. The file is run as a Python program with the rights of this process.

    Raises InputError where it fails, or decorates no function with `tool`.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give the Python file that defines the tools.")
    module = run_file(path, "tools")
    found = tuple(
        value
        for value in vars(module).values()
        if isinstance(value, Tool) and value.function.__module__ == module.__name__
    )
    if not found:
        raise InputError(f"{path}: defines no tool. Decorate a typed function with @vrjax.agents.tool.")
    return found


def api_text(tools: Sequence[Tool]) -> str:
    """What an agent reads of its tools."""
    return "\n\n".join(one.text for one in tools)


def _signature_text(signature: inspect.Signature) -> str:
    parameters = []
    for parameter in signature.parameters.values():
        text = f"{parameter.name}: {_type_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        parameters.append(text)
    return f"({', '.join(parameters)}) -> {_type_text(signature.return_annotation)}"


def _type_text(annotation: Any) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return "None" if annotation is type(None) else annotation.__name__
    return str(annotation).replace("vrjax.agents.video_handle.", "").replace("typing.", "")
