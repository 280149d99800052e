"""Parameters that are known together: gains, posteriors and targets of a linear system against closed forms."""

import pickle
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.belief import mixture, proposal
from nestbed.belief.particles import Particles
from nestbed.information import objective
from nestbed.likelihood.base import Record
from nestbed.model.prior import Prior
from nestbed.model.target import targeted
from nestbed.planning.identifiability import identify
from nestbed.runs import fingerprint
from toys import INPUTS, TRAINING, Leak, Pair, pair_information, pair_posterior

KEY = jax.random.key(1)
MEAN, COVARIANCE = np.array([1.0, -0.5]), np.array([[0.25, -0.32], [-0.32, 0.64]])
NOISE = np.diag([0.18, 0.405])
TOGETHER = Pair(prior={("ua", "ub"): dist.MultivariateNormal(MEAN, covariance_matrix=COVARIANCE)})
POLICY = nb.policies.Replay(TOGETHER, INPUTS)
OBSERVATIONS = np.array([[0.0, 0.0], [0.9, 0.1], [0.5, -0.6], [0.9, 0.2], [2.0, 0.1]])
AFTER = np.linalg.inv(np.linalg.inv(COVARIANCE) + pair_information(NOISE))
GAIN = 0.5 * (np.linalg.slogdet(COVARIANCE)[1] - np.linalg.slogdet(AFTER)[1])
RECORD = Record(jnp.asarray(OBSERVATIONS)[None], jnp.asarray(INPUTS)[None])


def fresh():
    """Return the system of a class of its own, so that no compiled program of another is reused."""
    return type("Pair", (Pair,), {})(prior=TOGETHER.prior)


def check_fit(system):
    """One Gauss–Newton fit must find mean and covariance of a posterior that is a Gaussian."""
    fitted = proposal.fit(likelihoods.of(system), RECORD, jnp.asarray(4), jnp.zeros((1, 2)))
    mean, covariance = pair_posterior(MEAN, COVARIANCE, NOISE, OBSERVATIONS)
    scales = np.array(system.parameters.scales)
    found = np.stack(proposal.unwhiten(system.parameters, tuple(fitted.location.T)))[:, 0]
    np.testing.assert_allclose(found, mean, atol=1e-6)
    spread = np.asarray(fitted.spread[0]) * scales[:, None]
    np.testing.assert_allclose(spread @ spread.T, covariance, atol=1e-6)


def test_fits_know_the_correlation():
    check_fit(TOGETHER)


def test_a_mutant_fit_without_the_correlation_is_caught(monkeypatch):
    right = Prior.curvature.func
    mutant = property(lambda self: np.diag(np.diagonal(right(self))))
    monkeypatch.setattr(Prior, "curvature", mutant)
    with pytest.raises(AssertionError):
        check_fit(fresh())


@pytest.mark.slow
def test_the_gain_is_known_in_closed_form():
    exact = nb.eig(KEY, TOGETHER, POLICY, belief="exact", gain="closed_form", trajectories=4)
    assert exact.mean == pytest.approx(GAIN, rel=1e-9)
    searched = objective.expected(KEY, TOGETHER, TOGETHER.designs.unscale(INPUTS)[None], None, 2)
    np.testing.assert_allclose(searched, GAIN, rtol=1e-9)
    certified = nb.certificate(KEY, TOGETHER, POLICY, records=512)
    assert abs(certified.mean - GAIN) < 4.5 * certified.standard_error + 0.5 * (certified.upper - certified.lower)
    assert certified.standard_error < 0.02  # controls know the correlation; false alarms: 7e-6


@pytest.mark.slow
def test_a_target_known_together_with_the_nuisance_is_known_in_closed_form():
    target = nb.certificate(KEY, TOGETHER, POLICY, records=512, target="ua")
    wanted = 0.5 * np.log(COVARIANCE[0, 0] / AFTER[0, 0])
    assert abs(target.mean - wanted) < 4.5 * target.standard_error + 0.5 * (target.upper - target.lower)
    assert abs(wanted - GAIN) > 0.2
    searched = objective.expected(KEY, TOGETHER, TOGETHER.designs.unscale(INPUTS)[None], targeted(TOGETHER, "ua"), 2)
    np.testing.assert_allclose(searched, wanted, rtol=1e-9)


