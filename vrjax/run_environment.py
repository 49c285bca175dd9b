"""What a run ran on: versions, the code's commit, devices, and how it was started."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = ("vrjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "transformers", "numpy")
KEPT = ("SLURM_", "TPU_", "LIBTPU_", "MEGASCALE_", "JAX_", "XLA_", "VRJAX_", "CUDA_VISIBLE_", "NVIDIA_VISIBLE_")
"""How names of environment variables begin that tell of launchers and devices; no others are kept."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "JWT", "CREDENTIAL")
"""What such a name must not hold."""


def environment() -> dict[str, Any]:
    """What this process runs on, for JSON. Variables of the environment only where they hold no secrets."""
    content: dict[str, Any] = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "commit": commit_of(Path(__file__)),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu_count": os.cpu_count(),
        "variables": kept_variables(os.environ),
    }
    if (jax := sys.modules.get("jax")) is not None:  # a run that uses no device starts none
        content["backend"] = jax.default_backend()
        content["devices"] = [str(device) for device in jax.devices()]
        content["device_kinds"] = sorted({device.device_kind for device in jax.devices()})
        content["processes"] = jax.process_count()
    return {**content, "packages": {name: _version(name) for name in PACKAGES}}


def kept_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of launchers and devices, without keys and the like."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(KEPT) and not any(word in name.upper() for word in SECRET)
    }


def commit_of(file: Path) -> str | None:
    """The git commit that a source file is of, with "+ changes" where its repository has some; None outside of one.

    A file that the repository does not track, such as an installed package in somebody's project, is outside.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    commit = _git(file.parent, "rev-parse", "HEAD")
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{commit} + changes" if commit and changes else commit


def _git(folder: Path, *words: str) -> str | None:
    """What git prints; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
