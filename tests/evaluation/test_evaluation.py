"""Expected information gain, posteriors and comparisons."""

import csv
import dataclasses
import math

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.evaluation import comparison
from nestbed.faces import figures
from nestbed.faces.terminal import tables
from nestbed.numerics import blocks, intervals
from toys import Leak, LinearLeak

KEY = jax.random.key(0)
LINEAR = nb.systems.load("linear_pendulum")
SMALL = {"horizon": 3, "belief": "exact"}


@pytest.mark.parametrize("count", [1, 7, 9, 16, 20])
def test_every_trajectory_counts_once(count):
    estimate = nb.eig(KEY, LinearLeak(), nb.policies.Random(LinearLeak()), trajectories=count, **SMALL)
    assert estimate.gains.shape == (count,)
    assert estimate.steps.shape == (count, 3)
    assert len(np.unique(estimate.gains)) == count
    assert estimate.mean == pytest.approx(estimate.gains.mean())
    if count > 1:
        assert estimate.standard_error == pytest.approx(estimate.gains.std(ddof=1) / np.sqrt(count))


def test_estimates_do_not_depend_on_the_number_of_cores(monkeypatch):
    go = lambda: nb.eig(KEY, LinearLeak(), nb.policies.Random(LinearLeak()), trajectories=40, **SMALL).gains  # noqa: E731
    first = go()
    monkeypatch.setattr(blocks, "cores", lambda: 1)
    np.testing.assert_array_equal(first, go())


@pytest.mark.slow
def test_exact_and_particle_estimates_agree_on_the_linear_pendulum():
    """2000 exact against 400 particle trajectories of PRBS, z below 4.5."""
    policy = nb.policies.PRBS(LINEAR)
    exact = nb.eig(KEY, LINEAR, policy, trajectories=2000, belief="exact")
    ibis = nb.eig(jax.random.key(1), LINEAR, policy, trajectories=400)
    error = np.hypot(exact.standard_error, ibis.standard_error)
    assert abs(exact.mean - ibis.mean) < 4.5 * error
    assert exact.mean == pytest.approx(2.28, abs=4.5 * exact.standard_error)


def test_a_single_record_gives_results_without_a_leading_axis():
    system = LinearLeak()
    record = nb.sweep(KEY, system, nb.policies.Random(system), trajectories=2, horizon=3, belief="exact", eta=0.0)
    one = nb.posterior(KEY, system, record.observations[0], record.designs[0], belief="exact")
    both = nb.posterior(KEY, system, record.observations, record.designs, belief="exact")
    assert one.mean.shape == (1,)
    np.testing.assert_allclose(one.mean, both.mean[0])
    np.testing.assert_allclose(both.gains, record.gains, rtol=1e-9)


def test_comparison_scores_seeds(tmp_path):
    system = LinearLeak()
    policies = {"random": nb.policies.Random(system), "prbs": nb.policies.PRBS(system)}
    told = []
    scores = nb.compare(KEY, system, policies, seeds=5, trajectories=8, progress=told.append, **SMALL)
    assert [s.policy for s in scores] == ["random", "prbs"]
    assert [step for step in told if step.name == "prbs"][-1] == ("prbs", 40, 40)
    means = scores[0].steps.sum(1).reshape(5, 8).mean(1)
    assert scores[0].sd == pytest.approx(means.std(ddof=1))
    assert scores[0].standard_error == pytest.approx(scores[0].steps.sum(1).std(ddof=1) / np.sqrt(40))
    comparison.save_table(scores, tmp_path / "table.csv")
    figures.information_gain(scores, system, tmp_path / "figure.png")
    assert (tmp_path / "table.csv").read_text().startswith("policy,eig_mean_nats")
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"


def test_a_policys_score_does_not_hang_on_the_others_beside_it():
    system = LinearLeak()
    random, prbs = nb.policies.Random(system), nb.policies.PRBS(system)
    settings = {"seeds": 2, "trajectories": 4, "contrastive": 5, **SMALL}
    alone = nb.compare(KEY, system, {"prbs": prbs}, **settings)[0]
    beside = nb.compare(KEY, system, {"random": random, "prbs": prbs}, **settings)[1]
    assert alone.mean == beside.mean
    assert (alone.spce.mean, alone.snmc.mean) == (beside.spce.mean, beside.snmc.mean)
    twice = nb.compare(KEY, system, {"prbs": prbs, "again": prbs}, **settings)
    assert twice[0].mean != twice[1].mean


