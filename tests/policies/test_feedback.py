"""Feedback on a plan: what it knows of where the plan leads."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nestbed as nb
from nestbed.policies import feedback


class Unstable(nb.System):
    """A level that a few rigs of a wide prior cannot hold: it runs away to infinity."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"growth": dist.LogNormal(-4.0, 2.0)}
    step, diffusion, integrator = 0.5, (0.1,), "euler"
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        return theta.growth * x.level**3 - 0.1 * x.level + u.flow


def test_rigs_that_run_away_leave_the_plan_as_it_is():
    """The plan alone, and with feedback that says nothing yet, gives designs wherever other rigs went."""
    system = Unstable()
    plan = jnp.full((20, 1), 0.5)
    policy = feedback.begin(jax.random.key(0), system, plan, 8)
    assert np.isfinite(policy.expected).all()
    assert np.isfinite(policy.spread).all()
    carry, u = policy.init(), jnp.zeros(1)
    for _ in range(20):
        carry, u = policy.step(jax.random.key(1), carry, jnp.ones(1), u)
        np.testing.assert_allclose(u, 0.5, rtol=1e-6)


def test_what_ordinary_rigs_show_has_its_mean_and_deviation():
    seen = jax.random.normal(jax.random.key(0), (64, 3, 2))
    mean, deviation = feedback._middle_and_spread(seen)
    np.testing.assert_array_equal(mean, jnp.mean(seen, axis=0))
    np.testing.assert_array_equal(deviation, jnp.std(seen, axis=0))
    mean, deviation = feedback._middle_and_spread(seen.at[:2].set(jnp.array(jnp.inf)).at[2].set(1e200))
    assert np.abs(mean).max() < 1.0
    assert 0.3 < deviation.min() <= deviation.max() < 2.0
