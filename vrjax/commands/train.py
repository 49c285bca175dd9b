"""`vrjax train`: run an experiment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

CACHE = "xla"


@dataclass(frozen=True)
class Train:
    """Train as an experiment file says: supervised fine-tuning or policy optimisation, after the type of its `config`.

    Goes on by itself where the run directory holds checkpoints. SIGTERM saves a checkpoint and ends with exit code 0.
    Any field of the configuration can be changed after the file's name; `vrjax train FILE --help` lists them. The
    command's own options stand before it.

    Examples::

        vrjax train experiments/sft.py
        vrjax train experiments/sft.py --run-dir runs/second --optimizer.learning-rate 2e-5 --seed 1
    """

    valued: ClassVar[tuple[str, ...]] = ("--compilation-cache", "--roll-call-s")
    """Own options that are followed by a value."""

    experiment: tyro.conf.Positional[Path]
    """Python file that sets `config`."""
    compilation_cache: Path | None = None
    """Where compiled programs are kept for the next start; by default `vrjax/xla` in the user's cache folder."""
    roll_call_s: float = 300.0
    """Seconds within which all processes of a run must be there; past that it is said which are not."""
    no_compilation_cache: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep no compiled programs."""

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
        """The command's own arguments, the experiment's file being the last, and those that change its fields."""
        skip = False
        for index, word in enumerate(arguments):
            if not skip and not word.startswith("-"):
                return list(arguments[: index + 1]), list(arguments[index + 1 :])
            skip = not skip and word in cls.valued
        return list(arguments), []

    def run(self, rest: Sequence[str] = ()) -> int:
        """Train, and return the exit code. rest: fields to change, `--field.path value …`."""
        import jax

        from vrjax.errors import InputError
        from vrjax.processes import find_processes, start
        from vrjax.run_directory import digest
        from vrjax.training.config import SftConfig
        from vrjax.training.experiment import load_experiment, override
        from vrjax.training.policy.config import GrpoConfig
        from vrjax.training.policy_optimisation import grpo
        from vrjax.training.supervised import sft

        config = override(load_experiment(self.experiment), rest, f"vrjax train {self.experiment}")
        if not self.no_compilation_cache:
            jax.config.update("jax_compilation_cache_dir", str(self.compilation_cache or _default_cache()))
        processes = find_processes(os.environ)
        if processes is not None:
            start(processes, digest(config), time_limit_s=self.roll_call_s)
        if isinstance(config, SftConfig):
            result = sft(config)
        elif isinstance(config, GrpoConfig):
            result = grpo(config)
        else:
            raise InputError(f"{self.experiment}: there is no trainer for a {type(config).__name__}.")
        shown = {name: value for name, value in result.metrics.items() if "/" not in name or "validation" in name}
        figures = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        print(f"{result.run_dir}: {result.ended} after step {result.step}  {figures}".rstrip())
        return 0


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrjax" / CACHE
