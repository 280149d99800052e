"""Policies with a belief of their own: what they believe, how they choose, and the best of one step by brute force."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import kstest, norm

import nestbed as nb
from nestbed import belief as beliefs
from nestbed.likelihood.simulation import simulate
from toys import Leak, LinearLeak

KEY = jax.random.key(0)


class Peak(nb.System):
    """A drive that tells most at a design inside the box, at 1/2."""

    state = ("level",)
    designs = nb.Box(angle=(-0.2, 1.0))
    prior = {"strength": dist.Normal(0.0, 2.0)}
    step, diffusion, noise_floor = 1.0, (0.5,), 0.0
    defaults = nb.Defaults(horizon=3)

    def drift(self, x, u, theta):
        return theta.strength * jnp.sin(jnp.pi * u.angle)

    def features(self, x, u):
        return ((jnp.sin(jnp.pi * u.angle),),)


class Bowl(nb.System):
    """Two designs, the best of them inside the box, at (0.3, -0.6)."""

    state = ("level",)
    designs = nb.Box(a=(-1.0, 1.0), b=(-1.0, 1.0))
    prior = {"strength": dist.LogNormal(0.0, 0.5)}
    step, diffusion, noise_floor = 1.0, (0.2,), 0.0
    defaults = nb.Defaults(horizon=2)

    def drift(self, x, u, theta):
        return theta.strength / (1.0 + (u.a - 0.3) ** 2 + (u.b + 0.6) ** 2)


def first_design(policy, system):
    step = eqx.filter_jit(lambda key: policy.step(key, policy.init(), jnp.zeros(len(system.state)), jnp.zeros(1))[1])
    return np.asarray(step(KEY))


def brute_force(system, u, nodes=200):
    """Return the expected gain of one experiment with a design, by quadrature over the parameter and the outcome."""
    (prior,) = system.prior.values()
    theta = np.asarray(prior.icdf((np.arange(nodes) + 0.5) / nodes))
    (mean,) = system.mean((jnp.zeros(1),), tuple(jnp.array([value]) for value in u), (jnp.asarray(theta),))
    sigma = float(system.variance((), (), ())[0]) ** 0.5
    x = np.linspace(mean.min() - 6 * sigma, mean.max() + 6 * sigma, 1500)
    density = norm.pdf(x[:, None], np.broadcast_to(np.asarray(mean), theta.shape), sigma).mean(1)
    entropy = -np.trapezoid(density * np.log(np.maximum(density, 1e-300)), x)
    return entropy - norm(0, sigma).entropy()


@pytest.mark.parametrize("kind", ["exact", "ibis"])
def test_greedy_finds_the_best_design_of_a_grid(kind):
    system = Peak()
    grid = np.linspace(-0.2, 1.0, 241)
    gains = np.array([brute_force(system, (u,)) for u in grid[::8]])
    best = grid[::8][gains.argmax()]
    assert best == pytest.approx(0.5, abs=0.04)
    policy = nb.policies.Greedy(system, belief=kind)
    chosen = float(first_design(policy, system)[0])
    assert chosen == pytest.approx(best, abs=0.06 if kind == "ibis" else 0.04)
    assert brute_force(system, (chosen,)) > gains.max() - 1e-3


def test_greedy_searches_several_designs_together():
    system = Bowl()
    policy = nb.policies.Greedy(system, candidates=32)
    step = eqx.filter_jit(lambda key: policy.step(key, policy.init(), jnp.zeros(1), jnp.zeros(2))[1])
    chosen = np.asarray(step(KEY))
    grid = [(a, b) for a in np.linspace(-1, 1, 9) for b in np.linspace(-1, 1, 9)]
    best = max(brute_force(system, u) for u in grid)
    assert brute_force(system, chosen) > best - 2e-3
    np.testing.assert_allclose(chosen, (0.3, -0.6), atol=0.1)


def test_greedy_goes_to_the_limit_where_the_best_design_lies_there():
    system = nb.systems.load("linear_pendulum")
    policy = nb.policies.Greedy(system, belief="exact")
    step = eqx.filter_jit(lambda key: policy.step(key, policy.init(), jnp.zeros(2), jnp.zeros(1))[1])
    assert np.abs(step(KEY)) == 1.0


def test_expected_gains_of_particles_are_those_of_quadrature():
    """4096 particles and outcomes; five standard errors of both draws."""
    system, count = Bowl(), 4096
    belief = beliefs.IBIS(system, count, 1)
    designs = np.array([[0.3, -0.6], [-1.0, 1.0], [1.0, 0.0]])
    gains = belief.expected_gains(KEY, belief.init(KEY, jnp.zeros((1, 1))), jnp.array(designs)[None], 512)
    for u, gain in zip(designs, np.asarray(gains)[0], strict=True):
        assert gain == pytest.approx(brute_force(system, u), abs=5 * 0.7 / np.sqrt(512))


def test_expected_gains_follow_the_weights():
    """Particles of a wide prior weighted to a narrow one, against the quadrature of the narrow one."""

    class Narrow(Bowl):
        prior = {"strength": dist.LogNormal(0.3, 0.15)}

    belief = beliefs.IBIS(Bowl(), 4096, 1)
    state = belief.init(KEY, jnp.zeros((1, 1)))
    log_weights = dist.Normal(0.3, 0.15).log_prob(state.position[0]) - dist.Normal(0.0, 0.5).log_prob(state.position[0])
    state = state._replace(log_weights=log_weights - jax.nn.logsumexp(log_weights))
    designs = np.array([[0.3, -0.6], [1.0, 0.0]])
    gains = belief.expected_gains(KEY, state, jnp.array(designs)[None], 512)
    for u, gain in zip(designs, np.asarray(gains)[0], strict=True):
        wide, narrow = brute_force(Bowl(), u), brute_force(Narrow(), u)
        assert gain == pytest.approx(narrow, abs=0.3 * (wide - narrow))


def test_closed_form_gains_count_every_state():
    """Two states that both tell of two parameters: the sum is half the log-ratio of the determinants."""

    class Both(nb.System):
        state = ("a", "b")
        designs = nb.Box(u=(-1.0, 1.0))
        prior = {"p": dist.Normal(0.0, 1.0), "q": dist.Normal(0.0, 2.0)}
        step, diffusion = 1.0, (0.5, 0.7)

        def drift(self, x, u, theta):
            return theta.p * u.u + theta.q, theta.q - theta.p * u.u

        def features(self, x, u):
            return (u.u, 1.0), (-u.u, 1.0)

    belief = beliefs.Exact(Both())
    before = belief.init(KEY, jnp.zeros((1, 2)))
    after, evidence = belief.update(before, jnp.full((1, 1), 0.8), jnp.ones((1, 2)))
    lost = 0.5 * (np.linalg.slogdet(before.covariance)[1] - np.linalg.slogdet(after.covariance)[1])
    np.testing.assert_allclose(evidence.entropy_drop, lost, rtol=1e-9)


def test_expected_gains_in_closed_form_are_those_of_quadrature():
    system = Peak()
    belief = beliefs.Exact(system)
    designs = np.array([[0.5], [0.1], [0.0]])
    gains = belief.expected_gains(KEY, belief.init(KEY, jnp.zeros((1, 1))), jnp.array(designs)[None], 1)
    for u, gain in zip(designs, np.asarray(gains)[0], strict=True):
        assert gain == pytest.approx(brute_force(system, u, nodes=4000), abs=2e-3)


def memory_after(policy, states, designs):
    """Return a policy's memory after it has seen a record."""
    memory, previous = policy.init(), jnp.zeros(designs.shape[1])
    step = eqx.filter_jit(policy.step)
    for t, x in enumerate(states):
        memory, _ = step(jax.random.key(t), memory, x, previous)
        previous = designs[t] if t < len(designs) else previous
    return memory