def test_densities_of_nuisance_are_those_given_the_rest():
    prior, free = TOGETHER.parameters, (False, True)
    w = tuple(jnp.array(values) for values in ([0.4, -1.0], [0.3, 2.0]))
    z = proposal.unwhiten(prior, w)
    slope = COVARIANCE[1, 0] / COVARIANCE[0, 0]
    given = dist.Normal(MEAN[1] + slope * (z[0] - MEAN[0]), (COVARIANCE[1, 1] - slope * COVARIANCE[0, 1]) ** 0.5)
    found = proposal.log_prior(prior, z, free)
    np.testing.assert_allclose(found, given.log_prob(z[1]) + np.log(prior.scales[1]), rtol=1e-9)
    draws = proposal.whiten(prior, prior.sample(KEY, (1, 20_000)))
    moved = proposal.unwhiten(prior, proposal.given(prior, draws, (w[0][:1, None], None)))
    off = (np.asarray(moved[1]) - float(given.loc[0])) / float(given.scale[0])
    assert abs(off.mean()) * np.sqrt(off.size) < 5
    assert off.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * off.size))


@pytest.mark.slow
def test_a_mixture_over_the_nuisance_draws_from_its_density():
    held = proposal.whiten(TOGETHER.parameters, (jnp.full((1, 1), 1.3), jnp.zeros((1, 1))))[0]

    @jax.jit
    def ratios(key):
        fitted = mixture.fit(key, likelihoods.of(TOGETHER), RECORD, jnp.asarray(4), (held, None))
        w, log_density = fitted.draw(fitted.random_numbers(key, (1, 1, 20_000)))
        return -0.5 * (w[0] / 0.5) ** 2 - 0.5 * jnp.log(2.0 * jnp.pi * 0.25) - log_density

    ratio = np.exp(np.asarray(ratios(KEY)))[0]
    assert abs(ratio.mean() - 1.0) < 5 * ratio.std() / np.sqrt(ratio.size)


@pytest.mark.parametrize("belief", ["exact", "guided", "ibis"])
def test_the_posterior_is_known_in_closed_form(belief):
    found = nb.posterior(KEY, TOGETHER, OBSERVATIONS, INPUTS, belief=belief)
    mean, covariance = pair_posterior(MEAN, COVARIANCE, NOISE, OBSERVATIONS)
    if belief == "exact":
        np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9)
        shift, precision = mean - MEAN, np.linalg.inv(COVARIANCE)
        log_ratio = np.linalg.slogdet(COVARIANCE)[1] - np.linalg.slogdet(covariance)[1]
        wanted = 0.5 * (np.trace(precision @ covariance) + shift @ precision @ shift - 2.0 + log_ratio)
        assert float(found.divergence) == pytest.approx(wanted, rel=1e-9)
        return
    error = 5 / np.sqrt(250)  # at least as many effective particles; false alarms: 1e-6 for each number
    sd = np.sqrt(np.diagonal(covariance))
    assert np.abs((np.asarray(found.mean) - mean) / sd).max() < error
    assert np.abs((np.asarray(found.covariance) - covariance) / np.outer(sd, sd)).max() < 1.5 * error


@pytest.mark.parametrize("belief", ["ibis", pytest.param("guided", marks=pytest.mark.slow)])
def test_a_joint_of_independent_parts_is_like_the_parts(belief):
    parts = dist.Normal(MEAN, jnp.array([0.5, 0.8])).to_event(1)
    found = nb.posterior(KEY, Pair(prior={("ua", "ub"): parts}), OBSERVATIONS, INPUTS, belief=belief)
    mean, covariance = pair_posterior(MEAN, np.diag([0.25, 0.64]), NOISE, OBSERVATIONS)
    sd = np.sqrt(np.diagonal(covariance))
    error = 5 / np.sqrt(250)
    assert np.abs((np.asarray(found.mean) - mean) / sd).max() < error
    assert np.abs((np.asarray(found.covariance) - covariance) / np.outer(sd, sd)).max() < 1.5 * error


@pytest.mark.slow
def test_a_target_within_a_distribution_that_cannot_be_divided_is_certified_by_level_sets():
    parts = dist.Normal(MEAN, jnp.array([0.5, 0.8])).to_event(1)
    target = nb.certificate(KEY, Pair(prior={("ua", "ub"): parts}), POLICY, records=1024, target="ua")
    after = np.linalg.inv(np.diag([4.0, 1.0 / 0.64]) + pair_information(NOISE))
    assert abs(target.mean - 0.5 * np.log(0.25 / after[0, 0])) < 4.5 * target.standard_error


def test_directions_are_told_beside_what_the_prior_knows():
    """Beside a correlated prior, the combination that it knows least is told best, by as much as it should be."""
    scales = np.array(TOGETHER.parameters.scales)
    information = pair_information(NOISE) * scales[:, None] * scales
    precision = objective.own_precision(TOGETHER)
    told = identify(TOGETHER, information[None], information[None, None], precision, {}, 1)
    np.testing.assert_allclose(told.after, np.sqrt(np.diagonal(AFTER)), rtol=0.02)  # deviations before are of draws
    root = np.linalg.cholesky(COVARIANCE)
    left = np.linalg.eigvalsh(np.linalg.inv(np.eye(2) + root.T @ pair_information(NOISE) @ root))
    np.testing.assert_allclose([each.ratio**2 for each in told.directions], left, rtol=1e-9)


