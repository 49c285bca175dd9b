"""Errors a person can act on.

Each message is a plain sentence that says what is wrong, where (file, record id, field) and what to do.
`exit_code` is what the command line returns: 1 the run failed, 2 bad usage or input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class VrjaxError(Exception):
    """Base of all errors that vrjax raises on purpose; shown without a traceback on the command line."""

    exit_code = 1


class InputError(VrjaxError):
    """Something given by the user (a file, a record, an option) cannot be used as it is."""

    exit_code = 2


class VideoError(InputError):
    """A video cannot be read. `kind` is one of the named reasons of `vrjax.video.inspection`."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self):  # keeps `kind` when the error crosses a process boundary
        return (type(self), (self.args[0], self.kind))


class CheckpointError(InputError):
    """A checkpoint does not fit the model: a tensor is missing, spare, misshapen or unreadable."""


class RunError(VrjaxError):
    """A run cannot go on (non-finite loss, too many bad records, disk full, quality gate not held)."""


def listed(names: Sequence[Any], most: int = 5) -> str:
    """The first names of a list, and how many more there are, for a message."""
    shown = ", ".join(str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
