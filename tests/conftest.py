"""Compiled programs are kept between tests, and between runs, so that none is compiled twice."""

import os
from pathlib import Path

PROGRAMS = Path(__file__).parent.parent / ".pytest_cache" / "programs"
# Set before JAX is imported; processes that tests start inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(PROGRAMS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
