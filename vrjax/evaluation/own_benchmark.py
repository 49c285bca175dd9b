"""A benchmark by name, or a user's own in one Python file."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark
from vrjax.evaluation.benchmarks import load_benchmark
from vrjax.user_files import run_file


def find_benchmark(name: str) -> type[Benchmark]:
    """The class that a name stands for, or the one that a file `my_bench.py` defines.

    The file is run as a Python program with the rights of this process. Raises InputError where there is no such name
    or file, the file fails (the sentence says at which line), or it defines no benchmark, or several.
    """
    if not name.endswith(".py"):
        return load_benchmark(name)
    path = Path(name)
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give the Python file that defines a benchmark.")
    module = run_file(path, "benchmark")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Benchmark) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(one.__name__ for one in found) or "none"
        raise InputError(f"{path}: must define one subclass of Benchmark, defines {names}.")
    lacking = sorted(getattr(found[0], "__abstractmethods__", ()))
    lacking += [name for name in ("name", "headline", "prompt") if not hasattr(found[0], name)]
    if lacking:
        raise InputError(f"{path}: {found[0].__name__} lacks {', '.join(lacking)}. Define them.")
    return found[0]


def make_benchmark(kind: type[Benchmark], arguments: Sequence[str] = ()) -> Benchmark:
    """A benchmark with its options given as `--field value`; wrong ones end the program with exit code 2."""
    import tyro

    if not arguments and not inspect.signature(kind).parameters:
        return kind()
    return tyro.cli(kind, args=list(arguments), prog=f"vrjax evaluate {kind.name} --benchmark.FIELD")
