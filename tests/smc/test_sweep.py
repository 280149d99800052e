"""The sweep: its evidence against quadrature, its conditional form against exact references, its bookkeeping."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.belief import IBIS, Exact, Guided
from nestbed.belief.potential import Potential
from nestbed.likelihood import history
from nestbed.likelihood.base import Record
from nestbed.numerics import programs, resampling
from nestbed.policies.base import prepare
from nestbed.smc import sweep as module
from nestbed.smc.sweep import compiled_sweep, run
from toys import Constant, Counter, Leak, LinearLeak, z_score

LEAK, LINEAR = Leak(), LinearLeak()
ETA = 0.45
"""Below ½, so that weights exp(η r) have a finite variance: a gain grows like the square of a normal number."""

ALWAYS = 1.1  # a threshold that resamples at every step


def potential(eta, slew=0.0, action=0.0):
    return Potential(*(jnp.asarray(v, float) for v in (eta, slew, action)), jnp.ones(1))


# log Ẑ: unbiased for Z.


def quadrature_evidence(eta, design=1.0, slew=0.1):
    """Return Z for two experiments of the linear leak by Gauss–Hermite integration, written from scratch."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(120)
    mass = mass / mass.sum()
    noise = 0.125

    def step(x, m, p, node):
        h = -0.5 * x
        mean, variance = x + 0.5 * design + h * m, noise + h * h * p
        y = mean + np.sqrt(variance) * node
        gain = p * h / variance
        m2, p2 = m + gain * (y - mean), p - gain * h * p
        alpha = -0.5 * (np.log(2 * np.pi * noise) + ((y - x - 0.5 * design - h * m2) ** 2 + h * h * p2) / noise)
        beta = 0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)
        return y, m2, p2, alpha + beta

    x1, m1, p1, r1 = step(1.0, 1.0, 0.49, nodes[:, None])
    _, _, _, r2 = step(x1, m1, p1, nodes[None, :])
    total = np.exp(eta * (r1 + r2 - slew * design**2))  # only the first experiment changes the design
    return float(mass @ total @ mass)


def check_evidence(threshold):
    """Mean of Ẑ over 40000 sweeps of 8 trajectories; z below 4.5, false alarm 7e-6."""
    policy, belief = prepare(Constant(1.0), LINEAR), Exact(LINEAR)
    go = partial(run, horizon=2, count=8, threshold=threshold)
    once = jax.jit(jax.vmap(lambda key: go(key, belief, policy, potential(ETA, 0.1))[0]))
    result = once(jax.random.split(jax.random.key(0), 40_000))
    resampled = np.asarray(result.info.resampled)[:, 1].mean()
    z = z_score(np.exp(result.log_evidence) - quadrature_evidence(ETA))
    assert abs(z) < 4.5, f"{z=}"
    return resampled


def test_evidence_is_unbiased():
    assert check_evidence(ALWAYS) == 1


def test_evidence_is_unbiased_when_resampling_is_adaptive():
    assert 0.1 < check_evidence(0.97) < 0.9  # both branches are exercised


def test_mutant_resampling_biased_by_one_is_caught(monkeypatch):
    original = resampling.systematic
    monkeypatch.setattr(resampling, "systematic", lambda u, logs: (original(u, logs) + 1) % logs.shape[-1])
    with pytest.raises(AssertionError, match="z="):
        check_evidence(ALWAYS)


@pytest.mark.slow
def test_evidence_of_the_nested_filter_converges_to_the_exact_one():
    """M = 512 particles instead of the exact belief: within 2 % of Z."""
    policy = prepare(Constant(1.0), LINEAR)
    belief = IBIS(LINEAR, 512, 3)
    once = jax.jit(
        lambda keys: jax.lax.map(
            lambda key: run(key, belief, policy, potential(ETA, 0.1), horizon=2, count=64)[0].log_evidence,
            keys,
        )
    )
    values = np.exp(once(jax.random.split(jax.random.key(1), 400)))
    assert values.mean() == pytest.approx(quadrature_evidence(ETA), rel=0.02)


