"""The tail that few draws show: against the distributions they are of."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestbed.numerics import tails


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("p", [1e-2, 1e-4])
def test_a_lognormal_has_its_own_tail(spread, p):
    """By its own moments, whatever its place and scale."""
    law = stats.lognorm(spread)
    mean, variance, skewness = law.stats("mvs")
    found = tails.lognormal_tail((law.isf(p) - mean) / np.sqrt(variance), jnp.asarray(skewness))
    assert float(found) == pytest.approx(p, rel=1e-6)


def test_without_skewness_it_is_that_of_a_normal():
    far = jnp.array([-3.0, 0.0, 2.0, 4.0])
    np.testing.assert_allclose(tails.lognormal_tail(far, jnp.zeros(4)), stats.norm.sf(far), rtol=0.02)


@pytest.mark.parametrize("law", [stats.norm(), stats.lognorm(0.5), stats.gamma(2.0), stats.halfnorm()])
def test_a_thousand_draws_tell_of_one_in_four_thousand(law):
    """On average over 400 clouds no less than it is, and no more than eight times that."""
    p = 1.0 / 4000.0
    draws = law.rvs((400, 1000), random_state=np.random.default_rng(0)) - law.isf(p)
    found = np.asarray(tails.above_zero(jnp.full(1000, 1e-3), jnp.asarray(draws)))
    assert p < found.mean() < 8.0 * p
    counted = np.mean(draws > 0.0, axis=1)
    assert np.median(counted) == 0.0  # what would be said without a tail
    assert np.median(found) > 0.25 * p


def test_what_is_seen_counts():
    """A few draws apart from all others are as likely as they are many, and draws that are all alike are sure."""
    values = jnp.concatenate([jnp.full(995, -1.0), jnp.full(5, 0.1)])
    weights = jnp.full(1000, 1e-3)
    assert float(tails.above_zero(weights, values)) == pytest.approx(0.005, rel=1.0)
    assert float(tails.above_zero(weights, jnp.full(1000, 0.3))) == pytest.approx(1.0)
    assert float(tails.above_zero(weights, jnp.full(1000, -0.3))) == 0.0
