"""Whether improbable records are told, and how often others are."""

import math

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.live import watching
from toys import Counter, Leak

KEY = jax.random.key(0)


def alarms(residuals, horizon, alarm):
    """Return whether a session with these residuals is warned of at any time."""
    return any(watching.sentence(("a", "b"), residuals[: t + 1], horizon, alarm) for t in range(horizon))


def test_a_whole_session_of_the_model_is_warned_of_as_seldom_as_stated():
    """400 sessions of standard normal residuals, asked for 5 %: at most 34 alarms but for chance of 1 in 1000."""
    random = np.random.default_rng(0)
    found = sum(alarms(random.standard_normal((60, 2)), 60, 0.05) for _ in range(400))
    assert found <= 34


def test_shifts_and_outliers_are_told():
    random = np.random.default_rng(1)
    residuals = random.standard_normal((60, 2))
    residuals[30, 1] = 8.0
    assert "experiment 30: b is" in watching.sentence(("a", "b"), residuals[:31], 60, 0.01)
    shifted = random.standard_normal((60, 2)) + np.array([1.5, 0.0])
    assert alarms(shifted, 60, 0.01)


class Precise(Leak):
    """Noise so small beside the prior that first outcomes fall between and beyond all particles."""

    prior = {"rate": dist.LogNormal(0.0, 1.0)}
    diffusion = (1e-4,)


def warned(system, seed, alarm, **sizes):
    """Return whether a session of the model itself is warned of."""
    rig = nb.rigs.Simulated(system, jax.random.key(1000 + seed))
    session = nb.Session(system, Counter(), jax.random.key(seed), alarm=alarm, **sizes)
    session.update(rig.reset())
    while session.done is None:
        session.update(rig.apply(session.suggest()))
    return bool(session.warnings)


@pytest.mark.parametrize(
    ("system", "sessions"),
    [
        (Precise(), 30),
        pytest.param(Precise(), 1000, marks=pytest.mark.slow),
        pytest.param(Leak(), 1000, marks=pytest.mark.slow),
    ],
)
def test_sessions_of_the_model_itself_are_warned_of_as_seldom_as_stated(system, sessions):
    """From the first experiment on; 5 % asked for, more but for chance of 1 in 1000."""
    found = sum(warned(system, seed, 0.05, horizon=5, particles=64) for seed in range(sessions))
    assert found <= stats.binom.ppf(0.999, sessions, 0.05)


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_single_reading_seven_deviations_off_is_told_at_once(done):
    system = Leak()
    rig = nb.rigs.Simulated(system, KEY)
    session = nb.Session(system, Counter(), KEY, horizon=20, particles=512)
    session.update(rig.reset())
    for _ in range(done):
        session.update(rig.apply(session.suggest()))
    u = session.suggest()
    mean, low, high = session.posterior.predicted(u, [0.025, 0.975])["level"]
    session.update([mean + 7.0 * (high - low) / 3.92])
    assert f"experiment {done}: level is" in session.warnings[-1]


def test_first_readings_count_no_further_than_the_odds_bear_out():
    far = np.array([30.0, -1.0])
    assert watching.borne_out(far, 0, -5.0).tolist() == [2.0, -1.0]
    assert watching.borne_out(far, 0, 1e6).tolist() == far.tolist()
    assert watching.borne_out(far, 3, -5.0).tolist() == far.tolist()
    (between,) = watching.borne_out(far[:1], 0, 20.0)
    assert watching.p_values(between) == pytest.approx(np.exp(-20.0))
    assert not watching.sentence(("a", "b"), np.array([[2.0, -1.0]]), 1, 0.01, -5.0)


def test_all_readings_that_were_told_are_known_the_furthest_off_first():
    residuals = [np.array([value]) for value in (9.0, 0.3, -12.0, 7.0, math.nan, 8.0, -6.5)]
    assert watching.alarmed(residuals, 20, 0.01) == [2, 0, 5, 3, 6]
    assert watching.alarmed([], 20, 0.01) == []


def test_looks_end_with_the_horizon():
    assert watching.looks(50) == [10, 15, 23, 34, 50]
    assert watching.looks(5) == [5]