@pytest.mark.parametrize("kind", [nb.policies.Myopic, nb.policies.Greedy])
def test_the_belief_within_is_the_posterior_of_what_was_seen(kind):
    system = LinearLeak()
    states, designs = (
        leaf[0] for leaf in simulate(KEY, system, nb.policies.Random(system), (jnp.array([0.4]),), 4).record
    )
    memory = memory_after(kind(system, belief="exact"), states, designs)
    truth = nb.posterior(KEY, system, states, designs, belief="exact")
    np.testing.assert_allclose(memory.learner.belief.mean[0], truth.mean, rtol=1e-12)
    np.testing.assert_allclose(memory.learner.belief.covariance[0], truth.covariance, rtol=1e-12)


@pytest.mark.slow
def test_the_particles_within_are_moved_and_agree_with_the_posterior():
    """1024 particles, wide prior, so they are resampled and moved; five standard errors."""
    system = Leak()
    states, designs = (
        leaf[0] for leaf in simulate(KEY, system, nb.policies.PRBS(system), (jnp.array([2.0]),), 4).record
    )
    memory = memory_after(nb.policies.Greedy(system, 2, rounds=1, outcomes=2, particles=1024), states, designs)
    truth = nb.posterior(jax.random.key(9), system, states, designs, particles=16384)
    weights, rates = np.exp(memory.learner.belief.log_weights[0]), np.asarray(memory.learner.belief.theta[0][0])
    error = np.sqrt(truth.covariance[0, 0] / 300)  # an effective size well below 1024
    assert weights @ rates == pytest.approx(float(truth.mean[0]), abs=5 * error)
    assert len(np.unique(rates)) > 500


