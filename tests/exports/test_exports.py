"""Exports beside the policies that they were written from, over 50 steps, run without nestbed."""

import functools
import json
import shutil
from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import foreign
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from onnx.reference import ReferenceEvaluator

import nestbed as nb
from nestbed.exports import c_expressions, onnx_graph, tracing
from nestbed.numerics import noise as random_numbers
from nestbed.policies.compliant import Compliant
from nestbed.policies.feedback import Feedback
from nestbed.policies.recurrent import Recurrent

STEPS, UNMEASURED = 50, 45
"""Steps, and from where on an observation is NaN."""
TOLERANCE = {False: 1e-6, True: 1e-4}
"""Of half the box, in double and in single precision."""
SIZES = {"encoder": (16, 9), "recurrent": (8, 7), "head": (12,)}
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


class Arm(nb.System):
    """A joint seen through an encoder, two designs, one of which arrives late, limits and slew, a unit to trip over."""

    state = ("angle", "velocity")
    designs = nb.Box(torque=(-2.0, 3.0), brake=(0.5, 2.0))
    prior = {"inertia": dist.LogNormal(0.0, 0.3)}
    step, diffusion, integrator = 0.1, (0.01, 0.01), "euler"
    sensors = {"encoder": 0.01}
    delay = {"torque": 1}
    slew = {"torque": 0.7}
    limits = {"angle": (-9.0, 9.0)}
    units = {"torque": "N m */ *\\ ??/ \\", "encoder": "°", "brake": "{0}"}

    def drift(self, x, u, theta):
        return x.velocity, (u.torque - u.brake * x.velocity) / theta.inertia

    def observe(self, x, theta):
        return x.angle


class Viewed(nb.System):
    """A pendulum whose policy sees what `view` makes of its angle, by more primitives than any other."""

    state = ("angle", "velocity")
    designs = nb.Box(torque=(-1.0, 1.0))
    prior = {"mass": dist.LogNormal(0.0, 0.1)}
    step, diffusion, integrator = 0.05, (0.1, 0.1), "euler"

    def drift(self, x, u, theta):
        return x.velocity, -jnp.sin(x.angle) + u.torque / theta.mass

    def view(self, x):
        near = jnp.where(jnp.abs(x.velocity) < 1.0, x.velocity**3, jnp.sign(x.velocity))
        return jnp.sin(x.angle), jnp.cos(x.angle), near, jnp.sqrt(1.0 + x.velocity**2), jnp.exp(-jnp.abs(x.angle))


ARM, VIEWED = Arm(), Viewed()


class Averaging(eqx.Module):
    """A policy of a user's own, by sums, the largest of all, matrices and what is known of time."""

    def init(self):
        return {"seen": jnp.zeros((3, 1)), "count": 0}

    def step(self, key, carry, y, u_previous):
        seen = jnp.concatenate([carry["seen"][1:], y[None]])
        mixed = jnp.arange(6.0).reshape(2, 3) @ seen
        u = jnp.array([jnp.sum(mixed) / (1 + carry["count"]) - jnp.max(seen), jnp.min(seen) + u_previous[1]])
        return {"seen": seen, "count": carry["count"] + 1}, jnp.clip(u, jnp.array([-2.0, 0.5]), jnp.array([3.0, 2.0]))


