"""The best inputs: the gain that is searched, the search, what is told, and what is kept on disk."""

import csv
import itertools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.faces.cli import sources
from nestbed.faces.cli.design import design as command
from nestbed.information import objective, search
from nestbed.model.target import targeted
from nestbed.numerics import combinations, interrupts
from nestbed.planning import starts
from nestbed.planning.design import SIGNAL, _best_signal, _handed_out, _identified, design
from nestbed.planning.evolution import Budget, searched
from nestbed.planning.goal import Goal
from nestbed.planning.plan import read_inputs
from nestbed.policies.signals import Replay
from toys import Drive, Leak

KEY = jax.random.key(0)
LEAK = f"{Path(__file__).parents[1] / 'toys.py'}:Leak"
ALL = None


class Product(nb.System):
    """Only a · b acts, so that a / b stays what it was."""

    state = ("x",)
    designs = nb.Box(u=(-1.0, 1.0))
    prior = {"a": dist.LogNormal(0.0, 0.3), "b": dist.LogNormal(0.5, 0.3)}
    step, diffusion, noise_floor = 1.0, (0.05,), 0.0
    defaults = nb.Defaults(horizon=4)

    def drift(self, x, u, theta):
        return theta.a * theta.b * u.u - x.x


@pytest.fixture(scope="module")
def plan():
    return design(KEY, Leak(), rounds=4)


def test_the_gain_of_a_linear_system_is_the_exact_one():
    """x' = x + θu + noise, θ and noise of unit variance: ½ log(1 + Σ u²), on every rig."""
    system = Drive()
    rigs = objective.draw(KEY, system, 3, 16)
    inputs = jnp.array([[[1.0], [-0.5], [0.25]], [[0.0], [0.0], [0.0]]])
    found, *_ = objective.worth(system, rigs, system.designs.unscale(inputs), ALL, 0.0)
    truth = 0.5 * np.log1p((np.asarray(inputs) ** 2).sum((1, 2)))
    np.testing.assert_allclose(found, np.broadcast_to(truth[:, None], (2, 16)), rtol=1e-6, atol=1e-12)


def test_what_a_target_gains_is_the_drop_of_its_marginal_variance():
    """By plain inverses, for a random information; without dividing the nuisance out it would be more."""
    random = np.random.default_rng(0)
    roots = random.standard_normal((5, 4, 6))
    information = roots @ np.swapaxes(roots, 1, 2)
    slopes = np.broadcast_to(np.eye(4)[[0, 2]], (5, 2, 4))
    covariance = np.linalg.inv(information + np.eye(4))[:, [0, 2]][:, :, [0, 2]]
    truth = -0.5 * np.log(np.linalg.det(covariance))
    np.testing.assert_allclose(objective.about(jnp.asarray(information), jnp.eye(4), slopes), truth, rtol=1e-9)
    known = 0.5 * np.log(np.linalg.det((information + np.eye(4))[:, [0, 2]][:, :, [0, 2]]))
    assert (truth < known - 0.01).all()
    whole = objective.about(jnp.asarray(information), jnp.eye(4))
    np.testing.assert_allclose(whole, 0.5 * np.log(np.linalg.det(information + np.eye(4))), rtol=1e-9)


def test_the_search_is_not_below_brute_force(plan):
    """Of all sequences of five levels over four experiments, on rigs that neither has seen."""
    system = Leak()
    levels = np.array(list(itertools.product(np.linspace(-1.0, 1.0, 5), repeat=4)))[:, :, None]
    found = system.designs.unscale(plan.inputs)[None]
    scores = search.score(KEY, system, np.concatenate([levels, found]), ALL, 256, 0.0)
    assert scores[-1] > scores[:-1].max() - 0.01
    assert scores[-1] > np.median(scores) + 0.1


def test_the_plan_is_not_below_any_baseline(plan):
    low, high = plan.gain.interval
    assert low <= plan.gain.mean <= high
    for each in plan.comparison[1:]:
        assert plan.comparison.difference("plan", each.policy).interval.high > 0.0
    assert plan.comparison[0].policy == "plan"
    assert system_box(plan)


