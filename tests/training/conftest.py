from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from .shapes_run import make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 training and 8 held-out clips of 8 to 12 seconds, their records, and a tokenizer."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of compiled programs for this session; the same run is compiled once."""
    folder = tmp_path_factory.mktemp("compiled")
    before = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
    jax.config.update("jax_compilation_cache_dir", str(folder))
    yield folder
    jax.config.update("jax_compilation_cache_dir", before)