class Swapping:
    """No pytree, and a carry whose parts change places, with whole numbers and one that is true or false."""

    gain = 0.3

    def init(self):
        whole = jnp.zeros((), jnp.int64), jnp.array([1, 2, 3], jnp.int32)
        return jnp.zeros(1), jnp.ones(1), jnp.array(True), *whole

    def step(self, key, carry, y, u_previous):
        one, other, up, count, order = carry
        u = jnp.stack(
            [jnp.where(up, self.gain * one[0], -other[0]) + order[0] % 5, 0.1 * u_previous[0] + count // 3 % 4]
        )
        turned = ~up & (y[0] > one[0]) | (count == 3)
        return (other, y, turned, count + 7, 2 * order[::-1]), jnp.clip(
            u, jnp.array([-2.0, 0.5]), jnp.array([3.0, 2.0])
        )


def feedback(system, share=1.0):
    """Return feedback that really changes its plan."""
    keys = jax.random.split(jax.random.key(1), 5)
    found = Feedback(keys[0], system, 20, 8, jax.random.uniform(keys[1], (20, len(system.design_names)), minval=-1.0))
    weights = 0.5 * jax.random.normal(keys[2], found.head.weight.shape, jnp.float32)
    expected = jax.random.normal(keys[3], found.expected.shape)
    spread = jnp.exp(0.3 * jax.random.normal(keys[4], found.spread.shape))
    parts = lambda policy: (policy.head.weight, policy.expected, policy.spread)  # noqa: E731
    return eqx.tree_at(parts, found, (weights, expected, spread)).alone(share)


class Case(NamedTuple):
    system: nb.System
    policy: object
    draws: int = 0


def recurrent(system, cell="gru", **options):
    return Recurrent(jax.random.key(2), system, cell=cell, **SIZES, **options)


CASES = {
    "feedback": Case(ARM, feedback(ARM)),
    "noisy feedback": Case(ARM, feedback(ARM, 0.7).with_noise(0.4), 2),
    "plan of a training": Case(ARM, feedback(ARM, 0.0)),
    "gru, previous design": Case(ARM, recurrent(ARM, sees_previous=True).mean()),
    "lstm, a view": Case(VIEWED, recurrent(VIEWED, "lstm").mean()),
    "sampled": Case(VIEWED, recurrent(VIEWED, log_std=-1.0), 1),
    "within limits": Case(ARM, Compliant(ARM, recurrent(ARM).mean(), 0.6, towards=[0.1, 1.0])),
    "held signal": Case(ARM, nb.policies.Replay(ARM, [[0.1, 0.6], [2.9, 1.9], [-2.0, 0.5]], hold=2)),
    "a user's own": Case(ARM, Averaging()),
    "one that is no pytree": Case(ARM, Swapping()),
}


FAST = {"noisy feedback", "lstm, a view", "a user's own"}
EVERY = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@functools.cache
def known(name):
    """Return what is given and what the policy does."""
    return walk(*CASES[name])


def walk(system, policy, draws):
    """Return observations, noise and designs; from some step on nothing is measured, but by plans, which never look."""
    random = np.random.default_rng(0)
    y = 1.5 * random.standard_normal((STEPS, len(system.observation_names)))
    y[UNMEASURED:, 0] = np.nan
    key, step = jax.random.key(3), jax.jit(policy.step)
    keys = [jax.random.fold_in(key, t) for t in range(STEPS)]
    noise = np.array([random_numbers.normals(each, (draws,)) for each in keys]).reshape(STEPS, draws)
    carry, u, found = policy.init(), jnp.array(system.rest_design), []
    for seen, each in zip(y, keys, strict=True):
        carry, u = step(each, carry, jnp.asarray(seen), u)
        found.append(np.asarray(u))
    return y, noise, np.array(found)


def off(case, found, expected):
    """Return by how much of half the box designs are off; where the policy has NaN, so must they."""
    half = 0.5 * np.subtract(case.system.designs.high, case.system.designs.low)
    looks = not (getattr(case.policy, "open_loop", False) or float(getattr(case.policy, "share", 1.0)) == 0.0)
    rows = slice(None) if looks else slice(UNMEASURED)
    np.testing.assert_array_equal(np.isnan(found[rows]), np.isnan(expected[rows]))
    return np.nanmax(np.abs(found[rows] - expected[rows]) / half)


@needs_gcc
@pytest.mark.parametrize("name", EVERY)
def test_c_does_what_the_policy_does(name, tmp_path):
    case, (y, noise, expected) = CASES[name], known(name)
    nb.export(case.policy, case.system, tmp_path, format="c")
    for single, tolerance in TOLERANCE.items():
        assert off(case, foreign.by_c(tmp_path, y, noise, single), expected) < tolerance


@needs_gcc
def test_the_check_of_c_passes_and_fails(tmp_path):
    nb.export(CASES["noisy feedback"].policy, ARM, tmp_path, format="c")
    for change, status in (("", 0), ("-Dtanhf=sinf", 1)):
        foreign.run("gcc", *foreign.FLAGS, *change.split(), "policy.c", "check.c", "-o", "check", "-lm", cwd=tmp_path)
        assert foreign.run(tmp_path / "check").returncode == status


@pytest.mark.parametrize("name", ["noisy feedback", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES)])
def test_plain_jax_does_what_the_policy_does(name, tmp_path):
    case, (y, noise, expected), folders = CASES[name], known(name), []
    for single in TOLERANCE:
        folders.append((tmp_path / str(single), not single))
        nb.export(case.policy, case.system, folders[-1][0], format="jax", single=single)
        np.savez(folders[-1][0] / "given.npz", y=y, noise=noise)
    for tolerance, found in zip(TOLERANCE.values(), foreign.by_jax(folders), strict=True):
        assert off(case, found, expected) < tolerance


