"""Recurrent policies: their density against quadrature and sampling, their carry, what they see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import nestbed as nb
from nestbed.policies.recurrent import Recurrent, Squash
from toys import Leak

LINK, LEAK = nb.systems.load("double_link"), Leak()
SMALL = {"encoder": (8, 5), "recurrent": (4, 3), "head": (6,)}


class Linear(nb.System):
    """A box that is not centred on 0, and a state that is constant."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 3.0))
    prior = LEAK.prior
    step, diffusion = 0.5, (0.5,)

    def drift(self, x, u, theta):
        return theta.rate * u.flow


class Seen(Leak):
    """A policy sees the state through two features."""

    def view(self, x):
        return jnp.sin(x.level), x.level**2


def constant_policy(mean, log_std=0.0):
    """Return a policy whose s is Normal(mean, exp(log_std)²), whatever it sees."""
    policy = Recurrent(jax.random.key(0), Linear(), encoder=(), recurrent=(), head=(), log_std=log_std)
    head = policy.head[0]
    layer = jax.tree.map(jnp.zeros_like, head)
    return with_head(policy, layer, mean)


def with_head(policy, layer, mean):
    import equinox as eqx

    layer = eqx.tree_at(lambda part: part.bias, layer, jnp.full_like(layer.bias, mean))
    return eqx.tree_at(lambda whole: whole.head, policy, (layer,))


def density(policy, u):
    go = jax.jit(jax.vmap(lambda u: policy.log_density(policy.init(), jnp.zeros(1), jnp.zeros(1), u)[1]))
    return np.exp(np.asarray(go(jnp.atleast_1d(u)[:, None])))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.2, -0.5)])
def test_density_integrates_to_one_over_the_box(mean, log_std):
    """By Gauss–Legendre in twenty panels, for spreads whose density does not pile up at the limits."""
    policy = constant_policy(mean, log_std)
    nodes, mass = np.polynomial.legendre.leggauss(50)
    middles = np.linspace(-0.95, 0.95, 20)
    places = (middles[:, None] + 0.05 * nodes).ravel()
    total = np.tile(mass, 20) @ density(policy, 1.0 + 2.0 * places) * 0.1
    assert abs(total - 1.0) < 1e-6


@pytest.mark.parametrize("mean", [0.0, 6.0, -9.0, 14.0])
def test_density_holds_at_the_edge(mean):
    """Almost all mass lies within 1e-10 of a limit; the slope of tanh is written anew as 1 / cosh²."""
    policy = constant_policy(mean)
    s = np.linspace(mean - 4.0, mean + 4.0, 4001)  # of 18.7 that doubles can tell apart
    u = 1.0 + 2.0 * np.tanh(s)
    slope = 2.0 / np.cosh(s) ** 2
    total = integrate.simpson(density(policy, u) * slope, x=s)
    exact = stats.norm.cdf(4.0) - stats.norm.cdf(-4.0)
    assert abs(total - exact) < (1e-9 if abs(mean) < 10 else 2e-2)  # reading s back from a double loses digits


@pytest.mark.parametrize("limit", [-1.0, 3.0])
def test_density_and_its_gradient_are_finite_on_the_limits(limit):
    policy = constant_policy(20.0)

    def value(policy):
        return policy.log_density(policy.init(), jnp.zeros(1), jnp.zeros(1), jnp.array([limit]))[1]

    result, slope = jax.value_and_grad(value)(policy)
    assert np.isfinite(result)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_designs_follow_the_density():
    """Kolmogorov–Smirnov on 20000 draws at level 1e-4."""
    policy = constant_policy(0.4, -0.3)
    keys = jax.random.split(jax.random.key(1), 20_000)
    u = np.asarray(jax.vmap(lambda key: policy.step(key, policy.init(), jnp.zeros(1), jnp.zeros(1))[1])(keys))[:, 0]
    grid = np.linspace(-1.0, 3.0, 4001)
    cdf = integrate.cumulative_simpson(density(policy, np.clip(grid, -1 + 1e-12, 3 - 1e-12)), x=grid, initial=0.0)
    assert stats.kstest(u, lambda v: np.interp(v, grid, cdf)).pvalue > 1e-4
    assert ((u > -1.0) & (u < 3.0)).all()