def system_box(plan):
    return bool(plan.system.designs.contains(plan.inputs).all())


def certified(**means):
    """Return a comparison of certificates with such means and hardly any error."""
    noise = np.linspace(-1e-3, 1e-3, 64)
    estimates = []
    for name, mean in means.items():
        found = nb.Certificate(mean + noise, mean + noise, np.ones(64), 64, 4, origin=(0,))
        estimates.append(nb.PolicyEstimate(found.values, policy=name, certificate=found))
    return nb.Comparison(estimates)


def test_a_signal_that_gains_more_is_handed_out_instead():
    system = Leak()
    candidates = {name: Replay(system, [[value]]) for name, value in (("plan", 0.1), ("chirp", 0.2))}
    assert _handed_out(candidates, certified(plan=1.0, chirp=0.9, random=0.8), 0.01)[0] == "plan"
    name, found = _handed_out(candidates, certified(plan=1.0, chirp=1.1, random=0.8), 0.01)
    assert name == "chirp"
    assert [(each.policy, round(each.mean, 6)) for each in found] == [("plan", 1.1), ("chirp", 1.1), ("random", 0.8)]
    with pytest.warns(UserWarning, match="random inputs gain more than what was found"):
        assert _handed_out(candidates, certified(plan=1.0, chirp=0.9, random=1.2), 0.01)[0] == "plan"


@pytest.mark.parametrize(("chirp", "mean"), [(0.95, 0.95), (0.8, 0.9)])
def test_the_best_signal_is_below_no_other(chirp, mean):
    """Random inputs are no signal, however much they gain."""
    names = (SIGNAL, "chirp")
    signals = {name: Replay(Leak(), [[value]]) for value, name in enumerate(names)}
    found = certified(**{SIGNAL: 0.9, "random": 1.2, "chirp": chirp})
    signal, told = _best_signal(signals, list(found), 0.01)
    assert (told.policy, round(told.mean, 6)) == (SIGNAL, mean)
    assert signal is signals[names[int(chirp > 0.9)]]


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    """Asked to stop after two rounds of a thousand."""
    told = []
    monkeypatch.setattr(interrupts, "taken", lambda: len(told) >= 2)
    budget = Budget(0.0, 20.0, 1000)
    best = searched(KEY, Goal(Leak(), 4, ALL, 0.01), budget, told.append)
    assert budget.done == 2
    assert [step.done for step in told] == [1, 2]
    assert told[-1].total == 1000
    assert np.abs(best.unit).max() <= 1.0


def test_as_many_rounds_give_the_same_inputs(plan):
    again = design(KEY, Leak(), rounds=4)
    np.testing.assert_array_equal(plan.inputs, again.inputs)
    assert again.rounds == 4


def test_rounds_only_rise():
    """What is returned is scored no worse than what was given, on the same rigs."""
    system = Leak()
    unit = jnp.asarray(starts.random(0, system, 4, 8))
    before = search.score(jax.random.key(2), system, unit, ALL, search.JUDGES, 0.0)
    after = search.climb(KEY, jax.random.key(2), system, unit, ALL, 0.1, 0.0)
    assert (np.asarray(after.score) >= np.asarray(before) - 1e-9).all()
    assert np.asarray(after.score).mean() > np.asarray(before).mean()
    assert np.abs(np.asarray(after.unit)).max() <= 1.0


def test_children_stay_in_the_box_and_differ():
    unit = jnp.asarray(starts.random(0, Leak(), 20, 64))
    children = np.asarray(search.mutate(KEY, unit))
    assert np.abs(children).max() <= 1.0
    assert np.mean([not np.array_equal(a, b) for a, b in zip(children, np.asarray(unit), strict=True)]) > 0.6


def test_children_differ_where_something_is_left_to_be_done():
    unit = jnp.asarray(starts.random(0, Leak(), 40, 64))
    rows = [np.asarray(search.mutate(KEY, unit, left))[:, :2] for left in (None, jnp.array(2))]
    changed = [np.mean(np.any(children != np.asarray(unit)[:, :2], axis=(1, 2))) for children in rows]
    assert changed[1] > 0.6 > changed[0]


