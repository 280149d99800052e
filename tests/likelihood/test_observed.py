"""The likelihood of a system whose states are seen: a filter whose carry is the last state."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import Record, components
from nestbed.likelihood.simulation import simulate
from toys import Leak, LinearLeak

LEAK = Leak()
SD = 0.5 * np.sqrt(0.5)


def test_densities_are_those_of_the_equations():
    """Three observations one after the other, against the recursion by hand."""
    likelihood, theta = likelihoods.of(LEAK), (jnp.array([[0.3, 1.7]]),)
    seen, designs = [1.0, 0.4, 0.9, -0.2], [0.5, -1.0, 0.1]
    carry = likelihood.start((jnp.full((1, 1), seen[0]),), theta)
    for before, after, u in zip(seen, seen[1:], designs, strict=False):
        carry, density = likelihood.advance(carry, (jnp.full((1, 1), u),), (jnp.full((1, 1), after),), theta)
        mean = before + 0.5 * (-np.array([0.3, 1.7]) * before + u)
        np.testing.assert_allclose(density[0], stats.norm.logpdf(after, mean, SD), rtol=1e-12)
        assert carry[0].shape == (1, 1)  # not one for each parameter: it hangs on none
    assert float(carry[0][0, 0]) == seen[-1]


def test_samples_follow_what_is_predicted():
    likelihood, theta = likelihoods.of(LEAK), (jnp.full((1, 1), 0.8),)
    carry, u = (jnp.full((1, 1), 1.2),), (jnp.full((1, 1), 0.4),)
    (mean,), (variance,) = likelihood.predict(carry, u, theta)
    assert float(mean[0, 0]) == pytest.approx(1.2 + 0.5 * (-0.8 * 1.2 + 0.4))
    assert variance == pytest.approx(SD**2)
    (y,) = likelihood.sample((jnp.array([[-1.0, 0.0, 2.0]]),), carry, u, theta)
    np.testing.assert_allclose(y, mean + SD * np.array([[-1.0, 0.0, 2.0]]))


def test_linear_rows_give_the_prediction_of_any_parameter():
    system = LinearLeak()
    likelihood = likelihoods.of(system)
    carry, u = components(jnp.array([[0.4], [2.0]])), components(jnp.array([[1.0], [-0.5]]))
    (row,) = likelihood.linear(carry, u)
    for theta in (-1.0, 0.0, 2.5):
        (mean,), (variance,) = likelihood.predict(carry, u, (jnp.full((2, 1), theta),))
        np.testing.assert_allclose(row.offset + row.h[:, 0] * theta, mean[:, 0], rtol=1e-12)
        np.testing.assert_allclose(row.variance, variance)


def test_the_noise_entropy_is_that_of_the_noise():
    assert likelihoods.of(LEAK).noise_entropy() == pytest.approx(stats.norm(0.0, SD).entropy())


def test_simulated_records_start_as_the_system_says_and_hold_one_more_observation():
    record = simulate(jax.random.key(0), LEAK, nb.policies.Random(LEAK), (jnp.array([0.5, 1.5]),), 3).record
    assert isinstance(record, Record)
    assert record.observations.shape == (2, 4, 1)
    assert record.designs.shape == (2, 3, 1)
    np.testing.assert_array_equal(record.observations[:, 0, 0], 1.0)


def test_nothing_above_the_likelihood_steps_the_state_by_itself():
    """Beliefs, sweeps, bounds and trainings ask the likelihood: none of them calls the system's equations."""
    from pathlib import Path

    root = Path(nb.__file__).parent
    floors = ("belief", "policies", "smc", "evaluation", "training")
    calls = ("system.rates(", "system.mean(", "system.variance(", "system.drift(", ".state_names")
    found = [
        f"{file.name}: {call}"
        for floor in floors
        for file in sorted((root / floor).rglob("*.py"))
        for call in calls
        if call in file.read_text()
    ]
    assert not found


class Rocket(nb.System):
    """Its drag is far too fast for the Runge–Kutta step where the prior hardly leads."""

    state = ("speed",)
    designs = nb.Box(thrust=(-5.0, 5.0))
    prior = {"drag": dist.LogNormal(-1.5, 1.2)}
    step, diffusion, integrator, substeps = 0.05, (0.1,), "rk4", 4

    def drift(self, x, u, theta):
        return u.thrust - theta.drag * x.speed * jnp.abs(x.speed)


class Faulty(Rocket):
    """The same with an equation that is no number there."""

    def drift(self, x, u, theta):
        return u.thrust - jnp.sqrt(10.0 - theta.drag) * x.speed


def test_where_a_step_explodes_nothing_can_be_seen_but_a_drift_without_a_number_is_a_fault():
    theta = (jnp.array([[0.2, 1e5]]),)
    place = [(jnp.full((1, 1), value),) for value in (9.0, 1.0, 9.0)]
    for system, far in ((Rocket(), -np.inf), (Faulty(), np.nan)):
        likelihood = likelihoods.of(system)
        _, density = likelihood.advance(likelihood.start(place[0], theta), *place[1:], theta)
        assert np.isfinite(density[0, 0])
        np.testing.assert_equal(float(density[0, 1]), far)