# Conditional sweeps leave their target invariant.


STEPS = 6


def exact_references(belief, policy, eta, pool=20_000, count=10_000):
    """Draw references from the target itself: independent trajectories, resampled by their whole weight."""

    def single(key):
        return run(key, belief, policy, potential(0.0), horizon=STEPS, count=1, keep=True)[0]

    drawn = jax.jit(jax.vmap(single))(jax.random.split(jax.random.key(10), pool))
    logs = eta * np.asarray(drawn.gains.sum((1, 2)))
    weights = np.exp(logs - logs.max())
    chosen = np.random.default_rng(11).choice(pool, count, p=weights / weights.sum())
    return jax.tree.map(lambda leaf: leaf[chosen], drawn.reference)


def statistics(reference):
    """Return what must keep its distribution: states, designs and their products, and the last belief."""
    x, u = np.asarray(reference.observations[:, 1:, 0]), np.asarray(reference.designs[:, :, 0])
    last = np.asarray(jax.tree.leaves(reference.beliefs)[0][:, -1]).reshape(len(x), -1).mean(1, keepdims=True)
    return np.concatenate([x, x**2, u, u**2, x * u, last], axis=1)


def check_invariance(belief, eta, threshold=module.THRESHOLD, sweeper=run):
    """Move 10000 exact references once; paired differences of 31 statistics, z below 5 (false alarm 2e-5)."""
    policy = prepare(nb.policies.Random(LEAK), LEAK)
    before = exact_references(belief, policy, eta)

    def move(key, reference):
        settings = {"horizon": STEPS, "count": 2, "reference": reference, "keep": True, "threshold": threshold}
        return sweeper(key, belief, policy, potential(eta), **settings)[0].reference

    after = jax.jit(jax.vmap(move))(jax.random.split(jax.random.key(12), 10_000), before)
    moved = np.any(np.asarray(after.observations != before.observations), axis=(1, 2))
    assert moved.mean() > 0.2
    assert np.abs(z_score(statistics(after) - statistics(before))).max() < 5


TAME = LEAK.replace(prior={"rate": dist.LogNormal(-0.5, 0.5)})  # no record gains so much that it outweighs all


class Sensed(Leak):
    """A level behind a sensor of unknown bias, moved by an unknown gain: hidden, and yet its belief is exact."""

    prior = {"gain": dist.Normal(1.0, 0.7), "bias": dist.Normal(0.0, 0.3)}
    start = dist.Normal(1.0, 0.5)
    sensors = {"gauge": 0.3}

    def drift(self, x, u, theta):
        return -0.8 * x.level + theta.gain * u.flow

    def observe(self, x, theta):
        return x.level + theta.bias


CASES = {
    "exact": (Exact(LINEAR), ETA),
    "exact behind sensors": (Exact(Sensed()), ETA),
    "ibis": (IBIS(LEAK, 8, 1), 1.0),
    "guided": (Guided(TAME, 8), 0.3),
    "prior": (Exact(LINEAR), 0.0),
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "threshold"),
    [
        ("exact", module.THRESHOLD),
        pytest.param("exact", ALWAYS, marks=SLOW),
        pytest.param("exact behind sensors", module.THRESHOLD, marks=SLOW),
        pytest.param("exact behind sensors", ALWAYS, marks=SLOW),
        ("ibis", module.THRESHOLD),
        pytest.param("guided", module.THRESHOLD, marks=SLOW),
        pytest.param("guided", ALWAYS, marks=SLOW),
        ("prior", module.THRESHOLD),
        pytest.param("ibis", ALWAYS, marks=SLOW),
        pytest.param("prior", ALWAYS, marks=SLOW),
    ],
)
def test_conditional_sweeps_leave_the_target_invariant(case, threshold):
    check_invariance(*CASES[case], threshold)


def test_mutant_reference_slot_not_kept_is_caught(monkeypatch):
    monkeypatch.setattr(resampling, "conditional", resampling.multinomial)
    with pytest.raises(AssertionError):
        check_invariance(*CASES["exact"], ALWAYS)


