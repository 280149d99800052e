"""Simulated experiments: policies that look at nothing are played by one program, with the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestbed as nb
from nestbed.evaluation import experiments
from nestbed.policies.base import looks_at_nothing, prepare
from toys import Leak

KEY = jax.random.key(0)


@pytest.mark.parametrize("make", [nb.policies.Random, nb.policies.PRBS, nb.policies.Chirp])
def test_designs_known_beforehand_give_the_same_records(make):
    system = Leak()
    policy = prepare(make(system), system, 4)
    assert looks_at_nothing(policy)
    fast = experiments.simulated_rigs(KEY, system, policy, 4, 8)
    slow = experiments._simulated(KEY, system, policy, 4, 8)
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_users_policy_may_look():
    """Even one that is made of another which does not."""

    class Feedback(nb.policies.Random):
        def step(self, key, carry, y, u_previous):
            return carry, jnp.tanh(-y)

    system = Leak()
    policy = prepare(Feedback(system), system, 4)
    assert not looks_at_nothing(policy)
    _, record = experiments.simulated(KEY, system, policy, 4, 8)
    np.testing.assert_allclose(record.designs, np.tanh(-np.asarray(record.observations[:, :-1])))
