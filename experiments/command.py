"""Experiments as commands: options from the command line, plain sentences for errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

import tyro

from vrjax.errors import VrjaxError

Options = TypeVar("Options")


def run_command(options: type[Options], run: Callable[[Options], int], module: str) -> NoReturn:
    """Parse `options`, run, and end the program with the exit code; an error that vrjax raised is one sentence."""
    chosen = tyro.cli(options, prog=f"python -m {module}")
    try:
        sys.exit(run(chosen))
    except VrjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
