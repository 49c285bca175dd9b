"""Experiments: Python files that set `config`, changed from the command line field by field."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vrjax.errors import InputError


def load_experiment(path: str | Path) -> Any:
    """Run an experiment file and return its `config`. Raises InputError where there is no file or no such dataclass."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such experiment. Give a Python file that sets `config`.")
    name = f"vrjax_experiment_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise InputError(f"{path}: is not a Python file. Give one that sets `config`.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # so that functions and classes of the file can be found by name
    specification.loader.exec_module(module)
    config = getattr(module, "config", None)
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise InputError(f"{path}: sets no `config`. Assign one of vrjax.training's configurations to that name.")
    return config


def override(config: Any, arguments: Sequence[str], prog: str) -> Any:
    """Apply `--field.path value` arguments to a configuration; wrong ones end the program with exit code 2."""
    import tyro

    return tyro.cli(
        type(config),
        default=config,
        args=list(arguments),
        prog=prog,
        description="Fields of this experiment and their values; any of them can be given.",
        config=(tyro.conf.AvoidSubcommands,),
    )
