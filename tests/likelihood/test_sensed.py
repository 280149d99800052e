"""A likelihood with a carry for each particle: a Kalman filter of a state that is seen through a noisy sensor."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.belief import IBIS, metropolis, particles
from nestbed.likelihood import history
from nestbed.likelihood.base import Record, components
from toys import Leak, LinearLeak

NOISE, SENSOR, SPREAD = 0.125, 0.05, 0.3  # variances: of a step of the leak, of the sensor, of the start around 1


class SensedLeak(Leak):
    """The level of a leak, seen with noise."""

    sensors = {"level": np.sqrt(SENSOR)}
    start = dist.Normal(1.0, np.sqrt(SPREAD))
    noise_floor = 0.0


BELIEF = IBIS(SensedLeak(), 256, 3)


@pytest.fixture(scope="module")
def record():
    draw = np.random.default_rng(0)
    level, seen, designs = 1.2, [], draw.uniform(-1.0, 1.0, 8)
    for u in (None, *designs):
        level = level if u is None else level + 0.5 * (-0.7 * level + u) + np.sqrt(NOISE) * draw.standard_normal()
        seen.append(level + np.sqrt(SENSOR) * draw.standard_normal())
    return jnp.array(seen)[None, :, None], jnp.array(designs)[None, :, None]


def by_quadrature(observations, designs):
    """Return the log-evidence after the first observation, and the mean of the rate: 4000 nodes of the prior."""
    nodes = (np.arange(4000) + 0.5) / 4000
    rate = np.asarray(Leak.prior["rate"].icdf(nodes))
    total = SPREAD + SENSOR
    mean, variance = 1.0 + SPREAD / total * (observations[0, 0, 0] - 1.0), SPREAD * SENSOR / total
    logs = np.zeros(4000)
    for y, u in zip(np.asarray(observations)[0, 1:, 0], np.asarray(designs)[0, :, 0], strict=True):
        slope = 1.0 - 0.5 * rate
        mean, variance = slope * mean + 0.5 * u, slope**2 * variance + NOISE
        total = variance + SENSOR
        logs += -0.5 * ((y - mean) ** 2 / total + np.log(2 * np.pi * total))
        mean, variance = mean + variance / total * (y - mean), variance * SENSOR / total
    weights = np.exp(logs - logs.max())
    return np.log(weights.mean()) + logs.max(), weights @ rate / weights.sum()


def test_evidence_and_mean_against_quadrature(record):
    """32 independent beliefs of 256 particles: within five standard errors of their means."""
    evidence, rate = by_quadrature(*record)
    tiled = (jnp.repeat(part, 32, axis=0) for part in record)
    got = nb.posterior(jax.random.key(1), BELIEF.system, *tiled, belief=BELIEF)
    for values, truth in ((got.log_predictive.sum(axis=1), evidence), (got.mean[:, 0], rate)):
        assert abs(values.mean() - truth) < 5 * values.std() / np.sqrt(32) + 1e-3  # of finite M


def check_carries(belief):
    """The filters that particles carry after many moves are those that a fresh run over the record gives."""
    system, settings = belief.system, {"horizon": 6, "trajectories": 8, "belief": belief, "eta": 2.0}
    first = nb.sweep(jax.random.key(2), system, nb.policies.Random(system), **settings)
    again = nb.sweep(jax.random.key(3), system, nb.policies.Random(system), reference=first.reference, **settings)
    assert again.info.rejuvenated.sum() > 0
    assert again.info.resampled.any()
    table = history.tabulate(again.record)
    carry, likelihood = history.log_likelihood(belief.likelihood, table, jnp.int32(6), again.belief.theta)
    prior = belief.system.parameters.log_density(again.belief.position)
    np.testing.assert_allclose(again.belief.log_posterior, prior + likelihood, rtol=1e-9)
    for mine, fresh in zip(jax.tree.leaves(again.belief.carry), jax.tree.leaves(carry), strict=True):
        assert mine.shape == (8, belief.particles)
        np.testing.assert_allclose(mine, fresh, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:experiments gain about as much")
def test_particles_carry_their_own_filters():
    check_carries(IBIS(SensedLeak(), 32, 2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:experiments gain about as much")
def test_mutant_carry_not_resampled_with_its_particle_is_caught(monkeypatch):
    take = particles.take

    def forgetful(tree, index):
        taken = take(tree, index)
        return taken if len(tree) == 2 else (taken[0], tree[1], taken[2])

    monkeypatch.setattr(particles, "take", forgetful)
    with pytest.raises(AssertionError):
        check_carries(IBIS(SensedLeak(), 33, 2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:experiments gain about as much")
def test_mutant_carry_of_a_rejected_move_is_caught(monkeypatch):
    monkeypatch.setattr(metropolis, "_accepted", lambda accept, new, old: new)
    with pytest.raises(AssertionError):
        check_carries(IBIS(SensedLeak(), 34, 2))


def test_outcomes_are_drawn_from_the_filter_of_the_drawn_particle():
    """20000 outcomes of one belief against the mixture of all particles' predictions, z below 5."""
    one = BELIEF.init(jax.random.key(4), jnp.full((1, 1), 0.8))
    one, _ = BELIEF.update(one, jnp.full((1, 1), 0.5), jnp.full((1, 1), 0.2))
    count = 20_000
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0), one)
    drawn = np.asarray(BELIEF.sample(jax.random.key(5), many, jnp.full((count, 1), -0.3)))
    (mean,), (variance,) = BELIEF.likelihood.predict(one.carry, components(jnp.full((1, 1), -0.3)), one.theta)
    weights = np.exp(one.log_weights[0])
    middle = weights @ mean[0]
    total = weights @ (variance[0] + (mean[0] - middle) ** 2)
    assert abs(drawn.mean() - middle) < 5 * np.sqrt(total / count)
    assert abs(drawn.var() / total - 1.0) < 5 * np.sqrt(2.0 / count)


def test_an_exact_belief_is_refused_where_the_filter_hangs_on_the_parameters():
    hidden = LinearLeak(sensors={"level": 0.1})
    with pytest.raises(nb.NestbedError, match="along 'level' changes with 'rate'"):
        nb.belief.Exact(hidden)
    assert nb.belief.simplest(hidden) == "ibis"


def test_a_record_that_is_full_says_so(record):
    from nestbed.belief import learning

    observations, designs = record
    learner = learning.start(jax.random.key(0), BELIEF, observations[:, 0], 1)
    key = jax.random.key(0)
    learner, _, _ = learning.observe(key, BELIEF, learner, jnp.int32(0), designs[:, 0], observations[:, 1])
    with pytest.raises(nb.NestbedError, match="has room for 1 experiments, but this is number 2"):
        learning.observe(key, BELIEF, learner, jnp.int32(1), designs[:, 1], observations[:, 2])
    with pytest.raises(nb.NestbedError, match="does not fit into 0"):
        Record(*learner.record).padded(0)
