"""The policies, and how plain objects become policies."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestbed as nb
from toys import Leak, LinearLeak

LINK = nb.systems.load("double_link")
KEYS = jax.random.split(jax.random.key(0), 4000)


def draws(policy):
    step = jax.vmap(lambda key: policy.step(key, policy.init(), jnp.zeros(4), jnp.zeros(2))[1])
    return np.asarray(step(KEYS))


def test_random_fills_the_box():
    u = draws(nb.policies.Random(LINK))
    assert (np.abs(u) <= [4, 2]).all()
    np.testing.assert_allclose(u.mean(0) / [4, 2], 0, atol=5 / np.sqrt(3 * 4000))
    np.testing.assert_allclose(u.var(0), np.array([16, 4]) / 3, rtol=0.1)
    assert abs(np.corrcoef(u.T)[0, 1]) < 5 / np.sqrt(4000)


def test_prbs_joint_flips_all_channels_together():
    u = draws(nb.policies.PRBS(LINK))
    np.testing.assert_array_equal(np.abs(u), np.tile([4.0, 2.0], (4000, 1)))
    np.testing.assert_array_equal(np.sign(u[:, 0]), np.sign(u[:, 1]))
    assert abs(np.sign(u[:, 0]).mean()) < 5 / np.sqrt(4000)


def test_prbs_independent_tosses_a_coin_for_each():
    u = draws(nb.policies.PRBS(LINK, channels="independent"))
    np.testing.assert_array_equal(np.abs(u), np.tile([4.0, 2.0], (4000, 1)))
    assert abs(np.corrcoef(np.sign(u).T)[0, 1]) < 5 / np.sqrt(4000)


class Plain:
    """A policy that knows nothing of jax's trees."""

    def __init__(self, level):
        self.level = level

    def init(self):
        return 0

    def step(self, key, carry, x, u_previous):
        return carry + 1, jnp.full(1, self.level)


@pytest.mark.parametrize("kind", [float, np.float64, np.asarray, jnp.asarray])
def test_a_plain_object_is_a_policy_and_changing_it_is_never_missed(kind):
    system, policy = LinearLeak(), Plain(kind(0.25))
    settings = {"horizon": 3, "trajectories": 4, "belief": "exact"}
    before = nb.sweep(jax.random.key(0), system, policy, **settings).designs
    policy.level = kind(0.75)
    after = nb.sweep(jax.random.key(0), system, policy, **settings).designs
    assert (before == 0.25).all()
    assert (after == 0.75).all()


@pytest.mark.slow
def test_changes_inside_attributes_and_classes_are_not_missed():
    class Inner:
        level = 0.25

    class Nested(Plain):
        shared = 0.5

        def __init__(self):
            self.inner = Inner()

        def step(self, key, carry, x, u_previous):
            return carry + 1, jnp.full(1, self.inner.level * self.shared)

    policy, settings = Nested(), {"horizon": 2, "trajectories": 2, "belief": "exact"}
    go = lambda: float(nb.sweep(jax.random.key(0), LinearLeak(), policy, **settings).designs[0, 0, 0])  # noqa: E731
    assert go() == 0.125
    policy.inner.level = 0.5
    assert go() == 0.25
    Nested.shared = 1.0
    assert go() == 0.5


def test_networks_may_be_of_single_precision():
    class Single(Plain):
        def step(self, key, carry, x, u_previous):
            return carry + 1, jnp.float32(self.level) * jnp.ones(1, jnp.float32)

    result = nb.sweep(jax.random.key(0), LinearLeak(), Single(0.5), horizon=3, trajectories=4, belief="exact")
    assert result.designs.dtype == jnp.float64


@pytest.mark.parametrize(
    "make",
    [
        nb.policies.Random,
        nb.policies.PRBS,
        nb.policies.Chirp,
        lambda system: nb.policies.Myopic(system, 4, particles=8),
        lambda system: nb.policies.Recurrent(jax.random.key(0), system, encoder=(4,), recurrent=(4,), head=(4,)),
        lambda system: nb.policies.Recurrent(jax.random.key(0), system, encoder=(4,), recurrent=(4,), head=()).mean(),
    ],
)
def test_policies_are_pickled_copied_and_jitted_by_their_step(make):
    policy = make(Leak())
    arguments = jax.random.key(1), policy.init(), jnp.ones(1), jnp.zeros(1)
    wanted = jax.jit(policy.step)(*arguments)[1]
    for other in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), copy.copy(policy)):
        assert np.array_equal(jax.jit(other.step)(*arguments)[1], wanted)
