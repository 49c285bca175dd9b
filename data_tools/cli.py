"""The `vrjax-data` command: tools that make, check and review data."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from vrjax.errors import VrjaxError

# name → (module, class, what it does in one line); the module is imported only when its command is run.
COMMANDS = {
    "eg-vqa": ("data_tools.eg_vqa.command", "EgVqa", "build EG-VQA: read, curate, generate, screen, audit, split"),
    "cognitive": ("data_tools.cognitive.command", "Cognitive", "measure how deep questions and answers are"),
    "moviecore": ("data_tools.moviecore.command", "MovieCore", "write MovieCORE: context, discussion, export"),
    "review": ("data_tools.review.command", "Review", "let people judge: add items, serve the page, export, table"),
    "shapes": ("data_tools.shapes.command", "Shapes", "make clips of coloured shapes with questions and evidence"),
}


def usage() -> str:
    """The text of `vrjax-data --help`."""
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:<{width}}  {summary}" for name, (_, _, summary) in COMMANDS.items()]
    return "\n".join(["usage: vrjax-data COMMAND [options]", "", "commands:", *lines, "", "vrjax-data COMMAND --help"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 the run failed, 2 bad usage or input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in ("-h", "--help"):
        print(usage())
        return 0
    if not words or words[0] not in COMMANDS:
        problem = f"unknown command {words[0]!r}" if words else "no command given"
        print(f"error: {problem}\n\n{usage()}", file=sys.stderr)
        return 2
    import tyro

    module, name, _ = COMMANDS[words[0]]
    command = tyro.cli(getattr(importlib.import_module(module), name), args=words[1:], prog=f"vrjax-data {words[0]}")
    try:
        return command.run()
    except VrjaxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