@SLOW
def test_mutant_reference_belief_not_kept_is_caught(monkeypatch):
    original = module._pin
    forget = lambda tree, kept: tree if isinstance(tree, tuple) else original(tree, kept)  # noqa: E731
    monkeypatch.setattr(module, "_pin", forget)  # beliefs are tuples, states and designs are arrays
    with pytest.raises(AssertionError):
        check_invariance(*CASES["ibis"])


def test_mutant_reference_trajectory_not_kept_is_caught():
    def forgetful(key, belief, policy, potential, *, reference, **settings):
        return run(key, belief, policy, potential, **settings)

    with pytest.raises(AssertionError):
        check_invariance(*CASES["exact"], sweeper=forgetful)


@pytest.mark.slow
def test_conditional_sweeps_find_the_target_from_a_bad_reference():
    """A Geweke-type check: 2000 chains of 40 sweeps from prior references reach the target; z below 4.5."""
    belief, policy = Exact(LINEAR), prepare(nb.policies.Random(LINEAR), LINEAR)
    start = exact_references(belief, policy, 0.0, 2000, 2000)
    target = exact_references(belief, policy, ETA)

    def move(reference, key):
        settings = {"horizon": STEPS, "count": 8, "reference": reference, "keep": True}
        return run(key, belief, policy, potential(ETA), **settings)[0].reference, None

    keys = jax.random.split(jax.random.key(20), (2000, 40))
    after = jax.jit(jax.vmap(lambda r, k: jax.lax.scan(move, r, k)[0]))(start, keys)
    a, b, prior = statistics(after), statistics(target), statistics(start)
    error = np.sqrt(a.var(0) / 2000 + b.var(0) / 10_000 + b.var(0) / 10_000)  # the pool of targets is finite too
    assert (np.abs(a.mean(0) - b.mean(0)) < 4.5 * error).all()
    assert (np.abs(prior.mean(0) - b.mean(0)) > 4.5 * error).any()  # they had a way to go


# Bookkeeping.

SMALL = {"horizon": 6, "trajectories": 8, "particles": 32, "moves": 2, "belief": "ibis"}


def test_shapes_types_and_names():
    system = nb.systems.load("double_link")
    result = nb.sweep(jax.random.key(0), system, nb.policies.PRBS(system), **SMALL)
    assert result.observations.shape == (8, 7, 4)
    assert result.designs.shape == (8, 6, 2)
    assert result.gains.shape == (8, 6)
    assert result.log_weights.shape == (8,)
    assert result.log_evidence.shape == ()
    assert result.reference.observations.shape == (7, 4)
    assert {leaf.dtype for leaf in (result.observations, result.gains, result.log_weights)} == {jnp.dtype("float64")}
    assert float(jnp.exp(result.log_weights).sum()) == pytest.approx(1)


def test_same_key_same_numbers_other_key_others():
    go = partial(nb.sweep, system=LEAK, policy=nb.policies.Random(LEAK), **SMALL)
    first, again, other = go(jax.random.key(0)), go(jax.random.key(0)), go(jax.random.key(1))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), first, again))
    assert not jnp.array_equal(first.observations, other.observations)


def test_without_tempering_nothing_is_resampled():
    result = nb.sweep(jax.random.key(0), LEAK, nb.policies.Random(LEAK), eta=0.0, **SMALL)
    assert not result.info.resampled.any()
    np.testing.assert_allclose(result.log_weights, -np.log(8))
    assert float(result.log_evidence) == pytest.approx(0, abs=1e-12)


def test_reference_stays_in_the_first_slot_with_its_beliefs():
    go = partial(nb.sweep, system=LEAK, policy=nb.policies.Random(LEAK), eta=5.0, **SMALL)
    reference = go(jax.random.key(0)).reference
    result = go(jax.random.key(1), reference=reference)
    assert result.info.resampled.any()
    assert (result.info.ancestors[:, 0] == 0).all()
    np.testing.assert_array_equal(result.observations[0], reference.observations)
    np.testing.assert_array_equal(result.designs[0], reference.designs)


