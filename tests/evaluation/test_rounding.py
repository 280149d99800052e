"""Sensors in coarse steps: what they do to residuals of the right model; wrong models are caught all the same."""

from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.evaluation import rounding
from nestbed.evaluation.explaining import explain
from nestbed.evaluation.records import Measured

STEP, NOISE, MOVES, COUNT, RECORDS = 0.3, 0.03, 0.005, 300, 30


class Slow(nb.System):
    """A level that moves less than a step of its gauge from one sample to the next."""

    state = ("level",)
    designs = nb.Box(flow=(0.0, 1.0))
    prior = {"rate": dist.LogNormal(-3.9, 0.3)}
    start = {"level": dist.Normal(0.0, 0.3)}
    sensors = {"gauge": NOISE}
    resolution = {"gauge": STEP}
    step, diffusion, integrator = 1.0, (MOVES,), "euler"

    def drift(self, x, u, theta):
        return theta.rate * (5.0 * u.flow - x.level)

    def observe(self, x, theta):
        return x.level


def recorded(draw, rate=0.02):
    """Return what a gauge that really rounds shows of a level."""
    level, shown = draw.normal(0.0, 0.3), []
    for _ in range(COUNT + 1):
        shown.append(STEP * np.round((level + NOISE * draw.standard_normal()) / STEP))
        level += rate * (5.0 - level) + MOVES * draw.standard_normal()
    return np.array(shown)


def followed(shown, rate):
    """Return residuals and course by a Kalman filter of its own, which takes rounding for noise."""
    mean, variance, own = 0.0, 0.09, NOISE**2 + STEP**2 / 12
    rows = []
    for y in shown:
        spread = variance + own
        rows.append((mean, np.sqrt(spread), (y - mean) / np.sqrt(spread)))
        gain = variance / spread
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
        mean, variance = mean + rate * (5.0 - mean), (1 - rate) ** 2 * variance + MOVES**2
    expected, sd, z = np.array(rows).T
    course = SimpleNamespace(expected=expected[:, None], expected_sd=sd[:, None], states=expected[:, None])
    return SimpleNamespace(residuals=z[1:, None], course=course, mean=np.array([rate]))


def judged(shown, rate):
    """Return whether the model explains a record, taken by itself and beside what rounding does."""
    found = followed(shown, rate)
    record = Measured(shown[:, None], np.ones((COUNT, 1)))
    rounded = rounding.replicates(Slow(), found, [record])
    return explain(("gauge",), found.residuals).explains, explain(("gauge",), found.residuals, rounded=rounded).explains


def test_rounding_alone_is_not_held_against_a_model_and_a_wrong_one_is_caught():
    """Of 30 records of the right model at most 4 are called unexplained: 1 in 10,000 such tests fails at 1 %."""
    plain, beside = np.array([judged(recorded(np.random.default_rng(i)), 0.02) for i in range(RECORDS)]).T
    assert np.sum(~plain) > RECORDS // 3  # mutant: residuals taken for white
    assert np.sum(~beside) <= 3
    for rate in (0.015, 0.03):
        caught = [not judged(recorded(np.random.default_rng(i)), rate)[1] for i in range(5)]
        assert sum(caught) >= 4


def test_the_sentence_says_what_rounding_does():
    shown = next(y for y in (recorded(np.random.default_rng(i)) for i in range(99)) if not judged(y, 0.02)[0])
    found = followed(shown, 0.02)
    rounded = rounding.replicates(Slow(), found, [Measured(shown[:, None], np.ones((COUNT, 1)))])
    sentence = explain(("gauge",), found.residuals, rounded=rounded).sentence
    assert "explains the data: that what gauge shows" in sentence
    assert "of 400 simulated records" in sentence


@pytest.mark.parametrize("step", [0.0, 0.01])
def test_fine_steps_and_gaps_leave_white_residuals(step):
    """Replicates of a gauge that hardly rounds are standard normal numbers, with nothing where nothing was measured."""
    means, spreads, own = np.linspace(0.0, 5.0, 200), np.full(200, 0.02), np.full(200, 0.015)
    known = np.arange(200) % 7 != 3
    z = rounding._simulated(np.random.default_rng(1), means, spreads, own, step or 1e-6, known)
    assert np.isnan(z[~known]).all()
    seen = z[known]
    assert abs(np.mean(seen)) < 5 / np.sqrt(seen.size)
    assert abs(np.mean(seen[1:] * seen[:-1])) < 6 / np.sqrt(seen.size)
