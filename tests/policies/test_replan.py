"""Plans made anew: the best feedback of a known problem, the same designs for the same record, limits that change."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestbed as nb
from toys import Bounded, Follow, Leak

KEY = jax.random.key(0)
SMALL = {"particles": 8, "candidates": 2, "steps": 2}


def test_the_best_feedback_of_a_known_problem_is_planned():
    """Within two per cent of the best; the plan alone gains a fifth less."""
    system = Follow()
    policy = nb.policies.Replan(system, plan=np.zeros((2, 1)), rounds=4, steps=20)
    gained = nb.certificate(KEY, system, policy, records=256)
    assert gained.mean > 0.98 * system.best


def test_designs_follow_from_what_was_seen_and_not_from_the_key():
    policy = nb.policies.Replan(Leak(), plan=np.zeros((4, 1)), **SMALL)
    step = jax.jit(policy.step)
    for key in (1, 2):
        carry, u = policy.init(), jnp.zeros(1)
        designs = []
        for y in (1.0, 0.7, 0.2, 0.5):
            carry, u = step(jax.random.key(key), carry, jnp.array([y]), u)
            designs.append(float(u[0]))
        first = designs if key == 1 else first
    assert designs == first
    assert policy.longest == 4
    np.testing.assert_allclose(np.asarray(carry.record.designs)[0, :3, 0], designs[:3])
    for _ in range(2):  # beyond its end it stays where it is
        carry, u = step(KEY, carry, jnp.array([0.5]), u)
        assert float(u[0]) == designs[-1]


def test_a_plan_is_kept_between_searches():
    policy = nb.policies.Replan(Leak(), plan=np.full((4, 1), 0.5), every=4, **SMALL)
    carry, u = policy.step(KEY, policy.init(), jnp.array([1.0]), jnp.zeros(1))
    planned = carry.plan
    carry, u = policy.step(KEY, carry, jnp.array([0.3]), u)
    assert float(u[0]) == float(planned[0, 0])


def test_it_takes_no_longer_than_it_may():
    policy = nb.policies.Replan(Leak(), plan=np.zeros((4, 1)), seconds=0.3, **SMALL)
    step = jax.jit(policy.step)
    jax.block_until_ready(step(KEY, policy.init(), jnp.array([1.0]), jnp.zeros(1)))
    begun = time.monotonic()
    jax.block_until_ready(step(KEY, policy.init(), jnp.array([1.0]), jnp.zeros(1)))
    assert 0.3 <= time.monotonic() - begun < 3.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the plan to begin with leads beyond")
def test_limits_may_change_in_the_middle_of_a_record():
    """The next design already keeps them, though no search was due."""
    settings = {"particles": 32, "candidates": 4, "steps": 10, "rounds": 4, "every": 6}
    wide = nb.policies.Replan(Bounded(), plan=np.full((12, 1), 2.0), **settings)
    tight = wide.limited({"speed": (-0.3, 0.3)})
    assert tight.system.limits["speed"] == (-0.3, 0.3)
    carry, first = wide.step(KEY, wide.init(), jnp.zeros(1), jnp.zeros(1))
    drive, drag = (0.2 * value for value in (1.0, 1.0))
    reached = [
        0.15 * (1.0 - drag) + drive * float(policy.step(KEY, carry, jnp.array([0.15]), first)[1][0])
        for policy in (wide, tight)
    ]
    assert max(reached) == reached[0] > 0.3
    assert abs(reached[1]) < 0.3


def test_a_plan_is_searched_for_where_none_is_given():
    policy = nb.policies.Replan(Leak(), horizon=3, **SMALL)
    assert policy.first.shape == (3, 1)
    assert float(jnp.abs(policy.first).max()) <= 1.0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"every": 0}, "every is 0, but it must be a whole number"),
        ({"seconds": -1.0}, "seconds is -1.0, but it must be a positive number"),
        ({"seconds": float("inf")}, "seconds is inf, but it must be a positive number"),
        ({"plan": np.zeros((4, 2))}, "the signal has the shape"),
        ({"target": "rat"}, "no parameter 'rat' to be a target"),
    ],
)
def test_mistakes_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        nb.policies.Replan(Leak(), **{"plan": np.zeros((4, 1)), **settings})


def test_a_plan_that_breaks_limits_is_told():
    strict = Bounded().replace(limits={"speed": (-0.1, 0.1)})
    with pytest.warns(UserWarning, match="the plan to begin with leads beyond the system's limits"):
        nb.policies.Replan(strict, plan=np.full((12, 1), 2.0), **SMALL)
