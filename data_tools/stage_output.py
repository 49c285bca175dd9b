"""What a stage prints: a bar and sentences on standard error, figures on standard output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that is called with (done, total); the bar is shown where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def say(text: str) -> None:
    """One line for people; text from elsewhere is shown as it is."""
    from rich.console import Console

    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def print_figures(figures: dict[str, Any], as_json: bool) -> None:
    """Figures as JSON, or as indented lines."""
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, number in value.items():
                print(f"  {key}: {json.dumps(number) if isinstance(number, dict | list) else number}")
        else:
            print(f"{name}: {value}")
