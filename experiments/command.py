"""Experiments as commands: options from the command line, plain sentences for errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

import tyro

from vrjax.errors import VrjaxError

Options = TypeVar("Options")


class Ended(Protocol):
    """How a training run ended."""

    @property
    def ended(self) -> str: ...


def go_on_if_finished(result: Ended) -> None:
    """End the program where its training was asked to end (SIGTERM): a later call goes on from its checkpoint."""
    if result.ended != "finished":
        sys.exit(0)


def run_command(options: type[Options], run: Callable[[Options], int], module: str) -> NoReturn:
    """Parse `options`, run, and end the program with the exit code; an error that vrjax raised is one sentence."""
    chosen = tyro.cli(options, prog=f"python -m {module}")
    try:
        sys.exit(run(chosen))
    except VrjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