def test_comparison_gives_bounds_of_as_many_records():
    system = LinearLeak()
    policies = {"random": nb.policies.Random(system)}
    told = []
    (score,) = nb.compare(
        KEY, system, policies, seeds=5, trajectories=8, contrastive=100, progress=told.append, **SMALL
    )
    assert told[-1] == ("random", 80, 80)
    assert score.spce.mean < score.snmc.mean
    assert abs(score.spce.mean - score.mean) < 5 * np.hypot(score.standard_error, score.spce.standard_error)
    assert 0 < score.spce.standard_error < 1
    assert 0 < score.spce.sd < 1
    assert "(sPCE" in str(comparison.Comparison([score]))


def estimated(**estimates):
    """Return estimates from four values each with such a mean and standard error."""
    spread = np.array([-1.0, -1.0, 1.0, 1.0]) * np.sqrt(3.0)
    return comparison.Comparison([nb.PolicyEstimate(m + e * spread, policy=name) for name, (m, e) in estimates.items()])


def test_the_probability_that_one_policy_beats_another():
    """Means 3 and 2.5 with errors 0.3 and 0.4 are one combined error apart: 84 % if normal, less by Student's t."""
    found = estimated(one=(3.0, 0.3), other=(2.5, 0.4), far=(0.0, 0.1))
    degrees = 0.25**2 / (0.3**4 / 3 + 0.4**4 / 3)  # Welch and Satterthwaite; four trajectories each
    chance = stats.t.cdf(1.0, degrees)
    assert 0.80 < chance < 0.83
    assert found.beats("one", "other") == pytest.approx(chance, abs=1e-6)
    assert found.beats("other", "one") == pytest.approx(1 - chance, abs=1e-6)
    assert found.beats("one", "one") == 0.5
    assert found.beats("one", "far") > 0.995
    assert "one" in str(found)
    with pytest.raises(nb.NestbedError, match="no policy 'oter' in the comparison; did you mean 'other'"):
        found.beats("one", "oter")
    certain = estimated(a=(1.0, 0.0), b=(2.0, 0.0), c=(1.0, 0.0))
    certain = comparison.Comparison([*certain, nb.PolicyEstimate(np.ones(1), policy="d")])
    assert [certain.beats("a", name) for name in "bc"] == [0.0, 0.5]
    assert np.isnan(certain.beats("b", "d"))
    assert len(found[:2]) == 2


def test_few_trajectories_are_not_taken_for_many():
    """4 values against 8 of twice the spread, equal means, 20000 times: 95 % sure in 5 % (z below 4.5).

    A normal distribution in place of Student's t would be as sure in 8 %.
    """
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(20_000, 4)), 2.0 * draw.normal(size=(20_000, 8))
    errors = [part.std(axis=1, ddof=1) / np.sqrt(part.shape[1]) for part in (a, b)]
    gaps = a.mean(axis=1) - b.mean(axis=1)
    chances = [intervals.chance_above(gap, (one, 4), (other, 8)) for gap, one, other in zip(gaps, *errors, strict=True)]
    sure = np.mean(np.abs(np.array(chances) - 0.5) > 0.475)
    assert abs(sure - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / 20_000)
    assert np.mean(np.abs(stats.norm.cdf(gaps / np.hypot(*errors)) - 0.5) > 0.475) > 0.07


def coverage(values, truth, count=16):
    """Return how many intervals from so many values hold the truth: as they are, and by t without the correction."""
    parts = values.reshape(-1, count).T
    low, high = intervals.of_means(parts)
    reach = intervals.quantile(count - 1) * parts.std(axis=0, ddof=1) / np.sqrt(count)
    plain = np.abs(parts.mean(axis=0) - truth) <= reach
    return np.mean((low <= truth) & (truth <= high)), np.mean(plain)


@pytest.mark.parametrize("make", ["normal", "exponential", "gamma"])
def test_intervals_cover_what_they_say(make):
    """16 values, 50000 times, also of skewed gains: 93.5 to 96.5 %, five or more binomial errors (0.1 %) from 94.1 %.

    So a false alarm is rarer than 1 in 10⁶; without the correction for skewness the exponential has 91 %.
    """
    draw = np.random.default_rng(1)
    values, truth = {
        "normal": (draw.normal(size=16 * 50_000), 0.0),
        "exponential": (draw.exponential(size=16 * 50_000), 1.0),
        "gamma": (draw.gamma(2.0, size=16 * 50_000), 2.0),
    }[make]
    corrected, plain = coverage(values, truth)
    assert 0.935 < corrected < 0.965
    if make == "exponential":
        assert plain < 0.92


