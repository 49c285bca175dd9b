"""The audit's arithmetic and its bounds."""

import jax.numpy as jnp
import numpy as np
import pytest

from vrjax.training.policy.audit import BOUNDS, AuditBounds, compare
from vrjax.training.policy.config import AuditConfig


def test_only_present_tokens_are_compared() -> None:
    recorded = np.array([[-1.0, -2.0, 5.0]])
    found = compare(recorded, np.array([[-1.5, -2.1, -9.0]]), np.array([[1.0, 1.0, 0.0]]))
    assert found.most == pytest.approx(0.5)
    assert found.mean == pytest.approx(0.3)
    assert found.tokens == 2


def test_a_nan_is_an_infinite_difference() -> None:
    found = compare(np.array([[np.nan]]), np.array([[-1.0]]), np.ones((1, 1)))
    assert found.most == np.inf
    assert found.fault(AuditBounds(1e9, 1e9)) is not None


def test_no_token_is_no_fault() -> None:
    found = compare(np.zeros((1, 2)), np.ones((1, 2)), np.zeros((1, 2)))
    assert found.fault(AuditBounds(0.0, 0.0)) is None


def test_either_bound_trips() -> None:
    found = compare(np.zeros((1, 4)), np.array([[0.4, 0.0, 0.0, 0.0]]), np.ones((1, 4)))
    assert found.fault(AuditBounds(0.5, 0.2)) is None
    assert "0.4 nats at most" in (found.fault(AuditBounds(0.3, 0.2)) or "")
    assert found.fault(AuditBounds(0.5, 0.05)) is not None


def test_bounds_are_those_of_the_compute_type_unless_given() -> None:
    assert AuditBounds.of(AuditConfig(), jnp.float32) == AuditBounds(*BOUNDS["float32"])
    assert AuditBounds.of(AuditConfig(mean=0.5), jnp.bfloat16) == AuditBounds(BOUNDS["bfloat16"][0], 0.5)
