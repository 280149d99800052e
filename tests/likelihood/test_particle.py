"""Particle filters of hidden states: unbiased where the Gaussian filter is exact, and right where it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from test_kalman import BiasedCart, Cart, LateCart, table_of, with_gaps

import nestbed as nb
from nestbed.likelihood import Kalman, Particle, history
from nestbed.likelihood.base import Record
from nestbed.likelihood.simulation import play

THETA = (0.7, 1.1)


@pytest.fixture(scope="module")
def data():
    """A record of the model: particles cannot follow what it never does."""
    forces = np.random.default_rng(3).uniform(-1.0, 1.0, 7)
    theta = tuple(jnp.array([value]) for value in THETA)
    record = play(jax.random.key(1), Cart(), jnp.asarray(forces)[None, :, None], theta).record
    return np.asarray(record.observations[0]), forces


def density(likelihood, observations, designs, theta=THETA, count=None):
    table = history.tabulate(Record(jnp.asarray(observations)[None], jnp.asarray(designs)[None]))
    theta = tuple(jnp.full((1, 1), value) for value in theta)
    steps = jnp.asarray(len(designs) if count is None else count)
    return float(jax.jit(lambda theta: history.log_likelihood(likelihood, table, steps, theta)[1])(theta)[0, 0])


@pytest.mark.parametrize("kind", [Cart, LateCart])
def test_it_agrees_with_the_gaussian_filter_where_that_is_exact(kind, data):
    """4096 state particles, whose log-density errs by about 0.02."""
    seen, forces = data
    exact = density(Kalman(kind()), seen, forces[:, None])
    got = density(Particle(kind(state_particles=4096)), seen, forces[:, None])
    assert abs(got - exact) < 0.1


def test_gaps_and_new_records(data):
    seen, forces = with_gaps(data)
    system = Cart(state_particles=4096)
    table = table_of(system, [seen, seen[:4]], [forces[:, None], forces[:3, None]])
    rows = table.record.observations[0], table.record.designs[0]
    assert abs(density(Particle(system, given=True), *rows) - density(Kalman(system, given=True), *rows)) < 0.1


def test_a_first_observation_that_tells_of_the_parameters_counts(data):
    seen, forces = data
    theta = (*THETA, 0.15, 0.1)
    exact = density(Kalman(BiasedCart()), seen, forces[:, None], theta)
    assert abs(density(Particle(BiasedCart(state_particles=4096)), seen, forces[:, None], theta) - exact) < 0.1


class Square(nb.System):
    """A level of unknown sign whose square is seen: no Gaussian knows both."""

    state = ("level",)
    designs = nb.Box(push=(-1.0, 1.0))
    prior = {"rate": dist.LogNormal(0.0, 0.3)}
    start = dist.Normal(0.5, 1.0)
    sensors = {"square": 0.3}
    step, diffusion, noise_floor, integrator = 0.5, (0.5,), 0.0, "euler"
    defaults = nb.Defaults(horizon=4)

    def drift(self, x, u, theta):
        return -theta.rate * x.level + u.push

    def observe(self, x, theta):
        return x.level**2


def by_grid(seen, pushes, rate):
    """Return log p(seen | rate) but for the first, on a grid of levels."""
    level = np.linspace(-6.0, 6.0, 2401)
    belief = np.exp(-0.5 * (level - 0.5) ** 2)
    total = []
    for t, y in enumerate(seen):
        if t:
            mean = level - 0.5 * rate * level + 0.5 * pushes[t - 1]
            belief = np.exp(-0.5 * (level[:, None] - mean) ** 2 / 0.125) @ belief
        belief /= belief.sum()
        shown = np.exp(-0.5 * ((y - level**2) / 0.3) ** 2) / (0.3 * np.sqrt(2 * np.pi))
        total.append(np.log((belief * shown).sum()))
        belief *= shown
    return sum(total[1:])


def test_it_is_right_where_the_gaussian_filter_is_not():
    seen, pushes = np.array([0.8, 0.1, 0.9, 1.4, 0.2]), np.array([0.5, -1.0, 0.3, 1.0])
    system = Square(state_particles=16384)
    wanted = by_grid(seen, pushes, 0.9)
    got = density(Particle(system), seen[:, None], pushes[:, None], (0.9,))
    gaussian = density(Kalman(system), seen[:, None], pushes[:, None], (0.9,))
    assert abs(got - wanted) < 0.1 < 0.5 < abs(gaussian - wanted)


@pytest.mark.slow
def test_posteriors_by_either(data):
    seen, forces = data
    by_gaussian = nb.posterior(jax.random.key(0), Cart(), seen, forces[:, None])
    by_particles = nb.posterior(jax.random.key(0), Cart(state_particles=128), seen, forces[:, None])
    deviation = np.sqrt(np.diagonal(by_gaussian.covariance))
    assert np.all(np.abs(by_particles.mean - by_gaussian.mean) < 0.3 * deviation)
    np.testing.assert_allclose(by_particles.course.states, by_gaussian.course.states, atol=0.1)