@pytest.mark.slow
@pytest.mark.parametrize(("gain", "truth"), [("closed_form", 2.2820), ("general", 2.2819)])
def test_intervals_cover_the_gain_of_the_linear_pendulum(gain, truth):
    """2500 intervals from 16 trajectories of PRBS; the truth is from 200000, ± 0.0014.

    95 ± 2 %: 3.2 binomial errors from the 94.4 % of a run ten times as long, once in 1000 runs.
    """
    policy = nb.policies.PRBS(LINEAR)
    estimate = nb.eig(KEY, LINEAR, policy, trajectories=16 * 2500, belief="exact", gain=gain)
    assert 0.93 < coverage(estimate.gains, truth)[0] < 0.97


def test_bands_do_not_leap():
    """One value that grows beyond the others makes the skewness grow, and the interval no wider than by a quarter."""
    values = np.append(np.linspace(0.0, 1.0, 15), 1.0)[:, None] + np.zeros(200)
    values[-1] = np.linspace(1.0, 50.0, 200)
    low, high = intervals.of_means(values)
    by_t = 2.0 * intervals.quantile(15) * values.std(axis=0, ddof=1) / 4.0
    assert np.max((high - low) / by_t) < 1.25


def test_intervals_of_few_or_equal_values():
    assert np.isnan(intervals.of_mean(np.ones(1))).all()
    assert intervals.of_mean(np.ones(5)) == (1.0, 1.0)
    values = np.array([1.0, 2.0])
    np.testing.assert_allclose(intervals.of_mean(values), stats.t.interval(0.95, 1, 1.5, 0.5))
    symmetric = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(intervals.of_mean(symmetric), stats.t.interval(0.95, 2, 2.0, 1 / np.sqrt(3.0)))
    low, high = intervals.of_mean(np.array([0.0, 0.1, 0.2, 3.0]))
    assert high - 0.825 > 0.825 - low  # it reaches further to where the long tail is


def test_estimates_scores_and_bounds_have_intervals():
    system = LinearLeak()
    policy = nb.policies.Random(system)
    estimate = nb.eig(KEY, system, policy, **SMALL)
    assert estimate.interval == intervals.of_mean(estimate.gains)
    assert estimate.interval.low < estimate.mean < estimate.interval.high
    (score,) = nb.compare(KEY, system, {"random": policy}, seeds=2, trajectories=4, **SMALL)
    assert score.interval == intervals.of_mean(score.steps.sum(axis=1))
    bound = nb.spce(KEY, system, policy, horizon=3, outer=4, contrastive=10)
    assert bound.interval == intervals.of_mean(bound.values)