def test_mutant_density_without_the_slope_is_caught(monkeypatch):
    monkeypatch.setattr(Squash, "log_slope", lambda self, s: jnp.zeros_like(s))
    with pytest.raises(AssertionError):
        test_density_integrates_to_one_over_the_box(0.7, -1.0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("sees_previous", [False, True])
def test_likelihood_of_a_record_is_the_sum_over_its_steps(cell, sees_previous):
    policy = Recurrent(jax.random.key(2), LINK, cell=cell, sees_previous=sees_previous, **SMALL)
    states = jax.random.normal(jax.random.key(3), (7, 4))
    designs = jax.random.uniform(jax.random.key(4), (6, 2), minval=-1.9, maxval=1.9)
    carry, previous, total = policy.init(), jnp.zeros(2), 0.0
    for x, u in zip(states, designs, strict=False):
        carry, value = policy.log_density(carry, x, previous, u)
        previous, total = u, total + value
    np.testing.assert_allclose(policy.log_likelihood(states, designs), total, rtol=1e-5)


def test_the_design_before_the_first_is_the_rest_design():
    system = Linear(designs=nb.Box(flow=(1.0, 2.0)))
    policy = Recurrent(jax.random.key(2), system, sees_previous=True, **SMALL)
    states, designs = jnp.ones((2, 1)), jnp.full((1, 1), 1.3)
    _, value = policy.log_density(policy.init(), states[0], jnp.array(system.rest_design), designs[0])
    np.testing.assert_allclose(policy.log_likelihood(states, designs), value, rtol=1e-5)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_network_by_hand(cell):
    """Two steps of all layers in numpy: rectifiers between dense layers, gates, the scaled design before."""
    rng = np.random.default_rng(0)
    policy = Recurrent(jax.random.key(0), LINK, cell=cell, sees_previous=True, **SMALL)
    policy = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), policy)

    def dense(layers, values):
        for i, layer in enumerate(layers):
            values = layer.weight @ values + layer.bias
            values = np.maximum(values, 0.0) if i + 1 < len(layers) else values
        return np.asarray(values, float)

    def recur(layer, code, held):
        if cell == "lstm":
            h, c = held
            i, f, g, o = np.split(layer.weight_ih @ code + layer.weight_hh @ h + layer.bias, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            return h, (h, c)
        r, z, n = np.split(layer.weight_ih @ code + layer.bias, 3)
        hr, hz, hn = np.split(np.asarray(layer.weight_hh @ held), 3)
        n = np.tanh(n + sigmoid(r + hr) * (hn + layer.bias_n))
        h = n + sigmoid(z + hz) * (held - n)
        return h, h

    zeros = [np.zeros(layer.hidden_size) for layer in policy.cells]
    memory = [(zero, zero) if cell == "lstm" else zero for zero in zeros]
    carry = policy.init()
    for _ in range(2):
        x, u = rng.normal(size=4), rng.uniform(-2.0, 2.0, 2)
        carry, mean = policy.advance(carry, jnp.array(x), jnp.array(u))
        code = dense(policy.encoder, np.concatenate([x, u / [4.0, 2.0]]))
        for k, layer in enumerate(policy.cells):
            code, memory[k] = recur(layer, code, memory[k])
        np.testing.assert_allclose(mean, dense(policy.head, code), rtol=1e-4)


def test_previous_design_is_seen_only_if_asked_for():
    x, others = jnp.ones(4), (jnp.zeros(2), jnp.ones(2))
    blind = Recurrent(jax.random.key(0), LINK, **SMALL)
    seeing = Recurrent(jax.random.key(0), LINK, sees_previous=True, **SMALL)
    means = lambda policy: [np.asarray(policy.advance(policy.init(), x, u)[1]) for u in others]  # noqa: E731
    np.testing.assert_array_equal(*means(blind))
    assert not np.array_equal(*means(seeing))


def test_memory_matters():
    policy = Recurrent(jax.random.key(0), LINK, **SMALL)
    carry, first = policy.advance(policy.init(), jnp.ones(4), jnp.zeros(2))
    _, second = policy.advance(carry, jnp.ones(4), jnp.zeros(2))
    assert not np.array_equal(first, second)


def test_mean_policy_has_no_noise():
    policy = Recurrent(jax.random.key(0), LINK, **SMALL)
    mean = policy.mean()
    first, second = (mean.step(jax.random.key(k), mean.init(), jnp.ones(4), jnp.zeros(2))[1] for k in (0, 1))
    np.testing.assert_array_equal(first, second)
    expected = np.tanh(policy.advance(policy.init(), jnp.ones(4), jnp.zeros(2))[1]) * [4.0, 2.0]
    np.testing.assert_allclose(first, expected)


def test_the_papers_sizes():
    policy = Recurrent(jax.random.key(0), LINK)
    widths = [layer.weight.shape for layer in policy.encoder]
    assert widths == [(256, 4), (256, 256), (64, 256)]
    assert [cell.hidden_size for cell in policy.cells] == [64, 64]
    assert [layer.weight.shape for layer in policy.head] == [(256, 64), (256, 256), (2, 256)]
    assert (policy.log_std == 0).all()
    assert {leaf.dtype for leaf in jax.tree.leaves(policy)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(policy.encoder[1].weight.std(), np.sqrt(2 / 512), rtol=0.02)  # Glorot, uniform


def test_a_view_of_the_state():
    system = Seen()
    policy = Recurrent(jax.random.key(0), system, **SMALL)
    assert policy.encoder[0].in_features == 2
    x = jnp.array([0.3])
    plus, minus = (policy.advance(policy.init(), value, jnp.zeros(1))[1] for value in (x, np.pi - x))
    assert not np.array_equal(plus, minus)  # the squares differ
    nb.sweep(jax.random.key(0), system, policy, horizon=2, trajectories=4, particles=8)


class InMillimetres(Leak):
    """The leak with its level in other units, and its flow too."""

    designs = nb.Box(flow=(-1000.0, 1000.0))
    diffusion = (500.0,)
    start = (1000.0,)


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_models_units_do_not_matter(scaled):
    """Trained by two iterations with a slew penalty, both policies do the same in the unit box: a mutant does not."""
    sizes = nb.PolicyConfig(**SMALL, scaled=scaled)
    config = nb.ScoreClimbingConfig(iterations=2, slew_penalty=0.5, policy=sizes, learning_rate=0.01)
    plain, other = (nb.train(jax.random.key(0), system, config).policy for system in (LEAK, InMillimetres()))
    designs = [
        float(policy.mean().step(jax.random.key(0), policy.init(), jnp.array([0.7 * unit]), jnp.zeros(1))[1][0] / unit)
        for policy, unit in ((plain, 1.0), (other, 1000.0))
    ]
    assert (abs(designs[0] - designs[1]) < 1e-3) == scaled


@pytest.mark.parametrize("name", ["linear_pendulum", "encoder_pendulum"])
def test_scales_are_found_within_a_trace_too(name):
    """Programs and what was remembered of them are dropped when they are many, whoever asks next."""
    from nestbed.numerics import programs
    from nestbed.policies.recurrent import predictive_scales

    system = nb.systems.load(name)
    expected = predictive_scales(system)
    programs.drop()
    predictive_scales.cache_clear()
    found = []
    jax.jit(lambda key: found.append(predictive_scales(system)) or key)(jax.random.key(0))
    assert found == [expected]


def test_a_view_of_the_wrong_shape_is_explained():
    class Bad(Leak):
        def view(self, x):
            return jnp.ones(3)

    with pytest.raises(nb.NestbedError, match="must return a tuple of numbers"):
        Recurrent(jax.random.key(0), Bad())


def test_a_policy_of_another_system_is_refused():
    with pytest.raises(nb.NestbedError, match="made for DoubleLink"):
        nb.eig(jax.random.key(0), LEAK, Recurrent(jax.random.key(0), LINK, **SMALL))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cell": "gur"}, "did you mean 'gru'"),
        ({"encoder": (8, 0)}, "a layer of the policy's encoder is 0"),
        ({"head": (-3,)}, "a layer of the policy's head is -3"),
    ],
)
def test_impossible_sizes_are_explained(changes, told):
    with pytest.raises(nb.NestbedError, match=told):
        Recurrent(jax.random.key(0), LINK, **changes)
