"""`vrjax export`: write a run's checkpoint, or any model, as a Hugging Face directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Export:
    """Write a Hugging Face directory that transformers and vLLM load.

    The source is a run directory of `vrjax train` (its best checkpoint by the validation metric, else its last), one
    checkpoint of a run (`runs/x/checkpoints/500`), a Hugging Face directory, or a hub id.

    Examples::

        vrjax export runs/demo exported
        vrjax export runs/demo exported --step 500 --dtype bfloat16
        vrjax export Qwen/Qwen2.5-VL-3B-Instruct copy
    """

    source: tyro.conf.Positional[str]
    """Run directory, checkpoint of a run, model directory or hub id."""
    out: tyro.conf.Positional[Path]
    """Directory to make; it must not hold anything yet."""
    step: int | None = None
    """Which checkpoint of the run (default: the best, else the last)."""
    dtype: Literal["stored", "float32", "bfloat16"] = "stored"
    """Type of the written weights."""
    shard_gb: float = 5.0
    """Largest weight file in gigabytes (10^9 bytes)."""

    def run(self) -> int:
        """Load, write, and return the exit code."""
        from rich.console import Console

        from vrjax.errors import InputError
        from vrjax.loading import is_run, load, load_run, save

        if self.shard_gb <= 0:
            raise InputError(f"--shard-gb {self.shard_gb} is not above 0. Give the size of a weight file in gigabytes.")
        dtype = None if self.dtype == "stored" else self.dtype
        note = ""
        if is_run(self.source):
            model, step = load_run(self.source, step=self.step, dtype=dtype)
            note = f", step {step} of the run"
        elif self.step is not None:
            raise InputError(f"{self.source}: --step names a checkpoint of a run, and this is none. Leave --step out.")
        else:
            model = load(self.source, dtype=dtype or "stored")
        save(model, self.out, shard_bytes=int(self.shard_gb * 10**9))
        Console(stderr=True).print(f"{self.out}: written{note}.", markup=False, highlight=False)
        return 0
