"""Every mistake gets one sentence: what was got, what was expected, what to do."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nestbed as nb
from nestbed.numerics.errors import NestbedError, NonFiniteError
from nestbed.policies.base import prepare
from toys import Constant, Leak, LinearLeak

KEY = jax.random.key(0)
LEAK = Leak()
RANDOM = nb.policies.Random(LEAK)
SMALL = {"horizon": 3, "trajectories": 4, "particles": 16, "belief": "ibis"}


def variant(**attributes):
    return type("Broken", (Leak,), attributes)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"drift": lambda self, x, u, theta: (x.level, x.level)}, "drift of Broken returned 2 components.*has 1"),
        ({"drift": lambda self, x, u, theta: jnp.ones((2, 7))}, "returned the shape.*elementwise"),
        ({"drift": lambda self, x, u, theta: -x.level if x.level > 0 else x.level}, "decides with a Python `if`"),
        ({"drift": lambda self, x, u, theta: np.sin(x.level) * theta.rate}, "use jax.numpy instead"),
        ({"drift": lambda self, x, u, theta: math.sin(x.level) * theta.rate}, "use jax.numpy instead"),
        ({"horizon": 20}, r"'horizon', which nestbed uses itself; write defaults = nb.Defaults\(horizon"),
        ({"mean": 3.0}, "'mean', which nestbed uses itself; give it another name"),
        ({"diffusoin": (0.3,)}, "did you mean 'diffusion'"),
        ({"prior": {"rate": scipy.stats.norm(0, 1)}}, "prior of 'rate' is .*must be a NumPyro distribution"),
        ({"prior": {"rate": 1.0}}, "must be a NumPyro distribution"),
        ({"prior": {}}, "must be a dictionary of NumPyro distributions"),
        ({"prior": None}, "must be a dictionary of NumPyro distributions"),
        ({"prior": {"rate": dist.Normal(jnp.zeros(2), 1.0)}}, "shape .2,.*scalar distribution"),
        ({"prior": {"rate": dist.Poisson(3.0)}}, "discrete Poisson"),
        ({"prior": {"not a name": dist.Normal(0.0, 1.0)}}, "use a plain Python name"),
        ({"designs": None}, "write designs = nb.Box"),
        ({"state": ()}, "name the states"),
        ({"state": "level"}, "name the states"),
        ({"state": ("level", "level"), "diffusion": (1.0, 1.0)}, "names a state twice"),
        ({"step": 0.0}, "positive number of time units"),
        ({"step": "0.05"}, "positive number of time units"),
        ({"diffusion": (0.1, 0.1)}, "one number per state, 1 in all"),
        ({"diffusion": (-1.0,)}, "diffusion of 'level' is -1.0"),
        ({"diffusion": (0.0,)}, "has no noise"),
        ({"noise_floor": -1.0}, "must be a variance"),
        ({"start": (0.0, 1.0)}, "2 values for 1 states"),
        ({"start": {"lvel": 1.0}}, "names 'lvel', which is no state"),
        ({"prior": {"rate": dist.Delta(1.0)}}, "has no spread"),
        ({"start": (dist.Normal(jnp.zeros(2), 1.0),)}, "finite number or a scalar NumPyro distribution"),
        ({"drift": lambda self, x, u, theta: theta["rate"] * x.level}, "in square brackets; write x.name, u.name or"),
        ({"start": ("a",)}, "finite number or a scalar NumPyro distribution"),
    ],
)
def test_systems(attributes, told):
    with pytest.raises(NestbedError, match=told):
        variant(**attributes)()


def test_a_system_without_a_drift():
    with pytest.raises(TypeError, match="drift"):
        type("Bare", (nb.System,), {"state": ("x",), "diffusion": (1.0,)})()


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"flow": (1.0, -1.0)}, r"lower limit 1.0 and the upper limit -1.0.*flow=\(-1.0, 1.0\)"),
        ({"flow": (1.0, 1.0)}, "leave a constant out"),
        ({"flow": (0.0, np.inf)}, "both must be finite"),
        ({"flow": 3.0}, "give two numbers"),
        ({}, "name at least one"),
    ],
)
def test_boxes(limits, told):
    with pytest.raises(NestbedError, match=told):
        nb.Box(**limits)


@pytest.mark.parametrize("name", ["horizon", "trajectories", "particles", "moves"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "4"])
def test_counts(name, value):
    with pytest.raises(NestbedError, match=f"{name} is .*whole number of at least 1"):
        nb.sweep(KEY, LEAK, RANDOM, **{**SMALL, name: value})
    with pytest.raises(NestbedError, match=f"{name} is .*whole number of at least 1"):
        nb.eig(KEY, LEAK, RANDOM, **{**SMALL, name: value})


class Policy(eqx.Module):
    """A policy with a step that is given."""

    does: object = eqx.field(static=True)

    def init(self):
        return jnp.zeros(2)

    def step(self, key, carry, x, u_previous):
        return self.does(carry, x)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Constant(0.0, 0.0), r"design of shape \(2,\), but Leak has 1 design.*return an array of shape \(1,\)"),
        (Policy(lambda c, x: (c, 0.5)), "design that is a float, but Leak has 1 design"),
        (Policy(lambda c, x: x), "must return two: .carry, u."),
        (Policy(lambda c, x: (c, x if x[0] > 0 else -x)), "step decides with a Python `if`"),
        (nb.policies.Random, r"is the class Random; give an instance of it, such as Random\(system\)"),
        (Policy(lambda c, x: (c[:1], x)), "changed its carry"),
        (Policy(lambda c, x: (c, 3.0 + 0 * x)), r"gave flow = 3 at step 0, outside the limits \(-1.0, 1.0\)"),
        (Policy(lambda c, x: (c, x * jnp.nan)), "gave the design flow = nan at step 0 of Leak"),
        (Policy(lambda c, x: (c, x.speed[None])), r"step asks a vector for 'speed': y holds .* \('level',\).* y\[0\]"),
        (Policy(lambda c, x: (c, x["speed"][None])), "step asks a vector for 'speed'"),
        (3, "needs the methods init"),
        (None, "needs the methods init"),
    ],
)
def test_policies(policy, told):
    with pytest.raises(NestbedError, match=told):
        nb.eig(KEY, LEAK, policy, **SMALL)


class Explosive(Leak):
    """A drift that has no value for rates above 1.5."""

    def drift(self, x, u, theta):
        return -jnp.sqrt(1.5 - theta.rate) * x.level + u.flow


def test_a_drift_that_gives_nan_is_told_with_system_step_and_parameters():
    with pytest.raises(NonFiniteError) as caught:
        nb.eig(KEY, Explosive(), RANDOM, **SMALL)
    told = str(caught.value)
    assert "the drift of 'level' in Explosive is nan at step 0" in told
    rate = float(told.split("rate = ")[1].split(",")[0])
    assert rate > 1.5


def test_a_nan_met_only_by_a_moved_particle_is_told_too():
    """The prior never reaches the bad region, but proposals of the random walk do."""

    class Edge(Leak):
        prior = {"rate": dist.Normal(1.0, 0.2)}

        def drift(self, x, u, theta):
            return -jnp.where(theta.rate > 1.45, jnp.nan, theta.rate) * x.level + u.flow

    system = Edge()
    with pytest.raises(
        NonFiniteError, match=r"drift of 'level' in Edge is nan at step \d+, with the parameters rate = 1\."
    ):
        nb.eig(jax.random.key(3), system, nb.policies.PRBS(system), horizon=40, trajectories=64, particles=32, moves=9)


def test_an_infinite_drift_is_told():
    class Pole(Leak):
        def drift(self, x, u, theta):
            return jnp.where(x.level > 1.5, jnp.inf, -theta.rate * x.level + u.flow)

    with pytest.raises(NonFiniteError, match="drift of 'level' in Pole is inf at step"):
        nb.sweep(KEY, Pole(), RANDOM, horizon=20, trajectories=16, particles=16)


def test_references_of_another_system_horizon_or_belief():
    cart, linear = nb.systems.load("cart_pole"), LinearLeak()
    reference = nb.sweep(KEY, LEAK, RANDOM, **SMALL).reference
    with pytest.raises(NestbedError, match="comes from Leak, but the sweep is of CartPole"):
        nb.sweep(KEY, cart, nb.policies.Random(cart), reference=reference, **SMALL)
    with pytest.raises(NestbedError, match="comes from another variant of it"):
        nb.sweep(KEY, Leak(diffusion=(0.6,)), RANDOM, reference=reference, **SMALL)
    with pytest.raises(NestbedError, match="make it for this system"):
        nb.sweep(KEY, LEAK, RANDOM, **{**SMALL, "belief": nb.belief.IBIS(Leak(diffusion=(0.6,)), 16, 3)})
    with pytest.raises(NestbedError, match="has 3 experiments, but the horizon is 5"):
        nb.sweep(KEY, LEAK, RANDOM, reference=reference, **{**SMALL, "horizon": 5})
    with pytest.raises(NestbedError, match="same belief and particles"):
        nb.sweep(KEY, LEAK, RANDOM, reference=reference, **{**SMALL, "particles": 17})
    exact = nb.sweep(KEY, linear, RANDOM, **{**SMALL, "belief": "exact"}).reference
    with pytest.raises(NestbedError, match="'exact' beliefs"):
        nb.sweep(KEY, linear, RANDOM, reference=exact, **SMALL)
    with pytest.raises(NestbedError, match=r"is a Sweep, but it must be the `.reference`"):
        nb.sweep(KEY, LEAK, RANDOM, reference=nb.sweep(KEY, LEAK, RANDOM, **SMALL), **SMALL)
    with pytest.raises(NestbedError, match="at least 2 trajectories"):
        nb.sweep(KEY, LEAK, RANDOM, reference=reference, **{**SMALL, "trajectories": 1})


def test_systems_are_instances():
    with pytest.raises(NestbedError, match=r"got the class Leak.*Leak\(\)"):
        nb.eig(KEY, Leak, RANDOM)
    with pytest.raises(NestbedError, match="load"):
        nb.sweep(KEY, "cart_pole", RANDOM)
    with pytest.raises(NestbedError, match="got the class Leak"):
        nb.policies.PRBS(Leak)


def test_arrays_are_not_components():
    class Stacked(nb.systems.NonlinearPendulum):
        def drift(self, x, u, theta):
            return jnp.array([x.velocity, u.torque])

    with pytest.raises(NestbedError, match=r"returned one array of shape .* return a tuple with one value per state"):
        Stacked()


def test_policies_to_compare_are_named():
    with pytest.raises(NestbedError, match="policies must be named"):
        nb.compare(KEY, LEAK, [RANDOM])


def test_a_record_in_the_wrong_units_is_warned_of():
    record = nb.sweep(KEY, LEAK, RANDOM, **SMALL)
    with pytest.warns(UserWarning, match=r"outcomes are improbable under all that was believed.*check the units"):
        nb.posterior(KEY, LEAK, 300.0 * record.observations[0], record.designs[0])


def test_the_potential_takes_finite_numbers():
    for name in ("eta", "slew_penalty", "action_penalty"):
        with pytest.raises(NestbedError, match=f"{name} is .*finite number of at least 0"):
            nb.sweep(KEY, LEAK, RANDOM, **{**SMALL, name: -1.0})
        with pytest.raises(NestbedError, match=f"{name} is .*finite number of at least 0"):
            nb.sweep(KEY, LEAK, RANDOM, **{**SMALL, name: float("nan")})


def test_penalties_are_in_one_unit_for_each_design():
    with pytest.raises(NestbedError, match=r"penalty_units \(1.0, 2.0\); give a positive number for each"):
        nb.sweep(KEY, Leak(defaults=nb.Defaults(penalty_units=(1.0, 2.0))), RANDOM, **SMALL)


def test_weights_that_overflow_are_told():
    system = Leak(designs=nb.Box(flow=(-1e3, 1e3)), defaults=nb.Defaults(penalty_units=(1.0,)))
    with pytest.raises(NonFiniteError, match="a penalty that overflows"):
        nb.sweep(KEY, system, Constant(1e3), **{**SMALL, "slew_penalty": 1e305})


def test_a_design_that_is_nan_is_told_even_where_the_drift_ignores_it():
    class Deaf(Leak):
        def drift(self, x, u, theta):
            return -theta.rate * x.level

    with pytest.raises(NestbedError, match="gave the design flow = nan at step 0 of Deaf"):
        nb.sweep(KEY, Deaf(), Constant(jnp.nan), **SMALL)
    with pytest.raises(NestbedError, match="gave the design flow = nan at step 0 of Deaf"):
        nb.eig(KEY, Deaf(), Constant(jnp.nan), **SMALL)


def test_systems_take_settings_not_constructors():
    with pytest.raises(NestbedError, match="takes its constants as class attributes"):
        type("Own", (Leak,), {"__init__": lambda self: None})


def test_names_are_suggested():
    with pytest.raises(NestbedError, match="did you mean 'cart_pole'"):
        nb.systems.load("cartpole")
    with pytest.raises(NestbedError, match="did you mean 'noise_floor'"):
        Leak(noise_flor=1.0)
    with pytest.raises(NestbedError, match="did you mean 'joint'"):
        nb.policies.PRBS(LEAK, channels="jiont")
    with pytest.raises(NestbedError, match="did you mean 'constant_noise'"):
        nb.sweep(KEY, LEAK, RANDOM, gain="constant", **SMALL)
    with pytest.raises(AttributeError, match="has no attribute 'swep'"):
        nb.swep  # noqa: B018


def test_a_system_does_not_change_behind_its_compiled_programs():
    with pytest.raises(NestbedError, match=r"make a variant with Leak\(step=...\)"):
        LEAK.step = 0.1


@pytest.mark.parametrize(
    ("states", "designs", "told"),
    [
        (np.zeros((4, 1)), np.zeros((4, 1)), "one more observation than designs"),
        (np.zeros((4, 2)), np.zeros((3, 1)), "needs"),
        (np.zeros((1, 1)), np.zeros((0, 1)), "one more observation than designs"),
        (np.full((4, 1), np.nan), np.zeros((3, 1)), "has no measurement at all"),
    ],
)
def test_records(states, designs, told):
    with pytest.raises(NestbedError, match=told):
        nb.posterior(KEY, LEAK, states, designs)


def test_a_slip_in_a_components_name_is_told():
    def drift(self, x, u, theta):
        return -theta.rat * x.level + u.flow

    with pytest.raises(
        NestbedError, match=r"the drift of Slip uses theta.rat, which does not exist; did you mean 'rate'"
    ):
        type("Slip", (Leak,), {"drift": drift})()


def test_text_is_no_data():
    with pytest.raises(NestbedError, match=r"of the record must be an array of numbers, but \[\['1.0'\]"):
        nb.posterior(KEY, LEAK, [["1.0"], ["1.1"]], [[0.5]])
    with pytest.raises(NestbedError, match="the designs of the record must be an array of numbers"):
        nb.posterior(KEY, LEAK, [[1.0], [1.1]], "abc")
    with pytest.raises(NestbedError, match="the signal must be an array of numbers"):
        nb.policies.Replay(LEAK, [["0.5"]])
    with pytest.raises(NestbedError, match="give two numbers"):
        nb.Box(flow=("0", "1"))


def test_policies_of_another_system():
    pendulum, linear = nb.systems.load("nonlinear_pendulum"), nb.systems.load("linear_pendulum")
    with pytest.raises(NestbedError, match=r"Random was made for NonlinearPendulum, with the observations .*but Leak"):
        nb.eig(KEY, LEAK, nb.policies.Random(pendulum), **SMALL)
    with pytest.raises(NestbedError, match="Chirp was made for Leak, with the designs Box"):
        nb.eig(KEY, Leak(designs=nb.Box(flow=(0.0, 1.0))), nb.policies.Chirp(LEAK), **SMALL)
    learned = nb.policies.Recurrent(KEY, pendulum, encoder=(4,), recurrent=(4,), head=(4,), trained_for=3)
    with pytest.warns(UserWarning, match="Mean was made for NonlinearPendulum, but is used on LinearPendulum"):
        nb.eig(KEY, linear, learned.mean(), **{**SMALL, "belief": "exact"})
    with pytest.warns(UserWarning, match="trained for 3 experiments, but 5 are asked for"):
        prepare(learned.mean(), pendulum, 5)
