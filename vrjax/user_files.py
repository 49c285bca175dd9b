"""Python files of a user's own (a reward, a benchmark), run as modules."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from vrjax.errors import InputError


def run_file(path: Path, kind: str) -> ModuleType:
    """Run a file as a Python program with the rights of this process, and return what it defines.

    kind: what the file is, one word of the module's name. Raises InputError where it is no Python file or fails; the
    sentence says at which line.
    """
    # Two files of the same name in different folders are two modules.
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"vrjax_{kind}_{path.stem}_{digest}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise InputError(f"{path}: is not a Python file. Give one.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # so that its functions and classes can be found by name
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{path}: fails when run{_line(error, path)} ({type(error).__name__}: {error}).") from error
    return module


def _line(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
