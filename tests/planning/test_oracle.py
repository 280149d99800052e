"""What knowing the parameters beforehand would gain."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.planning.evolution import Found, for_known_rigs
from nestbed.planning.goal import Goal
from toys import Drive


class Hill(nb.System):
    """One experiment tells most of where a hill is, one deviation beside its top."""

    state = ("level",)
    designs = nb.Box(place=(-4.0, 4.0))
    prior = {"top": dist.Normal(0.0, 1.0)}
    step, diffusion, noise_floor, integrator = 1.0, (0.1,), 0.0, "euler"
    defaults = nb.Defaults(horizon=1)

    def drift(self, x, u, theta):
        return jnp.exp(-0.5 * (u.place - theta.top) ** 2)


def test_it_is_what_the_best_input_for_each_rig_gains_more():
    plan = np.array([[1.2]])
    found = nb.oracle(jax.random.key(0), Hill(), plan, rigs=24)
    system = Hill()
    top = np.asarray(system.parameters.sample(jax.random.fold_in(jax.random.key(0), 24), (24,))[0])
    told = 100.0 * ((1.2 - top) * np.exp(-0.5 * (1.2 - top) ** 2)) ** 2
    more = 0.5 * np.log1p(100.0 * np.exp(-1.0)) - 0.5 * np.log1p(told)
    np.testing.assert_allclose(found.values, more, atol=0.01)
    assert found.interval.low < found.mean < found.interval.high
    assert "nats more with the parameters known" in str(found)


def test_it_is_nothing_where_one_input_is_best_for_all():
    found = nb.oracle(jax.random.key(1), Drive(defaults=nb.Defaults(horizon=2)), np.full((2, 1), 4.0), rigs=2)
    np.testing.assert_allclose(found.values, 0.0, atol=1e-9)


def test_plans_for_known_rigs_lie_where_each_tells_most():
    """One deviation beside the top of the hill; for the first rig, that is in the prior's middle."""
    goal, signals = Goal(Hill(), 1, None, 0.01), np.zeros((4, 1, 1))
    plans = for_known_rigs(jax.random.key(0), goal, Found(signals, signals, 0.0, 40), 3)
    assert plans.shape == (3, 1, 1)
    rig_key, _ = jax.random.split(jax.random.key(0))
    tops = np.array([0.0, *np.asarray(Hill().parameters.sample(rig_key, (3,))[0])[:2]])
    np.testing.assert_allclose(np.abs(plans[:, 0, 0] - tops), 1.0, atol=0.02)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (np.zeros(3), "the signal has the shape"),
        ([[np.nan]], "place = nan in experiment 0"),
        ([[5.0]], "keep it inside"),
    ],
)
def test_mistakes_get_a_sentence(plan, told):
    with pytest.raises(nb.NestbedError, match=told):
        nb.oracle(jax.random.key(0), Hill(), plan)


def test_one_rig_has_no_error():
    with pytest.raises(nb.NestbedError, match="rigs is 1, but an error needs at least 2"):
        nb.oracle(jax.random.key(0), Hill(), np.array([[1.2]]), rigs=1)
