"""Decoded videos kept on disk, so that later epochs and runs map patches into memory instead of decoding again."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from vrjax.errors import RunError


@dataclass(frozen=True)
class PatchCache:
    """One `.npy` file of uint8 patches a FramePlan, named by the plan's hash (file identity, options, frames)."""

    folder: Path

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.npy"

    def read(self, key: str, rows: int) -> UInt8[np.ndarray, "S V"] | None:
        """The patches as a memory map, or None where they are not there or are not `rows` patches."""
        try:
            patches = np.load(self._path(key), mmap_mode="r", allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError):
            return None
        return patches if patches.dtype == np.uint8 and patches.ndim == 2 and len(patches) == rows else None

    def write(self, key: str, patches: UInt8[np.ndarray, "S V"]) -> None:
        """Keep the patches; the file appears only when whole. Raises RunError where it cannot be written."""
        path = self._path(key)
        partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                np.save(file, patches)
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RunError(
                f"{path}: cannot be written ({error}). Free some space, or train without cache_dir."
            ) from error
