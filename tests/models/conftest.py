"""Two tiny models, built once: `periodic` scans the vision tower by periods, `irregular` run by run."""

import pytest

from .reference import Reference, build_reference, tiny_config


@pytest.fixture(scope="session")
def periodic() -> Reference:
    """Untied head; vision layers window, full, window, full."""
    return build_reference(tiny_config(tied=False, layers=4, full_layers=(1, 3)), seed=0)


@pytest.fixture(scope="session")
def irregular() -> Reference:
    """Tied head; vision layers full, window, full, full, window."""
    return build_reference(tiny_config(tied=True, layers=5, full_layers=(0, 2, 3)), seed=1)


@pytest.fixture(scope="session", params=["periodic", "irregular"])
def reference(request: pytest.FixtureRequest) -> Reference:
    return request.getfixturevalue(request.param)
