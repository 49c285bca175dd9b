"""METEOR 1.5 for English (Denkowski and Lavie 2014): exact, stem, synonym and paraphrase matches.

The program of its authors is run, as the COCO evaluation does; it and its tables come with the package pycocoevalcap,
and it needs Java. There is no other METEOR here: implementations without its paraphrase tables give other numbers.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Float

from vrjax.errors import InputError, RunError


def meteor_missing() -> str | None:
    """What METEOR lacks here, and how to get it; None where it can run."""
    lacking = []
    if shutil.which("java") is None:
        lacking.append("Java (apt-get install default-jre-headless)")
    if _jar() is None:
        lacking.append("pycocoevalcap (pip install 'vrjax[captions]')")
    return f"METEOR needs {' and '.join(lacking)}." if lacking else None


def meteor(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> tuple[float, Float[np.ndarray, " N"]]:
    """METEOR of all items together (not the mean over items), and of each. Arguments as in `bleu_statistics`.

    Raises InputError where Java or pycocoevalcap is missing, RunError where the program fails.
    """
    missing = meteor_missing()
    if missing is not None:
        raise InputError(f"{missing} Install it, or leave METEOR out (--metrics bleu cider).")
    with _Program() as program:
        counts = [
            program.ask(" ||| ".join(["SCORE", *(" ".join(text) for text in texts), " ".join(words)]))
            for words, texts in zip(predictions, references, strict=True)
        ]
        values = [program.number(program.ask(" ||| ".join(["EVAL", *counts])))]
        values.extend(program.number(program.read()) for _ in counts)
    return values[-1], np.array(values[:-1])


def _jar() -> Path | None:
    spec = find_spec("pycocoevalcap")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        jar = Path(folder) / "meteor" / "meteor-1.5.jar"
        if jar.is_file():
            return jar
    return None


class _Program:
    """The running program: a line in, a line out."""

    def __enter__(self) -> _Program:
        jar = _jar()
        assert jar is not None
        command = ["java", "-Dfile.encoding=UTF-8", "-Xmx2G", "-jar", jar.name, "-", "-", "-stdio", "-l", "en", "-norm"]
        self._complaints: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command, cwd=jar.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
            )
        except OSError as error:
            raise RunError(f"Java cannot be started for METEOR ({error.strerror}).") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except OSError:
            raise self._failure("it ended") from None
        return self.read()

    def read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line or line.startswith("Error"):
            raise self._failure(line.strip() or "it ended")
        return line.strip()

    def number(self, line: str) -> float:
        try:
            return float(line)
        except ValueError:
            raise self._failure(f"it wrote {line[:80]!r} in place of a number") from None

    def _failure(self, what: str) -> RunError:
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()
        return RunError(f"METEOR's program failed: {what}.{' Its last words: ' + said[-1] if said else ''}")
