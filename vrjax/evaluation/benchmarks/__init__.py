"""The benchmarks by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark

BENCHMARKS = {"eg_vqa": "EgVqa"}
"""Class by name; the module has the benchmark's name."""


def load_benchmark(name: str) -> type[Benchmark]:
    """The class of a benchmark. Raises InputError that lists the names where there is none of this one."""
    if name not in BENCHMARKS:
        raise InputError(f"{name!r} is no benchmark. Choose one of: {', '.join(BENCHMARKS)}.")
    return getattr(import_module(f"{__name__}.{name}"), BENCHMARKS[name])