@pytest.mark.parametrize("horizon", [1, 2, 7])
def test_classical_signals_fill_any_horizon(horizon):
    found = starts.classical(Leak(), horizon)
    assert found.shape[1:] == (horizon, 1)
    assert np.abs(found).max() <= 1.0


def test_a_direction_that_nothing_tells_is_named():
    inputs = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    found = _identified(KEY, Goal(Product(), 4, ALL, 0.01), inputs, inputs[None])
    assert [each.name for each in found.directions] == ["a · b", "a / b"]
    best, worst = (each.ratio for each in found.directions)
    assert best < 0.3
    assert worst == pytest.approx(1.0, abs=1e-6)
    assert found.sentence.startswith("told: a · b well; a / b not at all, by these inputs or any of 240 others")
    assert found.after[0] > found.twice[0]
    assert found.before == pytest.approx((0.3, 0.3), rel=1e-4)
    assert all(found.relative)


def test_a_direction_that_other_inputs_tell_is_named():
    """Inputs of 0 tell nothing; the classical ones tell the product."""
    found = _identified(KEY, Goal(Product(), 4, ALL, 0.01), np.zeros((4, 1)), np.zeros((1, 4, 1)))
    assert found.directions[0].ratio == pytest.approx(1.0)
    assert min(each.least for each in found.directions) < 0.9
    assert "not by these inputs, but by others" in found.sentence


def test_directions_in_words():
    named = combinations.named
    names, logs = ("mass", "length", "gain"), (True, True, False)
    assert named(names, np.array([1.0, 2.0, 0.0]), logs) == "mass · length²"
    assert named(names, np.array([-1.0, 2.0, 0.0]), logs) == "length² / mass"
    assert named(names, np.array([0.1, 2.0, 0.0]), logs) == "length"
    assert named(names, np.array([1.0, 0.0, -0.5]), logs) == "mass − 0.5 gain"


class Two(Product):
    """Two parameters that act apart."""

    diffusion = (0.3,)

    def drift(self, x, u, theta):
        return theta.a * jnp.maximum(u.u, 0.0) + theta.b * jnp.minimum(u.u, 0.0) - x.x

    def ratio(self, theta):
        return theta.a / theta.b


@pytest.mark.slow
def test_the_search_for_a_target_is_not_below_brute_force():
    """Of all sequences of five levels over four experiments, on rigs that neither has seen."""
    system = Two()
    goal = Goal(system, 4, targeted(system, "ratio"), 0.01)
    found = searched(KEY, goal, Budget(time.monotonic(), 1.0, 8), None)
    levels = np.array(list(itertools.product(np.linspace(-1.0, 1.0, 5), repeat=4)))[:, :, None]
    scores = search.score(KEY, system, np.concatenate([levels, found.unit[:1]]), goal.target, 256, 0.0)
    assert scores[-1] > scores[:-1].max() - 0.01
    assert scores[-1] > np.median(scores) + 0.05


@pytest.mark.slow
def test_a_target_is_designed_for():
    """About one of two parameters that act apart, its own plan is the better one."""
    own = design(KEY, Two(), target="a", rounds=3)
    assert own.target == ("a",)
    assert own.gain.target == ("a",)
    assert (own.inputs > 0.9).all()
    both = design(KEY, Two(), target="ratio", rounds=3)
    assert both.gain.target == ("ratio",)
    assert (both.inputs > 0.9).any()
    assert (both.inputs < -0.9).any()
    told = nb.certificate(KEY, Two(), own.policy, horizon=4, target="ratio")
    assert both.gain.interval.low > told.interval.high
    assert both.identifiability.parameters == ("a", "b", "ratio")
    assert both.identifiability.after[2] < 0.7 * both.identifiability.before[2]


