"""Limits: what is limited, how fast designs change, how often limits are broken, and baselines within them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.evaluation import violation as violations
from nestbed.information import objective, search
from nestbed.model import limits
from nestbed.planning.design import design
from toys import Constant, Drive

KEY = jax.random.key(0)


class Walk(nb.System):
    """Its place is the sum of the designs and of the noise: how often a limit is broken is known."""

    state = ("place",)
    designs = nb.Box(push=(-2.0, 2.0))
    prior = {"gain": dist.Normal(1.0, 0.1)}
    step, diffusion, noise_floor = 1.0, (0.5,), 0.0
    limits = {"place": (None, 3.0)}
    defaults = nb.Defaults(horizon=3)

    def drift(self, x, u, theta):
        return theta.gain * u.push + 0.0 * x.place

    def power(self, x, u):
        return x.place * u.push


def test_how_often_a_limit_is_broken_is_what_it_is_in_closed_form():
    """One push of 2: place is Normal(2, 0.2² + 0.5²), and a limit of 3 is broken above it; within 4.5 errors."""
    system = Walk()
    found = nb.violation(KEY, system, Constant(2.0), horizon=1, records=20_000)
    truth = stats.norm(2.0, np.sqrt(0.2**2 + 0.5**2)).sf(3.0)
    assert found.probability == pytest.approx(truth, abs=4.5 * np.sqrt(truth * (1.0 - truth) / 20_000))
    assert found.interval.low < truth < found.interval.high
    assert found.limit == "place"
    assert "limits broken in" in str(found)


def test_functions_of_state_and_design_are_limited_at_both_ends_of_a_step():
    """power = place · push: large at once where the place is, and after the step where it has gone to."""
    system = Walk(limits={"power": (None, 4.0)})
    states = jnp.array([[[0.0], [3.0], [0.0]]])

    def broken(*pushes):
        return (np.asarray(violations.worst(system, states, jnp.array([pushes])[..., None])) > 0.0).tolist()

    assert broken(0.0, 0.0) == [[False]]
    assert broken(2.0, 0.0) == [[True]]  # 3 · 2 after the first step
    assert broken(0.0, 2.0) == [[True]]  # 3 · 2 before the second
    assert broken(1.0, 1.0) == [[False]]
    found = limits.excesses(system, states, jnp.array([[[2.0], [0.0]]]))["power"]
    np.testing.assert_allclose(found, [[[-1.0, -1.0]], [[0.5, -1.0]]])  # before and after, in units of 4


def test_slews_are_kept_from_the_rest_design_on():
    system = Walk(slew={"push": 0.75})
    signal = np.array([[2.0], [2.0], [-2.0], [-1.0]])
    found = np.asarray(limits.playable(system, jnp.asarray(signal)))
    np.testing.assert_allclose(found[:, 0], [0.75, 1.5, 0.75, 0.0])
    played = nb.policies.Compliant(system, nb.policies.Replay(system, signal))
    carry, before, designs = played.init(), jnp.zeros(1), []
    for _ in signal:
        carry, before = played.step(KEY, carry, jnp.zeros(1), before)
        designs.append(float(before[0]))
    np.testing.assert_allclose(designs, found[:, 0])


def test_baselines_are_scaled_down_until_they_comply():
    system = Walk(slew={"push": 1.5})
    full = nb.violation(KEY, system, nb.policies.Constant(system))
    assert full.probability > 0.5
    constant = violations.complying(KEY, system, nb.policies.Constant(system), 3, 0.01)
    assert isinstance(constant, nb.policies.Replay)
    for policy in (constant, violations.complying(KEY, system, nb.policies.PRBS(system), 3, 0.01)):
        assert nb.violation(jax.random.key(1), system, policy).probability <= 0.01
    assert 0.0 < float(constant.signal(3).max()) < 1.0
    free = Walk(limits={})
    policy = nb.policies.PRBS(free)
    assert violations.complying(KEY, free, policy, 3, 0.01) is policy


@pytest.mark.slow
def test_a_plan_keeps_limits_and_slews_and_says_what_they_cost():
    free, tight = Walk(limits={}), Walk(limits={"place": (-3.0, 3.0)}, slew={"push": 1.0})
    wide = design(KEY, free, rounds=2)
    plan = design(KEY, tight, rounds=6)
    assert wide.violation is None
    assert plan.violation.probability <= 0.01
    assert nb.violation(jax.random.key(9), tight, plan.policy, records=8192).probability <= 0.01
    assert np.abs(np.diff(plan.inputs[:, 0], prepend=0.0)).max() <= 1.0 + 1e-9
    assert plan.gain.mean < wide.gain.mean
    for each in plan.comparison[1:]:
        assert each.violation.probability <= 0.01
        assert plan.comparison.difference("plan", each.policy).interval.high > 0.0


@pytest.mark.slow
def test_plans_within_limits_are_kept(tmp_path):
    plan = design(KEY, Walk(), rounds=1)
    again = nb.load_plan(plan.save(tmp_path / "walk"), Walk())
    assert again.violation == plan.violation
    assert again.risk == plan.risk


@pytest.mark.slow
def test_nearing_a_limit_is_fined_by_the_spread_over_rigs():
    """By hand: the mean of what rigs reach at their worst time, and its deviation over rigs."""
    system = Walk(limits={"place": (None, 3.0)})
    rigs = objective.draw(KEY, system, 2, 64)
    unit = jnp.full((1, 2, 1), 0.5)
    _, fine, _ = objective.worth(system, rigs, unit, None, jnp.asarray(2.0))
    places = np.asarray(objective.simulate(system, rigs, jnp.ones((1, 2, 1))).states)[..., 0]
    over = ((places - 3.0) / 3.0).max(axis=1)
    assert float(fine[0]) == pytest.approx(objective.FINE * (over.mean() + 2.0 * over.std()), rel=1e-4)
    assert float(search.score(KEY, system, unit, None, 64, 6.0)[0]) < float(
        search.score(KEY, system, unit, None, 64, 0.0)[0]
    )


def test_margins_are_what_keeps_the_risk():
    """Of normal runs, their quantile; and none where limits are out of reach."""
    near, far = Walk(limits={"place": (None, 3.0)}), Walk(limits={"place": (None, 300.0)})
    found = violations.margin(KEY, near, Constant(2.0), 1, 0.1)
    assert found == pytest.approx(
        stats.norm.isf(0.1), abs=4.5 * np.sqrt(0.09 / violations.RECORDS) / stats.norm.pdf(1.28)
    )
    assert violations.margin(KEY, near, Constant(2.0), 1, 0.005) > 2.2
    assert violations.margin(KEY, far, Constant(2.0), 1, 0.1) == violations.WIDEST


def test_what_complies_is_scaled_down_no_further_than_it_must_be():
    """Of a push of 2, what breaks a limit of 2 in 0.5 % of runs: 0.70, and steps of a twentieth alone give 0.6."""
    system = Walk(limits={"place": (None, 2.0)}, defaults=nb.Defaults(horizon=1))
    found = violations.complying(KEY, system, Constant(2.0), 1, 0.01)
    push = 2.0 * float(found.share)
    assert stats.norm(0.7, np.hypot(0.1 * 0.7, 0.5)).sf(2.0) == pytest.approx(0.005, abs=2e-4)
    assert 0.62 < push < 0.78


def test_comparisons_say_how_often_limits_are_broken(tmp_path):
    from nestbed.evaluation.comparison import save_table
    from nestbed.faces.cli.evaluation import out_of_bounds

    found = nb.compare(KEY, Walk(), {"full": nb.policies.Constant(Walk())}, records=64)
    assert found[0].violation.probability > 0.5
    assert "limits broken in" in str(found)
    save_table(found, tmp_path / "table.csv")
    assert "violation_probability" in (tmp_path / "table.csv").read_text()
    assert "more often than the risk of 1 %" in out_of_bounds(found, 0.01)["full"]
    assert out_of_bounds(found, 0.999) == {}
    assert nb.compare(KEY, Drive(), {"full": Constant(1.0)}, records=64)[0].violation is None


@pytest.mark.slow
def test_where_nothing_complies_that_is_told():
    with pytest.warns(UserWarning, match=r"break place in [0-9.]+ % of runs, more often than the risk of 1 %"):
        design(KEY, Walk(limits={"place": (-0.1, 0.1)}), rounds=1)


def test_a_limit_that_is_broken_at_the_start_is_told_at_once():
    with pytest.raises(
        nb.NestbedError, match=r"place is beyond its limits \(-inf to -1\) at the start in 100 % of runs"
    ):
        design(KEY, Walk(limits={"place": (None, -1.0)}), rounds=1)


def test_a_slew_that_a_policy_exceeds_is_counted():
    """It jumps from rest, 0, to 1 at once."""
    system = Walk(limits={}, slew={"push": 0.5})
    found = nb.violation(KEY, system, nb.policies.Replay(system, [[1.0]]), horizon=2, records=256)
    assert found.probability == 1.0
    assert found.limit == "the slew of push"
    assert nb.violation(KEY, system, nb.policies.Replay(system, [[0.5], [1.0]]), horizon=2).probability == 0.0


def test_where_rest_breaks_a_limit_others_are_scaled_towards_what_does_not():
    """It falls by 1 at every step, unless a push of 1 holds it."""

    class Falling(Walk):
        limits = {"place": (-4.0, 4.0)}

        def drift(self, x, u, theta):
            return theta.gain * u.push - 1.0 + 0.0 * x.place

    assert violations.calmest(Falling(), 6, 0.01) == (1.0,)
    assert violations.calmest(Walk(limits={"place": (-9.0, 9.0)}), 6, 0.01) == (0.0,)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"limits": ("place", 3.0)}, r"Walk.limits is \('place', 3.0\); write a dictionary by name"),
        (
            {"limits": {"plac": (0.0, 1.0)}},
            "limits names 'plac', which is no state and no method.*did you mean 'place'",
        ),
        ({"limits": {"push": (0.0, 1.0)}}, "The limits of a design are those of its box"),
        ({"limits": {"place": 3.0}}, "limits of 'place' is 3.0; give a lower and an upper limit"),
        ({"limits": {"place": (2.0, 1.0)}}, "give a lower and an upper limit"),
        ({"limits": {"place": (None, None)}}, "give a lower and an upper limit"),
        ({"slew": {"pus": 1.0}}, "slew names 'pus', which is no design; did you mean 'push'"),
        ({"slew": {"push": -1.0}}, "slew of 'push' is -1.0; give the most that it may change by"),
    ],
)
def test_mistakes_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        Walk(**settings)


def test_a_limited_function_of_the_wrong_shape_gets_a_sentence():
    class Pair(Walk):
        limits = {"pair": (0.0, 1.0)}

        def pair(self, x, u):
            return x.place, u.push

    with pytest.raises(nb.NestbedError, match=r"the limited pair of Pair returned .*return one number"):
        Pair()


@pytest.mark.parametrize("risk", [0.0, 1.5, "1 %"])
def test_a_risk_that_is_none_gets_a_sentence(risk):
    with pytest.raises(nb.NestbedError, match=r"risk is .*, but it must be a probability"):
        design(KEY, Walk(), risk=risk)
