"""Compiled programs: shared where they are alike, made anew where anything they were made from has changed, bounded."""

import collections
import functools
import math
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nestbed as nb
from nestbed.numerics import programs
from nestbed.policies.base import prepare
from nestbed.smc.sweep import compiled_sweep
from toys import LinearLeak

KEY = jax.random.key(0)
SMALL = {"horizon": 3, "trajectories": 4, "belief": "exact"}  # which compiles fastest
LEAK = LinearLeak()
FLOW = 0.1
LEVELS = {"flow": 0.1}
CONSTANTS = types.ModuleType("constants_of_a_test")
CONSTANTS.flow = 0.1


def scaled(value):
    return value * FLOW / FLOW


class Steady:
    """A plain class with numbers, an array, a function and a system among its attributes."""

    _share = 1.0

    def __init__(self, flow, share=1.0):
        self.flow, self.share = flow, share
        self.weights = np.ones(1)
        self.shape = jnp.tanh
        self.system = LEAK

    def init(self):
        return None

    def step(self, key, carry, x, u_previous):
        return carry, self.shape(self.flow * self.share * self._share * self.weights)


def gains(policy, system=LEAK):
    return nb.eig(KEY, system, policy, **SMALL).gains


def traces():
    """How many programs the sweep has compiled."""
    return compiled_sweep._cached._cache_size()


def test_instances_of_a_class_share_a_program():
    programs.drop()  # so that none are dropped meanwhile
    gains(Steady(0.0))
    before = traces()
    found = [gains(Steady(0.2 * i)) for i in range(5)]
    assert traces() == before
    assert len({tuple(row) for row in found}) == 5  # and the numbers are their own


def test_a_number_that_decides_the_form_is_no_data():
    class Switch(Steady):
        def step(self, key, carry, x, u_previous):
            return carry, jnp.full(1, 0.9 if self.flow > 0.5 else 0.1)

    low, high = gains(Switch(0.4)), gains(Switch(0.6))
    assert not np.array_equal(low, high)
    assert np.array_equal(low, gains(Switch(0.3)))


def test_changed_globals_closures_and_hidden_attributes_are_noticed(monkeypatch):
    shift = 0.0
    dropped = []
    monkeypatch.setattr(programs, "drop", lambda: dropped.append(True))

    class Reads(Steady):
        def step(self, key, carry, x, u_previous):
            level = scaled(LEVELS["flow"]) + CONSTANTS.flow + FLOW + shift + self._share
            return carry, jnp.full(1, jnp.tanh(level))

    def noticed():
        programs.current(Reads)
        return bool(dropped), dropped.clear()

    def shifted():
        nonlocal shift
        shift = 0.7

    assert noticed() == (False, None)
    changes = (
        lambda: monkeypatch.setitem(LEVELS, "flow", 0.2),
        lambda: monkeypatch.setattr(CONSTANTS, "flow", 0.3),
        lambda: monkeypatch.setitem(globals(), "FLOW", 0.4),  # by a function that is called, too
        lambda: setattr(Reads, "_share", 0.45),
        lambda: setattr(Reads, "step", lambda self, key, carry, x, u_previous: (carry, jnp.zeros(1))),
        lambda: setattr(Reads, "init", scaled),
        shifted,
    )
    for change in changes[:4] + changes[6:] + changes[4:6]:
        change()
        assert noticed() == (True, None), change
        assert noticed() == (False, None), change


def test_slots_are_attributes():
    class Slotted:
        __slots__ = ("flow",)

        def __init__(self, flow):
            self.flow = flow

        def init(self):
            return None

        def step(self, key, carry, x, u_previous):
            return carry, jnp.full(1, self.flow)

    policy = Slotted(0.1)
    before = gains(policy)
    policy.flow = 0.9
    assert not np.array_equal(gains(policy), before)


def test_a_drift_that_reads_a_changed_global_is_compiled_anew(monkeypatch):
    @jax.jit
    def inner(level):
        return level * FLOW

    class Reads(LinearLeak):
        def drift(self, x, u, theta):
            return -theta.rate * inner(x.level) + u.flow

        def features(self, x, u):
            return ((-inner(x.level),),)

    system = Reads()
    policy = nb.policies.Random(system)
    before = gains(policy, system)
    monkeypatch.setitem(globals(), "FLOW", 0.6)
    assert not np.array_equal(gains(policy, system), before)


