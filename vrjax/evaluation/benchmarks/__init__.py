"""The benchmarks by name; each is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark

# name on the command line → module and class
PLACES = {"eg_vqa": ("vrjax.evaluation.benchmarks.eg_vqa", "EgVqa")}


def benchmark_class(name: str) -> type[Benchmark]:
    """The class of a benchmark. Raises InputError naming those that there are."""
    if name not in PLACES:
        raise InputError(f"{name!r}: there is no such benchmark. There are {', '.join(PLACES)}, or give a Python file.")
    module, title = PLACES[name]
    return getattr(import_module(module), title)
