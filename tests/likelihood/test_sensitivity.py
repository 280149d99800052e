"""The score and the information of histories against automatic differentiation of their density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_sensed import SensedLeak

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.likelihood import Kalman, history, sensitivity
from nestbed.likelihood.base import Record
from toys import Leak


class Noisy(Leak):
    """Noise that depends on the parameter."""

    diffusion = None

    def diffusion(self, x, u, theta):  # noqa: F811
        return 0.3 + 0.2 * theta.rate


def records(system, likelihood, count=3, steps=6):
    """Return records that need not be likely."""
    observations = jax.random.normal(jax.random.key(0), (count, steps + 1, len(system.observation_names)))
    return Record(observations, jax.random.uniform(jax.random.key(1), (count, steps, len(system.design_names))))


@pytest.mark.parametrize("name", ["leak", "noisy", "cart_pole", "sensed"])
@pytest.mark.parametrize("done", [4, 6])
def test_value_and_score_are_those_of_the_density(name, done):
    likelihood = {
        "leak": lambda: likelihoods.of(Leak()),
        "noisy": lambda: likelihoods.of(Noisy()),
        "cart_pole": lambda: likelihoods.of(nb.systems.load("cart_pole")),
        "sensed": lambda: Kalman(SensedLeak()),
    }[name]()
    system = likelihood.system
    record = records(system, likelihood)
    theta = tuple(jnp.full((3, 1), float(value)) for value in system.parameters.middle)
    count = jnp.asarray(done)

    def density(theta):
        return history.log_likelihood(likelihood, history.tabulate(record), count, theta)[1].sum()

    slopes = tuple(2.0 * jnp.ones_like(value) for value in theta)
    found = jax.jit(lambda: sensitivity.of_histories(likelihood, record, count, theta, slopes))()
    np.testing.assert_allclose(found.log_density.sum(), density(theta), rtol=1e-9)
    gradient = jnp.concatenate(jax.jit(jax.jacfwd(density))(theta), axis=1)
    np.testing.assert_allclose(found.score, 2.0 * gradient, rtol=1e-7, atol=1e-7)
    assert (np.linalg.eigvalsh(found.information) > -1e-9).all()


def test_the_information_is_the_variance_of_the_score():
    """20,000 records of noise that depends on the parameter: the mean square of the score, at 4.5 standard errors."""
    system = Noisy()
    likelihood = likelihoods.of(system)
    rate, rows, steps = 0.8, 20_000, 3
    theta = (jnp.full((rows, 1), rate),)
    u = jax.random.uniform(jax.random.key(2), (rows, steps, 1))
    y = [jnp.ones(rows)]
    for t in range(steps):
        (mean,), (variance,) = likelihood.predict((y[-1],), (u[:, t, 0],), (jnp.asarray(rate),))
        y.append(mean + jnp.sqrt(variance) * jax.random.normal(jax.random.key(10 + t), (rows,)))
    record = Record(jnp.stack(y, axis=1)[..., None], u)
    found = sensitivity.of_histories(likelihood, record, jnp.asarray(steps), theta, (jnp.ones((rows, 1)),))
    score, information = np.asarray(found.score[:, 0]), np.asarray(found.information[:, 0, 0])
    off = score**2 - information
    assert abs(off.mean()) < 4.5 * off.std() / np.sqrt(rows)
    assert abs(score.mean()) < 4.5 * score.std() / np.sqrt(rows)
    assert np.abs(off.mean()) < 0.1 * information.mean()
