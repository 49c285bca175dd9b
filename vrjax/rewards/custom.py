"""A user's own reward, in a file of its own: `my_reward.py:name`."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path

from vrjax.errors import InputError
from vrjax.rewards.reward import RewardFunction


def load_reward(reference: str) -> RewardFunction:
    """The reward that `PATH.py:NAME` names: a function, sync or async, or an object that can be called as one.

    The file is run, once per call of this function, as a Python program with the rights of this process.

    Raises:
        InputError: the reference has another form; there is no such file or name in it; the file fails when run (the
            sentence says at which line); what it names cannot be called with (prompt, response, record).
    """
    location, separator, name = reference.rpartition(":")
    if not separator or not location.endswith(".py") or not name.isidentifier():
        raise InputError(f"the reward {reference!r} cannot be read. Write it as FILE.py:NAME.")
    path = Path(location)
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give the Python file that defines the reward {name!r}.")
    reward = getattr(_run(path), name, None)
    if reward is None:
        raise InputError(f"{path}: defines no {name!r}. Correct the name behind the colon in {reference!r}.")
    _check_signature(reward, reference)
    return reward


def _run(path: Path):
    # Two files of the same name in different folders are two modules.
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module_name = f"vrjax_reward_{path.stem}_{digest}"
    specification = importlib.util.spec_from_file_location(module_name, path)
    if specification is None or specification.loader is None:
        raise InputError(f"{path}: is not a Python file. Give one.")
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module  # so that its functions and classes can be found by name
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise InputError(f"{path}: fails when run{_line(error, path)} ({type(error).__name__}: {error}).") from error
    return module


def _line(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _check_signature(reward: object, reference: str) -> None:
    if isinstance(reward, type):
        raise InputError(f"the reward {reference!r} is a class. Name an object of it, or a function.")
    if not callable(reward):
        raise InputError(f"the reward {reference!r} is of type {type(reward).__name__}. Name a function.")
    try:
        inspect.signature(reward).bind("prompt", "response", "record")
    except TypeError as error:
        raise InputError(
            f"the reward {reference!r} cannot be called with (prompt, response, record): {error}. "
            "Give it these three arguments."
        ) from error
    except ValueError:
        pass  # a function from C without a signature