@pytest.mark.parametrize("kind", ["ibis", "guided"])
def test_drawn_reference_is_one_of_the_trajectories_and_its_beliefs_belong_to_it(kind):
    """Recompute each kept particle's log-posterior from the reference's own record."""
    result = nb.sweep(jax.random.key(3), LEAK, nb.policies.Random(LEAK), eta=5.0, **{**SMALL, "belief": kind})
    assert result.info.resampled.any()
    r = result.reference
    assert any(jnp.array_equal(r.observations, states) for states in result.observations)
    table = history.tabulate(Record(r.observations[None], r.designs[None]))
    for t in range(6):
        position = (r.beliefs.position[0][t][None],)
        theta = LEAK.parameters.constrain(position)
        _, fresh = history.log_likelihood(likelihoods.of(LEAK), table, jnp.int32(t), theta)
        fresh = fresh + LEAK.parameters.log_density(position)
        np.testing.assert_allclose(r.beliefs.log_posterior[t], fresh[0], rtol=1e-9)


def test_the_policy_carry_is_resampled_with_its_trajectory():
    """The design must be the tanh of the sum of the trajectory's own states, whatever was resampled."""
    result = nb.sweep(jax.random.key(0), LEAK, Counter(), eta=8.0, **SMALL)
    assert result.info.resampled.sum() > 1
    expected = np.tanh(np.cumsum(np.asarray(result.observations)[:, :-1, 0], axis=1))
    np.testing.assert_allclose(result.designs[:, :, 0], expected, rtol=1e-12)


def test_penalties_enter_the_weights_but_not_the_gains():
    go = partial(nb.sweep, jax.random.key(0), LEAK, nb.policies.Random(LEAK), eta=0.01, **SMALL)
    free, slew, action = go(slew_penalty=0.0), go(slew_penalty=2.0), go(slew_penalty=0.0, action_penalty=3.0)
    assert not slew.info.resampled.any()
    np.testing.assert_array_equal(free.gains, slew.gains)
    changes = np.diff(np.asarray(free.designs)[:, :, 0], axis=1, prepend=0.0)
    for penalised, cost in (
        (slew, 2.0 * (changes**2).sum(1)),
        (action, 3.0 * (np.asarray(free.designs) ** 2).sum((1, 2))),
    ):
        logs = np.asarray(free.log_weights) - 0.01 * cost
        np.testing.assert_allclose(penalised.log_weights, logs - np.log(np.exp(logs).sum()), rtol=1e-9)


def test_weights_are_the_tempered_gains_until_the_first_resampling():
    result = nb.sweep(jax.random.key(0), LEAK, nb.policies.Random(LEAK), eta=0.02, slew_penalty=0.0, **SMALL)
    assert not result.info.resampled.any()
    logs = 0.02 * np.asarray(result.gains).sum(1)
    np.testing.assert_allclose(result.log_weights, logs - np.log(np.exp(logs).sum()), rtol=1e-9)


def test_both_forms_of_the_gain_have_the_same_mean():
    """Constant-noise form against the general one on the same trajectories, z below 4.5."""
    go = partial(nb.sweep, jax.random.key(4), LINEAR, nb.policies.Random(LINEAR), eta=0.0, belief="exact")
    general, constant = (go(trajectories=20_000, gain=form).gains for form in ("general", "constant_noise"))
    assert abs(z_score(np.asarray(general - constant).sum(1))) < 4.5
    assert constant.sum(1).var() > general.sum(1).var()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:experiments gain about as much")
def test_the_sweep_compiles_once():
    programs.drop()  # so that none are dropped meanwhile
    system = type("Leak", (Leak,), {})()
    policy = nb.policies.Random(system)
    counts = []
    for seed in range(3):
        nb.sweep(jax.random.key(seed), system, policy, eta=float(seed), slew_penalty=0.1 * seed, **SMALL)
        counts.append(compiled_sweep._cached._cache_size())
    assert len(set(counts)) == 1