@pytest.mark.slow
def test_the_memory_follows_from_what_was_seen_and_not_from_the_key():
    system = Leak()
    policy = nb.policies.Myopic(system, 4, particles=64)
    step = eqx.filter_jit(policy.step)
    first = [step(key, policy.init(), jnp.ones(1), jnp.zeros(1)) for key in jax.random.split(KEY)]
    after = [step(KEY, memory, 2 * jnp.ones(1), jnp.zeros(1))[0] for memory, _ in first]
    assert float(first[0][1][0]) != float(first[1][1][0])
    for a, b in zip(*map(jax.tree.leaves, after), strict=True):
        np.testing.assert_array_equal(a, b)
    other = step(KEY, step(KEY, policy.init(), 3 * jnp.ones(1), jnp.zeros(1))[0], 2 * jnp.ones(1), jnp.zeros(1))[0]
    assert int(other.word) != int(after[0].word)  # the same last state after another past


def test_myopic_designs_are_uniform_without_tempering():
    system = LinearLeak()
    policy = nb.policies.Myopic(system, 16, eta=0.0, belief="exact")
    draw = eqx.filter_jit(jax.vmap(lambda key: policy.step(key, policy.init(), jnp.ones(1), jnp.zeros(1))[1]))
    designs = np.asarray(draw(jax.random.split(KEY, 2000)))[:, 0]
    assert kstest(designs, "uniform", args=(-1, 2)).pvalue > 1e-4


def test_myopic_weighs_candidates_by_the_potential():
    """The slew penalty alone makes a density ∝ exp(−η s (u − u₀)²), which 256 candidates follow closely."""
    system = LinearLeak()
    policy = nb.policies.Myopic(system, 256, eta=1.0, slew_penalty=4.0, belief="exact")
    draw = eqx.filter_jit(jax.vmap(lambda key: policy.step(key, policy.init(), jnp.zeros(1), 0.5 * jnp.ones(1))[1]))
    designs = np.asarray(draw(jax.random.split(KEY, 2000)))[:, 0]  # at level 0 no design tells anything
    scale = 8**-0.5
    low, high = norm.cdf([-1, 1], 0.5, scale)
    assert kstest(designs, lambda u: (norm.cdf(u, 0.5, scale) - low) / (high - low)).pvalue > 1e-4


def test_myopic_prefers_designs_that_tell_more():
    system = Peak()
    policy = nb.policies.Myopic(system, 64, eta=8.0, slew_penalty=0.0, belief="exact")
    draw = eqx.filter_jit(jax.vmap(lambda key: policy.step(key, policy.init(), jnp.zeros(1), jnp.zeros(1))[1]))
    designs = np.asarray(draw(jax.random.split(KEY, 500)))[:, 0]
    share = (np.abs(designs - 0.5) < 0.25).mean()
    assert 0.65 < share < 0.9  # 0.42 by chance, nearly all if it knew the expected gains and not one outcome each


@pytest.mark.slow
def test_greedy_gains_more_than_myopic_than_random():
    """On the toy whose designs matter: 200 trajectories each, differences beyond three standard errors."""
    system = Peak()
    policies = [
        nb.policies.Greedy(system, belief="exact"),
        nb.policies.Myopic(system, belief="exact", eta=4.0),
        nb.policies.Random(system),
    ]
    found = [nb.eig(KEY, system, p, trajectories=200, belief="exact", gain="closed_form") for p in policies]
    for better, worse in pairwise(found):
        assert better.mean - worse.mean > 3 * np.hypot(better.standard_error, worse.standard_error)


def test_wrong_settings_get_a_sentence():
    system = LinearLeak()
    with pytest.raises(nb.NestbedError, match="at most 4 experiments, but 5 are asked for; make it with horizon=5"):
        nb.eig(KEY, system, nb.policies.Myopic(system), horizon=5)
    with pytest.raises(nb.NestbedError, match="made for at most 2 experiments"):
        nb.spce(KEY, system, nb.policies.Greedy(system, horizon=2), horizon=3)
    with pytest.raises(nb.NestbedError, match="a belief about LinearLeak, but the system is Leak; make it for"):
        nb.eig(KEY, Leak(), nb.policies.Myopic(system))
    with pytest.raises(nb.NestbedError, match="candidates is 0"):
        nb.policies.Myopic(system, 0)
    with pytest.raises(nb.NestbedError, match="eta is -1"):
        nb.policies.Myopic(system, eta=-1)
    with pytest.raises(nb.NestbedError, match="rounds is 0"):
        nb.policies.Greedy(system, rounds=0)