def test_plans_are_kept(plan, tmp_path):
    again = nb.load_plan(plan.save(tmp_path / "leak"), Leak())
    np.testing.assert_array_equal(again.inputs, plan.inputs)
    assert again.gain.interval == plan.gain.interval
    assert again.identifiability == plan.identifiability
    assert str(again.comparison) == str(plan.comparison)
    with pytest.raises(nb.NestbedError, match="holds no plan that nestbed can read"):
        nb.load_plan(tmp_path, Leak())
    (tmp_path / "leak" / "plan.json").write_text("[]")
    with pytest.raises(nb.NestbedError, match="holds no plan that nestbed can read"):
        nb.load_plan(tmp_path / "leak", Leak())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("t,flwo\n0,1\n", "has the columns t, flwo, but Leak needs one for each design: flow"),
        ("flow\n1\nx\n", "has 'x' in experiment 1, but inputs are finite numbers"),
        ("flow\n1\n7\n", r"flow = 7 in experiment 1, outside the limits \(-1.0, 1.0\)"),
        ("", "of an empty file"),
    ],
)
def test_inputs_that_cannot_be_used_get_a_sentence(tmp_path, text, told):
    (tmp_path / "inputs.csv").write_text(text)
    with pytest.raises(nb.NestbedError, match=told):
        read_inputs(tmp_path / "inputs.csv", Leak())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"seconds": 0}, "seconds is 0, but it must be a positive number"),
        ({"rounds": 0}, "rounds is 0, but it must be a whole number"),
        ({"target": "rat"}, "no parameter 'rat' to be a target; did you mean 'rate'"),
    ],
)
def test_mistakes_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        design(KEY, Leak(), **settings)


def test_the_command_saves_what_others_take(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command(LEAK, seconds=0.1, out=tmp_path / "leak")
    told = capsys.readouterr().out
    assert "best signal" in told
    assert "what the inputs tell" in told
    assert {file.name for file in (tmp_path / "leak").iterdir()} >= {"inputs.csv", "plan.json", "plan.png"}
    rows = list(csv.DictReader((tmp_path / "leak" / "inputs.csv").read_text().splitlines()))
    assert [float(row["time"]) for row in rows] == pytest.approx(Leak().step * np.arange(4))
    page = (tmp_path / "leak" / "report.html").read_text()
    assert "data:image/png;base64" in page
    assert "best signal" in page
    assert "http" not in page
    for place in ("leak", "leak/inputs.csv"):
        found = sources.policy(place, LEAK, None)
        assert found.horizon == 4
        assert found.policy.table.shape == (4, 1)
    with pytest.raises(nb.NestbedError, match=r"inputs.csv need a system; add --system"):
        sources.policy("leak/inputs.csv", None, None)


class Arm(nb.System):
    """A damped arm in rad, rad/s and V."""

    state = ("angle", "speed")
    designs = nb.Box(voltage=(-6.0, 6.0))
    prior = {"drive": dist.LogNormal(0.0, 0.3), "damping": dist.LogNormal(0.0, 0.3)}
    step, diffusion, noise_floor = 0.1, (0.01, 0.2), 0.0
    limits = {"speed": (-4.0, 4.0)}
    slew = {"voltage": 5.0}
    defaults = nb.Defaults(horizon=8)

    def drift(self, x, u, theta):
        return x.speed, theta.drive * u.voltage - theta.damping * x.speed - 4.0 * jnp.sin(x.angle)


DEGREE, RPM = 180.0 / np.pi, 60.0 / (2.0 * np.pi)


class ArmInOtherUnits(Arm):
    """The same arm in degrees, revolutions per minute and mV."""

    designs = nb.Box(voltage=(-6000.0, 6000.0))
    diffusion = (0.01 * DEGREE, 0.2 * RPM)
    limits = {"speed": (-4.0 * RPM, 4.0 * RPM)}
    slew = {"voltage": 5000.0}

    def drift(self, x, u, theta):
        speed, push = super().drift(self.State(x.angle / DEGREE, x.speed / RPM), self.Design(u.voltage / 1000.0), theta)
        return speed * DEGREE, push * RPM


@pytest.mark.slow
def test_units_do_not_matter():
    one, other = (design(KEY, system, rounds=2) for system in (Arm(), ArmInOtherUnits()))
    np.testing.assert_allclose(other.inputs / 1000.0, one.inputs, atol=1e-3)
    assert other.gain.mean == pytest.approx(one.gain.mean, abs=1e-3)
    assert other.violation.probability == pytest.approx(one.violation.probability, abs=1e-9)
