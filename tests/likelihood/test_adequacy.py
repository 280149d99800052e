"""Gaussian filters that are off are told, others stay silent, and particles are right where the former are not."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_kalman import Cart
from test_particle import Square

import nestbed as nb
from nestbed.likelihood import Kalman, Particle, adequacy, history
from nestbed.likelihood.simulation import play
from nestbed.model import linearity
from toys import Draining

LONG = Square(defaults=nb.Defaults(horizon=30))


def bent(**functions):
    return type("Bent", (Cart,), functions)()


def test_what_is_linear_in_its_states_is_not_looked_at(monkeypatch):
    """Products of states and parameters are: for known parameters the filter is exact."""
    assert not linearity.why_not_in_states(Cart())
    assert not linearity.why_not_in_states(nb.systems.load("heater"))
    assert "along 'angle' changes with 'angle'" in linearity.why_not_in_states(nb.systems.load("encoder_pendulum"))
    drift = bent(drift=lambda self, x, u, theta: (x.speed, -theta.drag * x.speed * abs(x.speed)))
    assert linearity.why_not_in_states(drift) == "the slope of the drift of 'speed' along 'speed' changes with 'speed'"
    monkeypatch.setattr(adequacy, "judged", None)
    for system in (Cart(), nb.systems.load("heater"), nb.systems.load("cart_pole"), Square(state_particles=2)):
        adequacy.check(system)


def check_ratio(system):
    """Where the filter is exact, ratios of densities have the mean 1: 400 records, z below 4.5, false alarm 7e-6."""
    found = adequacy.judged(system, records=400, particles=256)
    ratio = np.exp(found.missed)
    assert abs(ratio.mean() - 1.0) < 4.5 * ratio.std(ddof=1) / 20.0
    assert found.residuals == pytest.approx(1.0, abs=4.5 / np.sqrt(400 * 6 * 2 * 2))
    assert not found.off


def test_an_exact_filter_is_bet_against_in_vain():
    check_ratio(Cart())


def test_mutant_particles_without_the_noise_of_a_sensor_are_caught(monkeypatch):
    counted = Particle.counted
    monkeypatch.setattr(Particle, "counted", lambda self, found, *a: 1.02 * counted(self, found, *a))
    with pytest.raises(AssertionError):
        check_ratio(type("Cart", (Cart,), {})())


def test_a_gaussian_filter_of_two_signs_is_warned_of():
    with pytest.warns(
        UserWarning, match=r"^the Gaussian filter of Square is off: \d+ of 32 .* state_particles = 256\.$"
    ):
        adequacy.check(LONG)
    assert adequacy.judged(LONG).missed.mean() > 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adequacy.check(LONG)  # once for a system


@pytest.mark.slow
def test_what_only_shows_when_inputs_come_back_is_looked_at():
    """Kept at rest or shaken at random, tanks are never filled from empty; where corners take turns, they may be."""
    missed = adequacy.judged(Draining(), seed=3).missed
    assert missed[adequacy.RECORDS // 2 :].max() > 10.0
    assert missed[: adequacy.RECORDS // 2].max() < 3.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the model does not explain the data")
def test_certificates_and_posteriors_warn():
    for call in (
        lambda system: nb.certificate(jax.random.key(0), system, nb.policies.PRBS(system), horizon=2, records=64),
        lambda system: nb.posterior(jax.random.key(0), system, np.full((3, 1), 0.5), np.zeros((2, 1)), particles=16),
    ):
        system = type("Square", (Square,), {})(defaults=nb.Defaults(horizon=30), diffusion=(0.4,))
        with pytest.warns(UserWarning, match="the Gaussian filter of Square is off"):
            call(system)


@pytest.mark.parametrize("name", ["encoder_pendulum", pytest.param("encoder_cart_pole", marks=pytest.mark.slow)])
def test_built_in_systems_stay_silent(name):
    """Three times 32 records each; an exact filter would be warned of once in 3,000 such tests at most."""
    system = nb.systems.load(name)
    adequacy.check(system)
    for seed in (1, 2):
        assert not adequacy.judged(system, seed=seed).off


def ranks(likelihood, system, record, rates, truth):
    """Return how much of each record's posterior lies below the true rate, on a grid of the prior's quantiles."""
    table = history.tabulate(record)
    theta = (jnp.asarray(rates)[None],)
    logs = np.asarray(
        jax.jit(lambda: history.log_likelihood(likelihood, table, jnp.asarray(record.designs.shape[1]), theta)[1])()
    )
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    shares = np.clip((np.log(truth)[:, None] - np.log(rates)) / np.gradient(np.log(rates)) + 0.5, 0.0, 1.0)
    return np.sum(weights * shares, axis=1)


@pytest.mark.slow
def test_particles_are_calibrated_where_the_gaussian_filter_is_not():
    """Simulation-based calibration of 400 records by 256 state particles: ranks are uniform, false alarm 1e-3."""
    count, nodes = 400, 32
    system = Square(state_particles=256, defaults=nb.Defaults(horizon=30))
    rates = np.asarray(system.prior["rate"].icdf((np.arange(nodes) + 0.5) / nodes))
    truth = np.asarray(system.prior["rate"].sample(jax.random.key(0), (count,)))
    designs = jnp.asarray(np.random.default_rng(0).uniform(-1.0, 1.0, (count, 30, 1)))
    record = play(jax.random.key(1), system, designs, (jnp.asarray(truth),)).record
    found = {kind: ranks(kind(system), system, record, rates, truth) for kind in (Particle, Kalman)}
    p = {kind: stats.kstest(values, "uniform").pvalue for kind, values in found.items()}
    assert p[Particle] > 1e-3
    assert p[Kalman] < 1e-4
