"""Asking models about videos, and measuring what they say."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.evaluation.runner import EvaluationOptions, run

# Imported when first used: a page needs no runner.
_PLACES = {"EvaluationOptions": "runner", "run": "runner"}

__all__ = ["EvaluationOptions", "run"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
