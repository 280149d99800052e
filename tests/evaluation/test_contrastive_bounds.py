"""sPCE and sNMC against plain sums, against the exact gain, and against theory."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import nestbed as nb
from nestbed.evaluation import contrastive_bounds as module
from nestbed.evaluation import experiments
from nestbed.likelihood.simulation import simulate
from nestbed.numerics.errors import NonFiniteError
from toys import Constant, Counter, Leak, LinearLeak, z_score

KEY = jax.random.key(0)
SYSTEM = LinearLeak()
SMALL = {"horizon": 3}


def likelihood(states, designs, rate):
    """Return the log-likelihood of one record of the leak under each rate, by scipy."""
    mean = states[:-1] + 0.5 * (-rate[:, None] * states[:-1] + designs)
    return norm.logpdf(states[1:], mean, np.sqrt(0.5 * 0.25)).sum(1)


@pytest.mark.parametrize("contrastive", [1, 5, module.DRAWS_AT_A_TIME, module.DRAWS_AT_A_TIME + 7])
def test_both_bounds_are_the_sums_that_define_them(contrastive):
    policy = nb.policies.Random(SYSTEM)
    found = module.bounds(KEY, SYSTEM, policy, outer=5, contrastive=contrastive, **SMALL)
    keys = jax.random.split(KEY, (1, 2))
    (own,), record = experiments.simulated(keys[0, 0], SYSTEM, policy, 3, 5)
    draws = [
        SYSTEM.parameters.draw(jax.random.fold_in(keys[0, 1], i), (1, module.DRAWS_AT_A_TIME))[0][0] for i in range(2)
    ]
    others = np.concatenate(draws)[:contrastive]
    for i in range(5):
        z = np.asarray(record.observations[i, :, 0]), np.asarray(record.designs[i, :, 0])
        mine, theirs = likelihood(*z, np.asarray(own[i : i + 1])), likelihood(*z, others)
        spce = mine[0] - (logsumexp(np.append(theirs, mine)) - np.log(contrastive + 1))
        snmc = mine[0] - (logsumexp(theirs) - np.log(contrastive))
        assert found.spce.values[i] == pytest.approx(spce, abs=1e-10)
        assert found.snmc.values[i] == pytest.approx(snmc, abs=1e-10)


def test_each_name_gives_its_bound():
    policy = nb.policies.Random(SYSTEM)
    settings = {"outer": 5, "contrastive": 5, **SMALL}
    both = module.bounds(KEY, SYSTEM, policy, **settings)
    assert nb.spce(KEY, SYSTEM, policy, **settings).mean == both.spce.mean == both.spce.values.mean()
    assert nb.snmc(KEY, SYSTEM, policy, **settings).mean == both.snmc.mean != both.spce.mean
    assert both.spce.standard_error == pytest.approx(both.spce.values.std(ddof=1) / np.sqrt(5))


def test_simulated_records_follow_the_equations_and_the_policy():
    """Without noise a record is the recursion itself, and the policy sees every state once, in order."""

    class Quiet(Leak):
        diffusion, noise_floor, integrator = (0.0,), 1e-300, "euler"

    system = Quiet()
    rates = jnp.array([0.3, 1.1])
    states, designs = simulate(KEY, system, Counter(), (rates,), 4).record
    for i, rate in enumerate(np.asarray(rates)):
        x, seen = 1.0, 0.0
        for t in range(4):
            assert states[i, t, 0] == pytest.approx(x)
            seen += x
            assert designs[i, t, 0] == pytest.approx(np.tanh(seen))
            x += 0.5 * (-rate * x + np.tanh(seen))
        assert states[i, 4, 0] == pytest.approx(x)


@pytest.mark.parametrize(("outer", "tens"), [(240, 4), pytest.param(1600, 5, marks=pytest.mark.slow)])
def test_bounds_enclose_the_exact_gain_and_tighten_with_contrastive_draws(outer, tens):
    """Random torques on the linear pendulum: L from 1 to 1000 or 10000; z below 4.5 throughout."""
    system = nb.systems.load("linear_pendulum")
    policy = nb.policies.Random(system)
    exact = nb.eig(jax.random.key(1), system, policy, trajectories=outer, belief="exact", gain="closed_form")
    found = [module.bounds(KEY, system, policy, outer=outer, contrastive=10**k) for k in range(tens)]
    for k, (spce, snmc) in enumerate(found):
        below, above = np.hypot(exact.standard_error, [spce.standard_error, snmc.standard_error])
        assert spce.mean - exact.mean < 4.5 * below
        assert snmc.mean - exact.mean > -4.5 * above
        assert spce.mean < np.log1p(10**k)
        assert spce.values.max() < np.log1p(10**k) + 1e-12
    for (spce, snmc), (tighter, lower) in pairwise(found):
        assert z_score(tighter.values - spce.values) > -4.5  # the same records: every tenfold L tightens
        assert z_score(snmc.values - lower.values) > -4.5
    assert found[0].spce.mean < 0.6 * exact.mean < 0.9 * found[0].snmc.mean
    for bound in found[-1]:
        assert bound.mean == pytest.approx(exact.mean, abs=4.5 * np.hypot(exact.standard_error, bound.standard_error))


def test_standard_errors_tell_the_spread_of_repetitions():
    """Records share contrastive draws; 150 repetitions of 16 records say that this hides no error."""
    policy = nb.policies.PRBS(SYSTEM)
    found = [nb.spce(jax.random.key(i), SYSTEM, policy, outer=16, contrastive=100, **SMALL) for i in range(150)]
    spread = np.var([bound.mean for bound in found], ddof=1)
    told = np.mean([bound.standard_error**2 for bound in found])
    assert 0.6 < spread / told < 1.6  # a variance of 150 has a standard error of 12 %


@pytest.mark.parametrize("outer", [1, 5, 17, 40])
def test_every_record_counts_once(outer):
    told = []
    found = nb.spce(KEY, SYSTEM, nb.policies.Random(SYSTEM), outer=outer, contrastive=5, progress=told.append, **SMALL)
    assert found.values.shape == (outer,)
    assert len(np.unique(found.values)) == outer
    assert told[-1] == ("bounds", outer, outer)
    assert np.isnan(found.standard_error) == (outer == 1)


def test_designs_outside_the_box_and_parameters_without_a_drift_get_a_sentence():
    with pytest.raises(nb.NestbedError, match=r"flow = 3 at step 0, outside the limits \(-1.0, 1.0\)"):
        nb.spce(KEY, SYSTEM, Constant(3.0), contrastive=5, **SMALL)

    class Root(Leak):
        prior = {"rate": dist.Normal(2.5, 1.0)}

        def drift(self, x, u, theta):
            return -jnp.sqrt(theta.rate) * x.level

    root = Root()
    draws = np.asarray(root.parameters.draw(jax.random.split(jax.random.split(KEY, (1, 2))[0, 0])[0], (2,))[0])
    assert (draws > 0).all()  # so the records are fine, and only contrastive draws are not
    with pytest.raises(NonFiniteError, match=r"the drift of 'level' in Root is nan .* rate = -"):
        nb.spce(KEY, root, Constant(0.5), outer=2, contrastive=5000, **SMALL)
    with pytest.raises(NonFiniteError, match=r"the drift of 'level' in Root is nan .* rate = -"):
        nb.spce(KEY, root, Constant(0.5), outer=2000, contrastive=1, **SMALL)


@pytest.mark.filterwarnings("ignore:one step of Steep")  # for most of so wide a prior it is too long
def test_a_record_without_a_density_is_an_error_and_not_a_nan():
    class Steep(Leak):
        prior = {"rate": dist.LogNormal(0.0, 30.0)}

        def drift(self, x, u, theta):
            return theta.rate**3 * 1e150 * u.flow

    with pytest.raises(NonFiniteError, match="Steep"):
        nb.spce(KEY, Steep(), Constant(0.5), outer=16, contrastive=5, **SMALL)


def test_too_many_draws_are_refused():
    with pytest.raises(nb.NestbedError, match="draws would take days; give fewer"):
        nb.spce(KEY, SYSTEM, nb.policies.Random(SYSTEM), contrastive=10**20, **SMALL)


@pytest.mark.parametrize("wrong", [{"outer": 0}, {"contrastive": 0}, {"contrastive": 1e6}, {"horizon": -1}])
def test_counts_must_be_whole_and_positive(wrong):
    with pytest.raises(nb.NestbedError, match=f"{next(iter(wrong))} is .*, but it must be a whole number"):
        nb.spce(KEY, SYSTEM, nb.policies.Random(SYSTEM), **wrong)