def test_programs_are_dropped_before_they_fill_the_memory_map(monkeypatch):
    gains(Steady(0.0))
    dropped = []
    monkeypatch.setattr(programs, "drop", lambda: dropped.append(True))
    monkeypatch.setattr(programs, "MOST_MAPS", 0.0)
    programs._compiled["since look"] = programs.LOOK
    gains(Steady(0.0))
    assert dropped
    monkeypatch.setattr(programs, "_MAPS", programs.Path("/nowhere"))
    dropped.clear()
    programs._compiled.update({"since look": programs.LOOK, "since drop": programs.MOST_PROGRAMS + 1})
    programs.current(Steady)
    assert dropped


def test_compiled_programs_are_counted():
    before = programs._compiled["since drop"]
    jax.jit(lambda x: x * 1.2345)(jnp.ones(3))
    assert programs._compiled["since drop"] > before


def test_dropping_forgets_what_was_remembered():
    calls = []

    @programs.cached(maxsize=2)
    def remembered(x):
        calls.append(x)
        return x

    for _ in range(2):
        remembered(1)
    programs.drop()
    remembered(1)
    assert calls == [1, 1]


def digest(value):
    return programs.Reader().read(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: v,
        lambda v: np.array([v, 1.0]),
        lambda v: jnp.array([v, 1.0]),
        lambda v: {"a": [v]},
        lambda v: {(v, "a"), (2.0, "b")},
        lambda v: functools.partial(max, v),
        lambda v: lambda x: x + v,
        lambda v: jax.jit(lambda x: x + v),
        lambda v: nb.Defaults(eta=v),
        lambda v: nb.Box(flow=(0.0, v)),
        lambda v: LinearLeak(step=v),
        lambda v: Steady(v),
        lambda v: Steady.init if v == 1.0 else Steady.step,
    ],
)
def test_digests_tell_values_apart(make):
    assert digest(make(1.0)) == digest(make(1.0))
    assert digest(make(1.0)) != digest(make(1.5))


def planned(policy):
    """The design of the first experiment."""
    ready = prepare(policy, LEAK)
    return float(eqx.filter_jit(lambda p: p.step(KEY, p.init(), jnp.ones(1), jnp.zeros(1))[1])(ready)[0])


class Wrapper:
    def __init__(self, function, gain):
        functools.update_wrapper(self, function)
        self.gain = gain

    def __call__(self, x):
        return self.gain * self.__wrapped__(x)


def identity(x):
    return x


class Applies:
    def __init__(self, function):
        self.function = function

    def init(self):
        return None

    def step(self, key, carry, x, u_previous):
        return carry, jnp.full(1, self.function(1.0))


class Telling(Steady):
    def step(self, key, carry, x, u_previous):
        return carry, jnp.full(1, 0.9 if isinstance(self.flow, float) else 0.1)


class Kinds(Steady):
    def step(self, key, carry, x, u_previous):
        return carry, jnp.full(1, 0.9 if self.flow is True else 0.1)


class Numbered(Steady):
    flow = 0.5


class Inherits(Numbered):
    def __init__(self, value):
        self._flow = value

    @property
    def flow(self):
        return self._flow

    def step(self, key, carry, x, u_previous):
        return carry, jnp.full(1, self.flow)


class Mangled(Applies):
    __slots__ = ("__flow",)
    limit = 1.0

    def __init__(self, flow):
        self.__flow = flow

    def step(self, key, carry, x, u_previous):
        return carry, jnp.full(1, self.__flow * self.limit)


class Mapped(dict):
    init = Applies.init

    def step(self, key, carry, x, u_previous):
        return carry, jnp.full(1, self["flow"])


