"""Asking models about videos, and measuring what they say."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.evaluation.parsing import parse_choice, parse_spans
    from vrjax.evaluation.runner import EvaluationOptions, run

# Imported when first used: a page needs no runner.
_PLACES = {"EvaluationOptions": "runner", "parse_choice": "parsing", "parse_spans": "parsing", "run": "runner"}

__all__ = ["EvaluationOptions", "parse_choice", "parse_spans", "run"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
