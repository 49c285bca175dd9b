"""A user's own reward, in a file of its own: `my_reward.py:name`."""

from __future__ import annotations

import inspect
from pathlib import Path

from vrjax.errors import InputError
from vrjax.rewards.reward import RewardFunction
from vrjax.user_files import run_file


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
    reward = getattr(run_file(path, "reward"), name, None)
    if reward is None:
        raise InputError(f"{path}: defines no {name!r}. Correct the name behind the colon in {reference!r}.")
    _check_signature(reward, reference)
    return reward


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