@pytest.mark.parametrize("single", TOLERANCE)
@pytest.mark.parametrize("name", EVERY)
def test_onnx_does_what_the_policy_does(name, single, tmp_path):
    case, (y, noise, expected) = CASES[name], known(name)
    nb.export(case.policy, case.system, tmp_path, format="onnx", single=single)
    with np.errstate(all="ignore"):
        found = foreign.by_onnx(ReferenceEvaluator(str(tmp_path / "policy.onnx")), tmp_path, y, noise, single)
    assert off(case, found, expected) < TOLERANCE[single]


def test_a_plan_that_was_trained_carries_no_network():
    found = tracing.traced(*CASES["plan of a training"][1::-1])
    assert not found.adapts
    assert [each.shape for each in found.carry] == [()]
    assert tracing.traced(*CASES["feedback"][1::-1]).adapts


def test_csv_has_the_designs_in_order_and_refuses_what_adapts(tmp_path):
    case = CASES["held signal"]
    nb.export(case.policy, case.system, tmp_path, format="csv", horizon=STEPS)
    rows = np.loadtxt(tmp_path / "inputs.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(rows[:, 2:], known("held signal")[2])
    trained = CASES["plan of a training"]
    nb.export(trained.policy, ARM, tmp_path, format="csv")
    rows = np.loadtxt(tmp_path / "inputs.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(rows[:, 2:], trained.policy.inputs(), rtol=1e-12)
    with pytest.raises(nb.NestbedError, match="adapts its designs to what is seen, so that no sequence stands for it"):
        nb.export(CASES["feedback"].policy, ARM, tmp_path, format="csv")


def test_files_name_what_is_seen_and_done(tmp_path):
    for form in ("onnx", "jax", "csv"):
        nb.export(CASES["held signal"].policy, ARM, tmp_path / form, format=form)
        about = json.loads((tmp_path / form / "policy.json").read_text())
        assert about["u"][0] == {"name": "torque", "unit": ARM.units["torque"], "low": -2.0, "high": 3.0, "rest": 0.0}
        assert about["y"] == [{"name": "encoder", "unit": "°"}]
        text = (tmp_path / form / "README.md").read_text()
        assert "u[1]: brake ({0}), from 0.5 to 2; 0.5 before the first" in text
        assert "after 6 it begins again" in text
    check = json.loads((tmp_path / "onnx" / "check.json").read_text())
    assert [len(check[name]) for name in ("y", "u_previous", "u")] == [5, 5, 5]
    assert check["u_previous"][0] == [0.0, 0.5]
    assert check["u_previous"][1] == check["u"][0]


@pytest.mark.parametrize(
    ("policy", "form", "words"),
    [
        (lambda: nb.policies.PRBS(ARM), "c", "other random numbers than standard normal ones"),
        (
            lambda: SimpleNamespace(policy=nb.policies.Replan(ARM, plan=[[0.0, 1.0]] * 3)),
            "jax",
            "Replan keeps a belief",
        ),
        (lambda: Drawing(lambda key: jax.random.truncated_normal(key, -jnp.inf, 1.0)), "jax", "other random numbers"),
        (lambda: Drawing(lambda key: jax.random.truncated_normal(key, 0.0, 1.0)), "c", "other random numbers"),
        (lambda: Halving(), "c", "numbers of type float16, which the export to c has none for"),
        (lambda: Sorting(), "c", "uses jax's 'sort', for which the export to c has no entry"),
        (lambda: Sorting(), "onnx", "uses jax's 'sort', for which the export to onnx has no entry"),
        (lambda: Sorting(), "C", "there is no format 'C'; known: c, onnx, jax, csv"),
    ],
)
def test_what_cannot_leave_gets_a_sentence(policy, form, words, tmp_path):
    with pytest.raises(nb.NestbedError, match=words):
        nb.export(policy(), ARM, tmp_path / "out", format=form)
    assert not (tmp_path / "out").exists()


class Counting:
    """Whole numbers bit by bit, of few bits too, and what is left of a number divided by 1."""

    def init(self):
        return jnp.zeros((), jnp.int32), jnp.array(200, jnp.uint8)

    def step(self, key, carry, y, u_previous):
        count, few = carry
        u = jnp.where((count & 1) == 1, 0.5, -0.5) + jax.lax.rem(y[0], 1.0), 0.6 + 0.01 * (count | 1) + (few + few > 99)
        return (count + 1, few + jnp.uint8(7)), jnp.stack(u)


@needs_gcc
def test_whole_numbers_and_remainders_are_what_they_are(tmp_path):
    y, noise, expected = walk(ARM, Counting(), 0)
    nb.export(Counting(), ARM, tmp_path, format="c")
    found = foreign.by_c(tmp_path, y, noise, False)
    np.testing.assert_allclose(found[:UNMEASURED], expected[:UNMEASURED], rtol=1e-12)


class Rounding:
    """Numbers made whole that no whole number is near, whole numbers that wrap around, and division by 0."""

    def init(self):
        return jnp.array([5, -(2**31), 7], jnp.int32)

    def step(self, key, carry, y, u_previous):
        wide = y[0] * jnp.array([1.0, 1e12, -1e300])
        whole = [wide.astype(kind) for kind in ("int32", "int64", "uint32", "uint8")]
        pair = carry, jnp.array([0, -1, -3], jnp.int32)
        whole += [
            jax.lax.div(*pair),
            jax.lax.rem(*pair),
            -carry,
            carry**3,
            jax.lax.square(carry),
            carry @ carry[None].T,
        ]
        u = sum(jnp.sum(jax.lax.rem(each.astype(float), 1000.0)) for each in whole)
        return 3 * carry, jnp.stack([jax.lax.rem(u, 2.0), 1.25 + jax.lax.rem(u, 3.0) / 4.0])


@needs_gcc
@pytest.mark.parametrize("single", TOLERANCE)
def test_what_c_leaves_undefined_is_what_it_is_in_jax(single, tmp_path):
    y, noise, expected = walk(ARM, Rounding(), 0)
    nb.export(Rounding(), ARM, tmp_path, format="c")
    found = foreign.by_c(tmp_path, np.float32(y) if single else y, noise, single)
    np.testing.assert_array_equal(np.isfinite(found), True)
    if not single:
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@needs_gcc
def test_a_mutant_that_c_leaves_undefined_is_caught(tmp_path, monkeypatch):
    if not foreign.watched():
        pytest.skip("this compiler does not watch for undefined behaviour")
    monkeypatch.setattr(c_expressions, "_converted", lambda value, before, after, used: f"(({after}){value})")
    nb.export(Rounding(), ARM, tmp_path, format="c")
    with pytest.raises(AssertionError, match="is outside the range of representable"):
        foreign.by_c(tmp_path, *walk(ARM, Rounding(), 0)[:2], False)


class Drawing:
    """Random numbers of a kind of its own."""

    def __init__(self, draw):
        self.draw = draw

    def init(self):
        return jnp.zeros(1, jnp.float32)

    def step(self, key, carry, y, u_previous):
        return carry, u_previous + self.draw(key)


def test_noise_of_one_key_is_one_input():
    def draw(key):
        return jax.random.normal(key, (2,)) - 0.5 * jax.random.normal(key, (2,))

    assert [each.shape for each in tracing.traced(Drawing(draw), ARM).noise] == [(2,)]


class Halving(eqx.Module):
    """Numbers of a type that C has none for."""

    def init(self):
        return jnp.zeros(2, jnp.float16)

    def step(self, key, carry, y, u_previous):
        return carry + y[0].astype(jnp.float16), u_previous + carry


class Sorting(eqx.Module):
    """What no form but jax has an entry for."""

    def init(self):
        return None

    def step(self, key, carry, y, u_previous):
        return carry, jnp.sort(u_previous)


@needs_gcc
@pytest.mark.parametrize(
    ("name", "entry", "broken"),
    [
        ("noisy feedback", "logistic", "{t} x) {{ return 1 / (1 + {exp}(x)); }}"),
        ("noisy feedback", "min", "{t} a, {t} b) {{ return b < a ? b : a; }}"),  # NaN becomes a limit
        ("a user's own", "max", "{t} a, {t} b) {{ return a; }}"),
    ],
)
def test_a_mutant_of_c_is_caught(name, entry, broken, tmp_path, monkeypatch):
    monkeypatch.setitem(c_expressions.OWN, entry, broken)
    case, (y, noise, expected) = CASES[name], known(name)
    nb.export(case.policy, case.system, tmp_path, format="c")
    with pytest.raises(AssertionError):
        assert off(case, foreign.by_c(tmp_path, y, noise, False), expected) < TOLERANCE[True]


def test_a_mutant_of_onnx_is_caught(tmp_path, monkeypatch):
    monkeypatch.setitem(onnx_graph.DIRECT, "tanh", "Sin")
    case, (y, noise, expected) = CASES["noisy feedback"], known("noisy feedback")
    nb.export(case.policy, case.system, tmp_path, format="onnx")
    found = foreign.by_onnx(ReferenceEvaluator(str(tmp_path / "policy.onnx")), tmp_path, y, noise, False)
    assert off(case, found, expected) > TOLERANCE[True]
