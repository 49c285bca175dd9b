"""`vrjax convert-gguf`: make a Hugging Face directory of a llama.cpp file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class ConvertGguf:
    """Write the Llama in a GGUF file (llama.cpp's form) as a Hugging Face directory that vrjax and transformers load.

    Quantised weights are written as the numbers that they stand for. Needs the package gguf: pip install 'vrjax[gguf]'.

    Examples::

        vrjax convert-gguf SmolLM2-135M-Instruct.Q4_1.gguf smollm2
        vrjax convert-gguf Llama-3.2-1B-Instruct-Q8_0.gguf llama --dtype bfloat16
    """

    file: tyro.conf.Positional[Path]
    """A .gguf file of a Llama."""
    out: tyro.conf.Positional[Path]
    """Directory to make; it must not hold anything yet."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the written weights."""

    def run(self) -> int:
        """Convert and return the exit code."""
        from rich.console import Console

        from vrjax.loading import load_gguf, save

        model = load_gguf(self.file, dtype=self.dtype)
        save(model, self.out)
        form = model.chat.form
        note = "chat template of an unknown form" if form is None else f"chat form: {form.name}"
        Console(stderr=True).print(f"{self.out}: written ({note}).", markup=False, highlight=False)
        return 0
