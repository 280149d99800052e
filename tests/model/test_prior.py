"""The prior in both coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nestbed.model.prior import Prior

FAMILIES = {
    "normal": dist.Normal(3.0, 2.0),
    "log_normal": dist.LogNormal(0.5, 0.4),
    "gamma": dist.Gamma(3.0, 2.0),
    "half_normal": dist.HalfNormal(2.0),
    "beta": dist.Beta(2.0, 5.0),
    "uniform": dist.Uniform(-1.0, 4.0),
    "truncated": dist.TruncatedNormal(1.0, 2.0, low=0.0),
    "student": dist.StudentT(4.0, 1.0, 2.0),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_density_integrates_to_one_and_has_the_right_mean(name):
    prior = Prior({"p": FAMILIES[name]})
    z = jnp.linspace(-60.0, 60.0, 400_001)
    density = jnp.exp(prior.log_density((z,)))
    density = jnp.where(jnp.isfinite(density), density, 0.0)
    assert float(jnp.trapezoid(density, z)) == pytest.approx(1.0, abs=2e-4)
    theta = prior.constrain((z,))[0]
    mean = float(jnp.trapezoid(jnp.where(density > 0, density * theta, 0.0), z))
    assert mean == pytest.approx(float(FAMILIES[name].mean), rel=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_lie_in_the_support_and_follow_the_distribution(name):
    prior = Prior({"p": FAMILIES[name]})
    z = prior.sample(jax.random.key(0), (1000,))
    theta = prior.constrain(z)
    assert bool(FAMILIES[name].support(theta[0]).all())
    np.testing.assert_allclose(
        theta[0], FAMILIES[name].sample(jax.random.split(jax.random.key(0), 1)[0], (1000,)), rtol=1e-9
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_scales_are_about_the_spread(name):
    prior = Prior({"p": FAMILIES[name]})
    z = np.asarray(prior.sample(jax.random.key(1), (100_000,))[0])
    low, high = np.quantile(z, [0.16, 0.84])
    assert prior.scales[0] == pytest.approx((high - low) / 2, rel=0.1)


def test_parameters_are_independent_and_in_order():
    prior = Prior({"a": dist.Normal(0.0, 1.0), "b": dist.Normal(100.0, 1.0)})
    a, b = prior.sample(jax.random.key(0), (4000,))
    assert float(b.mean()) > 50
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(4000)