@pytest.mark.parametrize(
    ("policies", "designs"),
    [
        ([Applies(optax.constant_schedule(0.1)), Applies(optax.constant_schedule(0.9))], (0.1, 0.9)),
        ([Applies(Wrapper(identity, 0.2)), Applies(Wrapper(identity, 0.8))], (0.2, 0.8)),
        ([Applies(functools.partial(jnp.multiply, 0.2)), Applies(functools.partial(jnp.multiply, 0.7))], (0.2, 0.7)),
        ([Telling(0.3), Telling(1)], (0.9, 0.1)),
        ([Kinds(1), Kinds(True)], (0.1, 0.9)),
        ([Inherits(0.1), Inherits(0.9)], (0.1, 0.9)),
        ([Mangled(0.1), Mangled(0.9)], (0.1, 0.9)),
        ([Mapped(flow=0.1), Mapped(flow=0.9)], (0.1, 0.9)),
        ([Steady(0.5), Steady(0.5, share=0.2)], (math.tanh(0.5), math.tanh(0.1))),
    ],
)
def test_policies_that_differ_have_designs_of_their_own(policies, designs):
    assert [planned(policy) for policy in policies] == pytest.approx(designs)


def base(value):
    return type("Base", (), {"value": value})


def default(value):
    def function(x=value):
        return x

    return function


def getter(value):
    return property(lambda self: value)


@pytest.mark.parametrize(
    "make",
    [
        default,
        getter,
        lambda v: type("Derived", (base(v),), {}),
        lambda v: types.SimpleNamespace(a=v),
        lambda v: collections.deque([v, identity]),
        lambda v: functools.cached_property(lambda self: v),
        lambda v: type("Called", (), {"__call__": lambda self: v})(),
        lambda v: optax.constant_schedule(v),
        lambda v: Wrapper(identity, v),
    ],
)
def test_digests_look_into_what_code_may_hold(make):
    assert digest(make(1.0)) == digest(make(1.0))
    assert digest(make(1.0)) != digest(make(1.5))


def test_a_global_named_as_an_attribute_is_another():
    """`theta.gain` is no reason to compile anew when a script's own `gain` changes."""
    space = {}
    exec("gain = 1.0\ndef drift(theta):\n    return theta.gain", space)
    before = programs.Reader().read(space["drift"])
    space["gain"] = 2.0
    assert programs.Reader().read(space["drift"]) == before


def test_functions_with_attributes_are_told_apart():
    before = digest(identity)
    identity.gain = 0.3
    assert digest(identity) != before
    del identity.gain


def test_strange_objects_are_read_without_harm():
    class Lazy:
        def __getattr__(self, name):
            return Lazy()

    class Grim:
        def __repr__(self):
            raise RuntimeError

        __hash__ = object.__hash__

    cyclic = []
    cyclic.append([cyclic])
    gone = jnp.ones(2)
    gone.delete()
    many = [[i] for i in range(30_000)]
    for value in (Lazy(), {Grim(), Grim()}, cyclic, gone, 10**5000, np.array([Grim()]), iter([1]), many):
        assert digest(value) == digest(value)


def test_a_class_that_changes_all_the_time_is_told(monkeypatch):
    monkeypatch.setattr(programs, "drop", lambda: None)
    growing = []

    class Grows(Steady):
        def report(self):
            return growing

    def grow(times):
        for i in range(times):
            growing.append(i)
            programs.current(Grows)

    grow(programs.OFTEN)
    with pytest.warns(UserWarning, match="the code of Grows, or a value that it reads, has changed 8 times"):
        grow(1)


@pytest.mark.slow
def test_a_thousand_policies_and_sixty_variants_stay_within_bounds():
    def maps():
        with open("/proc/self/maps") as lines:
            return sum(1 for _ in lines)

    def resident():
        with open("/proc/self/statm") as line:
            return int(line.read().split()[1]) * 4096 / 2**20

    gains(Steady(0.0))
    before = maps(), resident()
    for i in range(1000):
        gains(Steady(i / 1000.0))
        if i % 250 == 249:
            print(f"{i + 1} policies: {maps()} maps, {resident():.0f} MiB")
    assert maps() < before[0] + 100
    assert resident() < before[1] + 100
    limit = int(programs._LIMIT.read_text())
    sizes = []
    for i in range(60):
        system = LEAK.replace(step=0.5 + i / 1000.0)
        nb.eig(KEY, system, nb.policies.Random(system), **SMALL)
        sizes.append((maps(), resident()))
    print(f"60 variants: at most {max(m for m, _ in sizes)} of {limit} maps, {max(r for _, r in sizes):.0f} MiB")
    assert max(m for m, _ in sizes) < 0.75 * limit
