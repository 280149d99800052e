"""The system's two forms, its noise, its start and its identity."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed import belief as beliefs
from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import components
from nestbed.numerics.errors import NestbedError
from toys import Leak, LinearLeak

KEY = jax.random.key(0)


class VectorLink(nb.VectorSystem):
    """The double link with its inertia matrix solved by linear algebra."""

    state, designs, prior = nb.systems.DoubleLink.state, nb.systems.DoubleLink.designs, nb.systems.DoubleLink.prior
    step, diffusion, integrator = 0.05, (0.0, 0.0, 0.1, 0.1), "euler"

    def drift(self, x, u, theta):
        (q1, q2), dq = x[:2], x[2:]
        m1, m2, l1, l2 = theta
        c = m2 * l1 * l2
        far = m2 * l2**2
        near = far + c * jnp.cos(q2)
        mass = jnp.array([[(m1 + m2) * l1**2 + near + c * jnp.cos(q2), near], [near, far]])
        coriolis = c * jnp.sin(q2) * jnp.array([-(2 * dq[0] + dq[1]) * dq[1], dq[0] ** 2])
        pull = m2 * l2 * jnp.sin(q1 + q2)
        gravity = 9.81 * jnp.array([(m1 + m2) * l1 * jnp.sin(q1) + pull, pull])
        return jnp.concatenate([dq, jnp.linalg.solve(mass, u - 0.1 * dq - coriolis - gravity)])


@pytest.mark.slow
def test_the_vector_form_agrees_with_the_component_form():
    vector, scalar = VectorLink(), nb.systems.load("double_link")
    keys = jax.random.split(KEY, 3)
    x, u = components(jax.random.normal(keys[0], (5, 4))), components(jax.random.normal(keys[1], (5, 2)))
    theta = scalar.parameters.constrain(scalar.parameters.sample(keys[2], (5, 7)))
    for a, b in zip(vector.rates(x, u, theta), scalar.rates(x, u, theta), strict=True):
        np.testing.assert_allclose(a, jnp.broadcast_to(b, (5, 7)), rtol=1e-10)
    settings = {"horizon": 4, "trajectories": 4, "particles": 32}
    gains = [nb.eig(KEY, s, nb.policies.PRBS(s), **settings).gains for s in (vector, scalar)]
    np.testing.assert_allclose(*gains, rtol=1e-6)


class Gusty(Leak):
    """Noise that grows with the level and with an unknown strength."""

    prior = {"rate": dist.LogNormal(0.0, 0.3), "gust": dist.LogNormal(-1.0, 0.3)}

    def diffusion(self, x, u, theta):
        return (theta.gust * (1.0 + x.level**2),)


def test_noise_may_depend_on_everything():
    system = Gusty()
    x, u, y = (jnp.array(0.7),), (jnp.array(0.2),), (jnp.array(0.9),)
    theta = (jnp.array(1.1), jnp.array(0.4))
    mean, sd = 0.7 + 0.5 * (-1.1 * 0.7 + 0.2), np.sqrt(0.5) * 0.4 * (1 + 0.49)
    assert float(likelihoods.of(system).advance(x, u, y, theta)[1]) == pytest.approx(
        stats.norm(mean, sd).logpdf(0.9), rel=1e-12
    )
    assert not system.constant_noise
    with pytest.raises(nb.NestbedError, match="not constant"):
        nb.eig(KEY, system, nb.policies.Random(system), gain="constant_noise")


@pytest.mark.slow
def test_the_general_gain_is_right_when_noise_is_unknown():
    """One experiment: the mean gain against nested quadrature over parameters and outcome, z below 4.5."""
    system = Gusty()
    policy = nb.policies.PRBS(system)
    estimate = nb.eig(KEY, system, policy, horizon=1, trajectories=4000, particles=2048)
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    mass = mass / mass.sum()
    rate, gust = np.exp(0.3 * nodes)[:, None], np.exp(-1.0 + 0.3 * nodes)[None, :]
    mean, sd = np.broadcast_arrays(1.0 + 0.5 * (1.0 - rate), np.sqrt(0.5) * gust * 2.0)
    weight = mass[:, None] * mass[None, :]
    y = np.linspace(mean.min() - 12 * sd.max(), mean.max() + 12 * sd.max(), 8001)
    predictive = sum(
        w * stats.norm(m, s).pdf(y) for w, m, s in zip(weight.ravel(), mean.ravel(), sd.ravel(), strict=True)
    )
    entropy = -np.trapezoid(predictive * np.log(np.maximum(predictive, 1e-300)), y)
    conditional = (weight * 0.5 * np.log(2 * np.pi * np.e * sd**2)).sum()
    assert abs(estimate.mean - (entropy - conditional)) < 4.5 * estimate.standard_error + 2e-3  # 2e-3: finite M


def test_random_start_states():
    system = Leak(start={"level": dist.Normal(2.0, 0.1)})
    result = nb.sweep(KEY, system, nb.policies.Random(system), trajectories=500, horizon=2, particles=8, eta=0.0)
    first = np.asarray(result.observations[:, 0, 0])
    assert abs(first.mean() - 2.0) < 5 * 0.1 / np.sqrt(500)
    assert first.std() == pytest.approx(0.1, rel=0.2)


def test_the_design_before_the_first_is_the_nearest_to_zero():
    assert nb.systems.load("cart_pole").rest_design == (0.0,)
    assert Leak(designs=nb.Box(flow=(1.0, 2.0))).rest_design == (1.0,)
    assert Leak(designs=nb.Box(flow=(-3.0, -2.0))).rest_design == (-2.0,)


def test_variants_are_equal_when_their_settings_are():
    assert Leak() == Leak()
    assert hash(Leak()) == hash(Leak())
    assert Leak() != Leak(step=0.25)
    assert Leak() != LinearLeak()
    assert Leak(step=0.25) == Leak().replace(step=0.25)
    assert Leak(prior={"rate": dist.LogNormal(0.0, 0.7)}) != Leak(prior={"rate": dist.LogNormal(0.0, 0.6)})


def test_settings_are_frozen_copies():
    values = [0.5]
    system = Leak(diffusion=values)
    values[0] = 50.0
    assert system.diffusion == (0.5,)
    array = np.array([1.0])
    tagged = type("Tagged", (Leak,), {"gains": array, "first": lambda self: self.gains[0]})()
    array[0] = 2.0
    assert tagged.gains[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        tagged.gains[0] = 3.0
    with pytest.raises(TypeError):
        system.prior["rate"] = dist.Normal(0.0, 1.0)


def test_a_single_diffusion_may_be_returned_bare():
    system = type("Bare", (Leak,), {"diffusion": lambda self, x, u, theta: 0.5 + 0.1 * x.level**2})()
    nb.sweep(KEY, system, nb.policies.Random(system), horizon=2, trajectories=4, particles=8)


def test_a_start_distribution_may_be_replaced():
    kind = type("Started", (Leak,), {"start": dist.Normal(0.0, 1.0)})
    assert kind().replace(start=0.0).start_values() == (0.0,)


@pytest.mark.slow
def test_variants_do_not_share_compiled_programs():
    settings = {"horizon": 3, "trajectories": 4, "particles": 16}
    narrow, wide = Leak(prior={"rate": dist.LogNormal(0.0, 0.01)}), Leak(prior={"rate": dist.LogNormal(0.0, 1.0)})
    few, many = (nb.eig(KEY, s, nb.policies.PRBS(s), **settings).mean for s in (narrow, wide))
    assert many > few + 0.1


def test_float64_comes_by_itself():
    assert jnp.ones(1).dtype == jnp.float64
    system = LinearLeak()
    steps = nb.eig(KEY, system, nb.policies.Random(system), horizon=3, trajectories=1, belief="exact").steps
    assert steps.dtype == float


@pytest.mark.parametrize("shape", [(), (3, 1), (3, 4)])
def test_a_single_state_may_be_returned_bare(shape):
    rates = Leak().rates((jnp.ones(shape),), (jnp.zeros(shape),), (jnp.full(shape, 2.0),))
    np.testing.assert_allclose(rates[0], np.full(shape, -2.0))


# What is accepted, and said.


def test_features_of_a_root_are_right_and_small_wrong_ones_are_refused():
    class Root(Leak):
        prior = {"rate": dist.Normal(0.3, 0.05)}
        diffusion = (0.02,)

        def drift(self, x, u, theta):
            return 0.5 + 0.2 * u.flow - theta.rate * jnp.sqrt(x.level)

        def features(self, x, u):
            return ((-jnp.sqrt(x.level),),)

    class Small(Leak):
        designs = nb.Box(flow=(0.0, 1e-10))
        prior = {"rate": dist.Normal(1.0, 0.5)}
        diffusion, noise_floor, start = (1e-10,), 0.0, (0.0,)

        def drift(self, x, u, theta):
            return theta.rate * u.flow

        def features(self, x, u):
            return ((3.0 * u.flow,),)

    assert beliefs.make("exact", Root(), 1, 1).kind == "exact"
    with pytest.raises(NestbedError, match="does not reproduce the drift of 'level'"):
        beliefs.make("exact", Small(), 1, 1)


def test_a_floor_above_the_noise_is_told():
    with pytest.warns(UserWarning, match="noise floor of Leak, a variance of 1e-08, is more than the noise of"):
        Leak(diffusion=(1e-5,), noise_floor=1e-8)
    Leak(diffusion=(1e-3,), noise_floor=1e-8)

    class Method(Leak):
        noise_floor = 1e-8

        def diffusion(self, x, u, theta):
            return (1e-5 * theta.rate,)

    with pytest.warns(UserWarning, match="noise floor of Method"):
        nb.policies.Random(Method())


def test_a_step_in_another_unit_of_time_is_told_once():
    system = Leak(step=500.0)
    with pytest.warns(UserWarning, match=r"one step of Leak moves 'level' by .* step = 500 is too long"):
        nb.policies.Random(system)
    nb.policies.Random(system)


@pytest.mark.parametrize("name", nb.systems.SYSTEMS)
def test_built_in_systems_are_plausible(name):
    nb.policies.Random(nb.systems.load(name))


def test_attributes_that_nothing_reads_are_told():
    class Odd(Leak):
        boundary = {"level": (0.0, 1.0)}
        offset, width, depth = 0.1, 0.2, 0.3

        def drift(self, x, u, theta):
            return super().drift(x, u, theta) + self.offset + width_of(self) + getattr(self, "depth", 0.0)

    with pytest.warns(UserWarning, match="'boundary', which is no setting of nestbed") as told:
        Odd()
    assert len(told) == 1


def width_of(system):
    return system.width


def test_systems_are_copied_and_pickled():
    for system in (nb.systems.load("cart_pole"), Leak(step=0.3)):
        assert copy.copy(system) is system
        assert copy.deepcopy({"a": system})["a"] is system
        again = pickle.loads(pickle.dumps(system))
        assert again == system
        assert hash(again) == hash(system)
    assert Leak(prior={"rate": dist.LogNormal(0.0, 0.7)}) == Leak()
    assert Leak(prior={"rate": dist.LogNormal(0.0, 0.8)}) != Leak()
    assert Leak(prior={"rate": dist.Normal(0.0, 0.7)}) != Leak()


def test_a_prior_without_density_is_refused():
    with pytest.raises(NestbedError, match=r"prior of 'rate', a Normal with loc = 0.0, scale = -0.5, has no finite"):
        Leak(prior={"rate": dist.Normal(0.0, -0.5, validate_args=False)})


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (lambda: jax.enable_x64(False), "jax runs in 32 bits"),
        (lambda: jax.numpy_dtype_promotion("strict"), "jax_numpy_dtype_promotion is 'strict'"),
        (lambda: jax.numpy_rank_promotion("raise"), "jax_numpy_rank_promotion is 'raise'"),
    ],
)
def test_settings_of_jax_that_filters_cannot_run_under(setting, told):
    leak = Leak()
    policy = nb.policies.Random(leak)
    calls = (
        Leak,
        lambda: nb.policies.PRBS(leak),
        lambda: nb.eig(jax.random.key(0), leak, policy),
        lambda: nb.sweep(jax.random.key(0), leak, policy),
        lambda: nb.spce(jax.random.key(0), leak, policy),
        lambda: nb.posterior(jax.random.key(0), leak, [[1.0], [1.0]], [[0.0]]),
        lambda: nb.train(jax.random.key(0), leak),
    )
    for call in calls:
        with setting(), pytest.raises(NestbedError, match=told):
            call()


def test_attributes_that_are_read_in_any_way_are_not_told():
    class Reads(Leak):
        far, deep, named_1, mass, share = 0.1, 0.2, 0.3, 2.0, 0.4
        weight = mass * 9.81

        def drift(self, x, u, theta):
            jitted = jax.jit(lambda level: level * self.share)
            return super().drift(x, u, theta) + outer_of(self) + getattr(self, f"named_{1}") + jitted(self.weight)

    Reads()


def outer_of(system):
    return system.far + deep_of(system)


def deep_of(system):
    return system.deep


def test_a_start_at_rest_is_no_explosion():
    class Cart(nb.System):
        state = ("position", "velocity")
        designs = nb.Box(force=(-10.0, 10.0))
        prior = {"mass": dist.LogNormal(0.0, 0.1)}
        step, diffusion = 0.1, (0.01, 0.01)
        start = {"velocity": dist.Normal(0.0, 1e-4)}

        def drift(self, x, u, theta):
            return x.velocity, u.force / theta.mass

    nb.policies.Random(Cart())


@pytest.mark.parametrize("result", [None, {"level": 1.0}])
def test_a_drift_that_returns_no_number_is_told(result):
    kind = type("Forgot", (Leak,), {"drift": lambda self, x, u, theta: result})
    with pytest.raises(NestbedError, match=r"the drift of Forgot returned .* for 'level'; end it with `return`"):
        kind()