def second():
    """Return another record, of other inputs."""
    return np.array([[0.0, 0.0], [-0.4, 0.5], [0.2, 0.3], [0.9, -0.8], [0.1, 0.6]]), -0.8 * INPUTS[::-1]


@pytest.mark.parametrize("belief", ["exact", "ibis", pytest.param("guided", marks=pytest.mark.slow)])
def test_what_is_learned_one_after_the_other_is_what_is_learned_at_once(belief):
    observations, inputs = second()
    first = nb.posterior(KEY, TOGETHER, OBSERVATIONS, INPUTS, belief=belief)
    system = TOGETHER.after(first)
    found = nb.posterior(KEY, system, observations, inputs, belief=belief)
    between = pair_posterior(MEAN, COVARIANCE, NOISE, OBSERVATIONS)
    mean, covariance = pair_posterior(*between, NOISE, observations, inputs)
    assert system.parameter_names == ("ua", "ub")
    np.testing.assert_allclose(system.parameters.moments[1], first.covariance, rtol=1e-9)  # correlations are kept
    assert system.parameters.correlation[0, 1] < -0.3
    if belief == "exact":
        np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8)
        return
    sd, error = np.sqrt(np.diagonal(covariance)), 5 * np.sqrt(2) / np.sqrt(250)  # two estimates
    assert np.abs((np.asarray(found.mean) - mean) / sd).max() < error
    assert np.abs((np.asarray(found.covariance) - covariance) / np.outer(sd, sd)).max() < 1.5 * error


def learned(system, position):
    """Return what a posterior of evenly weighted particles holds, at given unconstrained positions."""
    weights = jnp.full(position[0].shape, -np.log(position[0].shape[-1]))
    state = Particles(position, system.parameters.constrain(position), (), weights, weights, jnp.ones(()))
    return SimpleNamespace(belief=state)


def test_positive_parameters_stay_positive_and_keep_moments_in_their_logarithms():
    system = Pair(prior={"ua": dist.LogNormal(0.0, 0.3), "ub": dist.Uniform(-1.0, 2.0)})
    position = jnp.array([0.1, 0.5, -0.3, 0.2]), jnp.array([0.0, 0.9, -0.4, 0.8])
    later = system.after(learned(system, position))
    mean, covariance, _ = later.parameters.moments
    np.testing.assert_allclose(mean, np.mean(position, axis=1), rtol=1e-9)
    np.testing.assert_allclose(covariance, np.cov(np.stack(position), bias=True), rtol=1e-9)
    ua, ub = later.parameters.draws
    assert (ua > 0.0).all()
    assert ((ub > -1.0) & (ub < 2.0)).all()
    again = pickle.loads(pickle.dumps(later))
    assert again == later != system
    assert fingerprint.same(fingerprint.describe(later), again)
    assert not fingerprint.same(fingerprint.describe(later), system)
    assert later.after(learned(later, position)) == later


def test_what_is_no_posterior_of_one_record_is_refused():
    system = Pair()
    position = jnp.array([0.1, 0.5, -0.3, 0.2]), jnp.array([0.0, 0.9, -0.4, 0.8])
    many = learned(system, tuple(jnp.tile(z, (3, 1)) for z in position))
    for given, sentence in (
        (3.0, r"after\(\) got 3.0; give it what nb.posterior returned"),
        (many, "that of 3 records, but a prior is one distribution"),
        (learned(Leak(), position[:1]), "of 1 parameters, but Pair has 2"),
        (learned(system, (position[0], 2.0 * position[0])), "no spread along some direction"),
    ):
        with pytest.raises(nb.NestbedError, match=sentence) as caught:
            system.after(given)
        assert str(caught.value).count(". ") == 0


@pytest.mark.slow
def test_it_can_be_trained_on_and_loaded_again(tmp_path):
    system = TOGETHER.after(nb.posterior(KEY, TOGETHER, OBSERVATIONS, INPUTS, belief="exact"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = nb.train(KEY, system, TRAINING, out=tmp_path / "run")
        again = nb.load_run(tmp_path / "run", system)
    for one, other in zip(jax.tree.leaves(run.policy), jax.tree.leaves(again.policy), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(nb.NestbedError, match=r"with prior = .*, but the system has"):
        nb.load_run(tmp_path / "run", Pair())