@pytest.mark.slow
def test_gains_at_the_limit_of_their_particles_are_told_and_not_ranked(tmp_path, capsys):
    """An experiment worth more than log 8 = 2.08 cannot be seen by 8 particles."""
    system = Leak(diffusion=(0.01,))
    policies = {"random": nb.policies.Random(system), "prbs": nb.policies.PRBS(system)}
    few = {"horizon": 3, "belief": "ibis", "particles": 8}
    with pytest.warns(UserWarning, match="as much as ibis beliefs can show, log M = 2.08"):
        found = nb.compare(KEY, system, policies, seeds=2, trajectories=4, **few)
    assert set(found.doubts) == {"random", "prbs"}
    with pytest.raises(nb.NestbedError, match="who gains more is not known, since for random"):
        found.beats("random", "prbs")
    with pytest.warns(UserWarning, match=r"use nb\.certificate"):
        nb.sweep(KEY, system, policies["random"], trajectories=4, **few)
    comparison.save_table(found, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as stream:
        assert {row["probability_beats_prbs"] for row in csv.DictReader(stream)} == {""}
    tables.comparison(found, "leak", "")
    said = capsys.readouterr().out
    assert "Who gains more is not known" in said
    assert "probability" not in said


def test_an_estimate_below_its_lower_bound_is_not_ranked():
    low, bound, high = estimated(low=(3.0, 0.1), bound=(5.0, 0.1), high=(6.0, 0.1))
    found = comparison.Comparison([dataclasses.replace(low, spce=bound), high])
    with pytest.raises(nb.NestbedError, match=r"3\.00 nats, is below its own lower bound sPCE, 5\.00"):
        found.beats("high", "low")
    fine = comparison.Comparison([dataclasses.replace(low, spce=low), high])
    assert fine.beats("high", "low") > 0.9
    few = nb.PolicyEstimate(np.array([0.20, 0.22]), spce=nb.Estimate(np.array([0.38, 0.40])))
    assert not few.doubt  # two seeds say nothing, however near to each other


def test_what_the_bounds_leave_open_is_not_won():
    """A middle of 2.8 between bounds of −0.5 and 6.1 says nothing against 0.35."""

    def made(lower, upper, policy):
        noise = np.linspace(-0.1, 0.1, 64)
        found = nb.Certificate(lower + noise, upper + noise, np.ones(64), 64, 1, origin=(0,))
        return nb.PolicyEstimate(found.values, policy=policy, certificate=found)

    found = comparison.Comparison([made(-0.5, 6.1, "open"), made(0.34, 0.35, "known"), made(0.5, 0.52, "more")])
    assert found.beats("open", "known") == found.beats("known", "open") == 0.5
    assert found.beats("more", "known") > 0.99
    assert found.beats("known", "more") < 0.01


@pytest.mark.filterwarnings("ignore:the model does not explain the data")
def test_a_posterior_far_from_the_prior_is_told():
    """A level of 2 is kept by a flow of 1 at a rate of a half, fourteen prior standard deviations below 1."""
    system = Leak(prior={"rate": dist.LogNormal(0.0, 0.05)}, diffusion=(0.05,))
    designs = np.full((200, 1), 1.0)
    observations = np.full((201, 1), 2.0)
    with pytest.warns(UserWarning, match=r"puts rate at .*, far from all that its prior expects"):
        nb.posterior(KEY, system, observations, designs)


def test_tables_hold_every_estimate_and_every_chance(tmp_path):
    (bound,) = estimated(bound=(1.0, 0.1))
    both = estimated(a=(3.0, 0.3), b=(2.5, 0.4))
    found = comparison.Comparison([dataclasses.replace(each, spce=bound, snmc=bound) for each in both])
    comparison.save_table(found, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert float(rows[0]["eig_mean_nats"]) == 3.0
    assert float(rows[1]["snmc_standard_error"]) == 0.1
    assert float(rows[0]["probability_beats_b"]) == pytest.approx(found.beats("a", "b"), abs=1e-6)


def test_closed_form_gains_are_the_entropy_that_the_posterior_lost():
    """Their sum is half the log-ratio of the determinants, and their mean that of the general form."""
    settings = {"trajectories": 400, "belief": "exact"}
    policy = nb.policies.PRBS(LINEAR)
    closed = nb.eig(KEY, LINEAR, policy, gain="closed_form", **settings)
    general = nb.eig(KEY, LINEAR, policy, **settings)
    np.testing.assert_allclose(closed.steps[:, 0], 0.5 * np.log(1.5), rtol=1e-4)  # one experiment at full torque
    assert abs(closed.mean - general.mean) < 4.5 * general.standard_error
    assert closed.standard_error < general.standard_error
    record = nb.sweep(KEY, LINEAR, policy, trajectories=8, belief="exact", eta=0.0)
    result = nb.posterior(KEY, LINEAR, record.observations, record.designs, belief="exact", gain="closed_form")
    lost = 0.5 * (np.log(1e-4) - np.linalg.slogdet(result.covariance)[1])
    np.testing.assert_allclose(result.gains.sum(axis=1), lost, rtol=1e-6)


def test_closed_forms_need_an_exact_belief():
    with pytest.raises(nb.NestbedError, match="the gain of guided beliefs has no closed form"):
        nb.eig(KEY, LINEAR, nb.policies.PRBS(LINEAR), gain="closed_form")


def test_intervals_undo_halls_transformation():
    """The ends are where the skewness-corrected t statistic is ± its quantile: exact, whatever the values."""
    values = np.random.default_rng(0).gamma(3.0, 1.0, 20)
    n, sd = len(values), values.std(ddof=1)
    skewness = stats.skew(values, bias=False)
    for end, sign in zip(intervals.of_mean(values), (1.0, -1.0), strict=True):
        t = (values.mean() - end) / sd
        corrected = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / (6 * n)
        np.testing.assert_allclose(corrected, sign * stats.t.ppf(0.975, n - 1) / math.sqrt(n), rtol=1e-9)


def test_too_few_values_beat_nothing():
    assert math.isnan(intervals.chance_above(1.0, (0.5, 1), (0.5, 10)))


@pytest.mark.slow
def test_improbable_outcomes_of_a_record_are_told():
    leak = Leak()
    record = nb.sweep(jax.random.key(0), leak, nb.policies.PRBS(leak), horizon=4, trajectories=1, eta=0.0)
    states, designs = record.observations[0], record.designs[0]
    nb.posterior(jax.random.key(1), leak, states, designs, particles=64)
    with pytest.warns(UserWarning, match=r"of 4 outcomes are improbable under all .* standard deviations off"):
        nb.posterior(jax.random.key(1), leak, states, 30.0 * designs, particles=64)
