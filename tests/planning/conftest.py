from pathlib import Path

import pytest

from tests.training.shapes_run import make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few clips of one length, their records, and a tokenizer."""
    return make_world(tmp_path_factory.mktemp("world"), train=4, val=2)
