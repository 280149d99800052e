"""Whether a model explains data: false alarms as stated, and broken models caught with the right word."""

import re

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.evaluation import experiments, explaining
from nestbed.evaluation.explaining import ALARM, explain
from nestbed.policies.base import prepare

DRAW = np.random.default_rng(0)


class Tank(nb.System):
    """One hidden level behind a noisy sensor; linear and Gaussian."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"rate": dist.Normal(0.5, 0.1), "gain": dist.Normal(1.0, 0.2)}
    start = {"level": dist.Normal(0.0, 0.3)}
    sensors = {"gauge": 0.1}
    step, diffusion, integrator = 0.5, (0.05,), "euler"
    defaults = nb.Defaults(horizon=60)

    def drift(self, x, u, theta):
        return theta.gain * u.flow - theta.rate * x.level

    def observe(self, x, theta):
        return x.level


def recorded(system, count, key=3):
    """Return records of rigs drawn from the prior, with inputs that switch at random."""
    policy = prepare(nb.policies.PRBS(system), system, system.horizon)
    _, record = experiments.simulated(jax.random.key(key), system, policy, system.horizon, count)
    return np.asarray(record.observations), np.asarray(record.designs)


def judged(system, observations, designs, key=0):
    with pytest.warns(UserWarning, match="the model does not explain the data"):
        found = nb.posterior(jax.random.key(key), system, observations, designs)
    return explain(system.observation_names, found.residuals)


@pytest.mark.parametrize("samples", [1, 3, 10, 100])
def test_false_alarms_of_normal_numbers_are_as_rare_as_stated(samples):
    """1000 tables of two sensors with gaps; a binomial of 1 % exceeds 25 in one case in 100,000."""
    tables = DRAW.standard_normal((1000, samples, 2))
    tables[DRAW.random(tables.shape) < 0.2] = np.nan
    assert sum(not explain(("a", "b"), table).explains for table in tables) <= 25


def test_mutant_neighbours_that_overlap_are_caught():
    """A slope of every number on those beside it takes each pair twice, so that chance looks like more."""
    tables = DRAW.standard_normal((1000, 100))
    beside = tables[:, :-2] + tables[:, 2:]
    slopes = [stats.linregress(x, y).pvalue for x, y in zip(beside, tables[:, 1:-1], strict=True)]
    fine = [explaining._neighbours(z)[1] for z in tables]
    assert np.mean(np.array(slopes) < 0.01) > 0.03
    assert np.mean(np.array(fine) < 0.01) < 0.025


NOISE = DRAW.standard_normal(200)
CASES = {
    "larger": (2.0 * NOISE, "times as far from what is predicted"),
    "smaller": (0.5 * NOISE, "nearer to what is predicted than the model's noise"),
    "off": (NOISE + 0.8, "standard deviations above what is predicted, on average"),
    "one": (np.where(np.arange(200) == 40, 7.0, NOISE), "1 of 200 outcomes .* in experiment 40, about 7"),
    "units": (30.0 * NOISE, "check the units and the order of the record's columns"),
    "walk": (NOISE + np.repeat(DRAW.standard_normal(20), 10), "in the same direction from one sample to the next"),
    "swing": (NOISE + 1.5 * (-1.0) ** np.arange(200), "swings from one sample to the next"),
}


@pytest.mark.parametrize(("z", "told"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_named_with_its_sensor(z, told):
    found = explain(("fine", "gauge"), np.stack([DRAW.standard_normal(200), z], axis=-1))
    assert not found.explains
    assert re.search(told, found.sentence), found.sentence
    assert "gauge" in found.sentence
    assert "fine" not in found.sentence


def test_slow_errors_below_the_noise_are_found():
    """A wave a third as large as the noise: no two neighbours tell it, stretches do."""
    z = DRAW.standard_normal(4000) + 0.33 * np.sin(np.arange(4000) / 60.0)
    kinds = {test.kind for test in explain(("gauge",), z[:, None]).tests if test.p < ALARM / 5}
    assert "slow correlation" in kinds


def test_a_model_that_holds_is_said_to_with_the_smallest_p():
    found = explain(("gauge",), np.random.default_rng(1).standard_normal((50, 1)))
    assert found.explains
    assert found.sentence.startswith("the model explains the data: none of 5 tests speaks against it (smallest p 0.")
    assert found.facts()["tests"][0]["sensor"] == "gauge"
    assert "not known" in explain(("gauge",), np.full((5, 1), np.nan)).sentence


@pytest.mark.slow
def test_records_of_the_model_itself_are_explained():
    """20 of them, at 1 % each: more than 3 come once in 40,000 times."""
    observations, designs = recorded(Tank(), 20)
    found = nb.posterior(jax.random.key(0), Tank(), observations, designs)
    assert sum(not explain(("gauge",), rows).explains for rows in found.residuals) <= 3


@pytest.mark.slow
def test_a_missing_state_is_told_though_the_posterior_is_sharp():
    """A lag that the model has not puts its pole many deviations off."""
    draw = np.random.default_rng(2)
    designs = np.repeat(draw.choice([-1.0, 1.0], 15), 4)[:, None]
    level = behind = 0.0
    seen = [0.0]
    for (u,) in designs:
        level, behind = level + 0.5 * (u - 0.5 * level), behind + 0.25 * (level - behind)
        seen.append(behind)
    observations = np.array(seen)[:, None] + 0.1 * draw.standard_normal((61, 1))
    found = judged(Tank(), observations, designs)
    assert "dynamics are missing or a delay is wrong" in found.sentence


@pytest.mark.slow
def test_inputs_in_other_units_are_told():
    observations, designs = recorded(Tank(), 1)
    with pytest.raises(nb.NestbedError, match=r"is not one of Tank: .* check the units and the order"):
        nb.posterior(jax.random.key(0), Tank(), observations[0], 1000.0 * designs[0])


@pytest.mark.slow
def test_half_the_noise_an_outlier_and_a_delay_are_told():
    observations, designs = recorded(Tank(), 2)
    wide = observations + 0.2 * np.random.default_rng(1).standard_normal(observations.shape)
    assert "times as far" in judged(Tank(), wide[0], designs[0]).sentence
    off = observations[0].copy()
    off[30] += 3.0
    assert "of 60 outcomes are improbable" in judged(Tank(), off, designs[0]).sentence
    late = np.concatenate([np.repeat(observations[0][:1], 2, axis=0), observations[0][:-2]])
    assert not judged(Tank(), late, designs[0]).explains


@pytest.mark.slow
def test_false_alarms_over_records_of_the_prior():
    """300 records at 1 %: more than 9 in one case in 400."""
    system = Tank()
    observations, designs = recorded(system, 300, key=8)
    found = nb.posterior(jax.random.key(1), system, observations, designs)
    assert sum(not explain(("gauge",), rows).explains for rows in found.residuals) <= 9


def test_first_outcomes_are_never_too_near():
    """Between few particles of a wide prior lies nothing: an outcome there is in the very middle of the prediction."""
    assert explain(("level",), np.zeros((1, 1)), 1e-4).explains
    assert explain(("level",), np.zeros((3, 1)), 1e-4).explains
    assert not explain(("level",), np.full((40, 1), 0.01), 1e-4).explains
