"""Each variant of the policy loss against numbers worked out by hand: two responses of 2 and 3 tokens, one row."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrjax.errors import InputError
from vrjax.training.policy_loss import (
    Counted,
    PolicyLossConfig,
    PolicyTargets,
    kl_divergence,
    policy_loss,
    token_weights,
)

PLAIN = PolicyLossConfig(kl_weight=0.0)
LENGTHS, COUNTED = [[2, 3]], [[True, True]]
OLD = np.array([[-1.0, -2.0, -0.5, -0.7, -3.0, 9.0]])  # the last one is padding
# ratios 1.5, .5 (response 1) and 1.1, 1.3, .7 (response 2)
NEW = OLD + np.log([[1.5, 0.5, 1.1, 1.3, 0.7, 1.0]])
ADVANTAGES = (1.0, -2.0)


def targets(config: PolicyLossConfig, advantages=ADVANTAGES, **more) -> PolicyTargets:
    weights = token_weights(LENGTHS, COUNTED, Counted.of(LENGTHS, COUNTED), config)[0]
    per_token = [weights[0]] * 2 + [weights[1]] * 3 + [0.0]
    signs = [advantages[0]] * 2 + [advantages[1]] * 3 + [0.0]
    return PolicyTargets(
        np.array([signs], np.float32),
        np.array([per_token], np.float32),
        np.array([per_token], np.float32),
        np.array([[0, 0, 1, 1, 1, 0]], np.int32),
        **{"old": jnp.asarray(OLD, jnp.float32), **more},
    )


def loss_of(config: PolicyLossConfig, **more) -> float:
    return float(policy_loss(jnp.asarray(NEW, jnp.float32), targets(config, **more), 2, config)[0])


# min(r A, clip(r) A): A = 1: 1.2, .5; A = -2: r 1.1 -> -2.2; 1.3 -> -2.6; .7 -> clip .8 -> min(-1.4, -1.6) = -1.6
GAINS = [1.2, 0.5, -2.2, -2.6, -1.6]


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (PLAIN, -((GAINS[0] + GAINS[1]) / 2 + sum(GAINS[2:]) / 3) / 2),
        (replace(PLAIN, loss_mean="token"), -sum(GAINS) / 5),
        (replace(PLAIN, loss_mean="constant", normaliser=10), -sum(GAINS) / 20),
        # upper clip .4: 1.5 -> 1.4
        (replace(PLAIN, loss_mean="token", clip_high=0.4), -(1.4 + 0.5 - 2.2 - 2.6 - 1.6) / 5),
        # lower clip .4: .7 stays -> -1.4
        (replace(PLAIN, loss_mean="token", clip_low=0.4), -(1.2 + 0.5 - 2.2 - 2.6 - 1.4) / 5),
        # ratio of the response: .75 and 1.001: A = 1: min(.75, .8) = .75; A = -2: -2.002
        (replace(PLAIN, ratio="response"), -(0.75 - 2 * 1.001) / 2),
        # geometric mean: sqrt(.75) and 1.001^(1/3)
        (replace(PLAIN, ratio="response_mean"), -(0.75**0.5 - 2 * 1.001 ** (1 / 3)) / 2),
    ],
)
def test_variants_by_hand(config, wanted) -> None:
    assert loss_of(config) == pytest.approx(wanted, rel=1e-5)


def test_clip_share_counts_where_the_clip_binds() -> None:
    config = replace(PLAIN, loss_mean="token")
    _, sums = policy_loss(jnp.asarray(NEW, jnp.float32), targets(config), 2, config)
    assert float(sums["clip_share"]) == pytest.approx(2 / 5)  # 1.5 with A = 1, .7 with A = -2


def test_sequence_mean_at_ratio_one_has_loss_zero_for_balanced_advantages() -> None:
    for mean in ("response", "constant"):
        config = replace(PLAIN, loss_mean=mean)
        found = policy_loss(jnp.asarray(OLD, jnp.float32), targets(config, advantages=(1.0, -1.0)), 2, config)[0]
        wanted = 0.0 if mean == "response" else -(2 - 3) / (2 * config.normaliser)
        assert float(found) == pytest.approx(wanted, abs=1e-7)


def test_without_old_log_probs_the_gradient_is_the_score_function() -> None:
    config = replace(PLAIN, loss_mean="token")
    gradient = jax.grad(lambda x: policy_loss(x, targets(config, old=None), 2, config)[0])(
        jnp.asarray(NEW, jnp.float32)
    )
    np.testing.assert_allclose(gradient[0], [-0.2, -0.2, 0.4, 0.4, 0.4, 0.0], rtol=1e-6)


@pytest.mark.parametrize(("d", "k3"), [(-0.5, 0.106531), (0.0, 0.0), (0.5, 0.148721), (3.0, 16.085537)])
def test_kl_estimators(d, k3) -> None:
    log_prob, reference = jnp.float32(-1.0), jnp.float32(-1.0 + d)
    assert float(kl_divergence(log_prob, reference, "k3")) == pytest.approx(k3, abs=2e-6)
    assert float(kl_divergence(log_prob, reference, "k1")) == pytest.approx(-d)
    assert float(kl_divergence(log_prob, reference, "k2")) == pytest.approx(d * d / 2)
    far = kl_divergence(jnp.float32(-50.0), jnp.float32(0.0), "k3")
    assert float(far) == pytest.approx(math.exp(10) - 11, rel=1e-5)  # clamped


def test_kl_term_by_hand_and_its_switch() -> None:
    config = PolicyLossConfig(kl_weight=0.5, loss_mean="token")
    reference = jnp.asarray(NEW + 0.5, jnp.float32)
    more = targets(config, reference=reference)
    loss, sums = policy_loss(jnp.asarray(NEW, jnp.float32), more, 2, config)
    assert float(sums["kl"]) == pytest.approx(0.148721, abs=1e-5)
    assert float(loss) == pytest.approx(loss_of(replace(PLAIN, loss_mean="token")) + 0.5 * 0.148721, abs=1e-5)
    off = replace(more, kl_weights=np.zeros_like(more.kl_weights))
    assert float(policy_loss(jnp.asarray(NEW, jnp.float32), off, 2, config)[1]["kl"]) == 0.0


def test_importance_weight_of_an_older_sampler_is_truncated() -> None:
    config = replace(PLAIN, loss_mean="token", importance_cap=2.0)
    sampler = jnp.asarray(OLD - np.log([[1.5, 3.0, 1.0, 1.0, 0.5, 1.0]]), jnp.float32)  # old / sampler
    wanted = -(1.5 * 1.2 + 2.0 * 0.5 - 2.2 - 2.6 - 0.5 * 1.6) / 5
    assert loss_of(config, sampler=sampler) == pytest.approx(wanted, rel=1e-5)


def test_weights_leave_out_what_is_not_counted() -> None:
    lengths, counted = [[2, 3], [5, 4]], [[True, False], [True, True]]
    total = Counted.of(lengths, counted)
    assert total == Counted(3, 11)
    response = token_weights(lengths, counted, total, PLAIN)
    assert response == [[1 / 6, 0.0], [1 / 15, 1 / 12]]
    token = token_weights(lengths, counted, total, replace(PLAIN, loss_mean="token"))
    assert token == [[1 / 11, 0.0], [1 / 11, 1 / 11]]


def test_padding_never_enters_even_where_it_is_not_finite() -> None:
    config = replace(PLAIN, loss_mean="token")
    wild = jnp.asarray(np.where(np.arange(6) == 5, np.inf, NEW), jnp.float32)
    value, gradient = jax.value_and_grad(lambda x: policy_loss(x, targets(config), 2, config)[0])(wild)
    assert float(value) == pytest.approx(loss_of(config))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("change", [{"clip_low": 1.0}, {"kl_weight": -1.0}, {"normaliser": 0}, {"importance_cap": 0.0}])
def test_settings_that_cannot_be(change) -> None:
    with pytest.raises(InputError, match="must"):
        PolicyLossConfig(**change)
