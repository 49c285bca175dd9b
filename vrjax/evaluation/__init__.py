"""Asking models about videos, and measuring what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrjax.evaluation.parsing import parse_choice, parse_spans

__all__ = ["parse_choice", "parse_spans"]


def __getattr__(name: str) -> Any:  # imported when first used: a report needs no parser
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vrjax.evaluation import parsing

    return getattr(parsing, name)
