"""The posterior of a heater's record against long chains on a Kalman filter that was written apart from nestbed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import against_mcmc as mcmc
from nestbed import likelihood as likelihoods
from nestbed.evaluation import records
from nestbed.likelihood import history

RHAT = 1.01
FAR = 4.5
"""Errors that a number may be off: one of fourteen is by chance in 1 of 10,000 runs."""


def simulated(seed, count):
    """Return a record of a heater in uneven steps, its power switched at random."""
    rng = np.random.default_rng(seed)
    lengths = rng.choice([1.5, 2.0, 2.5], count)
    power = np.repeat(rng.choice([0.0, 100.0], count // 8 + 1), 8)[:count]
    theta = np.exp(mcmc.CENTRE + mcmc.SPREAD * rng.normal(size=(1, 4)))
    moved, added, noise = (part[:, 0] for part in mcmc.steps(theta, lengths))
    x, seen = rng.normal(size=2), []
    for t in range(count + 1):
        seen.append(x[1] + np.sqrt(mcmc.SENSOR) * rng.normal())
        if t < count:
            x = moved[t] @ x + added[t] * power[t] + np.linalg.cholesky(noise[t]) @ rng.normal(size=2)
    return mcmc.Record(np.append(0.0, np.cumsum(lengths)), power, np.array(seen))


RECORD = simulated(3, 160)


def off(found, chains):
    """Return how far means, deviations and correlations lie from those of the chains, in errors."""
    ess, sd = float(found.belief.ess), chains.flat.std(axis=0)
    means = np.array([row[6] for row in mcmc.compared([found, found], chains)])
    covariance = np.asarray(found.covariance)
    errors = np.sqrt((stats.kurtosis(chains.flat, fisher=False) - 1.0) / (4.0 * ess))
    spreads = (np.sqrt(np.diagonal(covariance)) / sd - 1.0) / errors
    turned = np.arctanh(mcmc.correlations(covariance)) - np.arctanh(mcmc.correlations(np.cov(chains.flat.T)))
    return np.abs(np.concatenate([means, spreads, turned * np.sqrt(ess)]))


@pytest.mark.slow
def test_the_filter_is_the_one_written_apart():
    """Log-densities of a record under 64 draws of the prior: they differ by the error of Runge–Kutta alone."""
    system = mcmc.Heater()
    table = records.tabulated(system, records.read(system, *RECORD.given))
    likelihood = likelihoods.of(system, given=table.memory)
    theta = np.exp(mcmc.CENTRE + mcmc.SPREAD * np.random.default_rng(0).normal(size=(64, 4)))
    columns = tuple(jnp.asarray(column)[None] for column in theta.T)
    count = jnp.asarray(table.record.designs.shape[1])
    _, found = jax.jit(lambda: history.log_likelihood(likelihood, history.tabulate(table.record), count, columns))()
    np.testing.assert_allclose(found[0], mcmc.log_likelihood(theta, RECORD), rtol=1e-4)


@pytest.mark.slow
def test_the_posterior_is_that_of_long_chains(monkeypatch):
    """Means, deviations and correlations; chains with four times the noise of states are told apart."""
    found = mcmc.inferred([RECORD], keys=1)[0]
    chains = mcmc.sampled(0, [RECORD], chains=24, learned=1000, kept=2500)
    assert chains.rhat.max() < RHAT
    assert off(found, chains).max() < FAR
    monkeypatch.setattr(mcmc, "DIFFUSION", 16.0 * mcmc.DIFFUSION)
    assert off(found, mcmc.sampled(0, [RECORD], chains=24, learned=1000, kept=1000)).max() > 2.0 * FAR
