"""The learning step: the same from a sweep, from a record, from any state, one experiment at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestbed as nb
from nestbed.belief import IBIS, Exact, faults, learning
from nestbed.evaluation import inferring
from nestbed.likelihood.simulation import simulate
from toys import Leak, LinearLeak

KEY = jax.random.key(3)


def record_of(system, length):
    drawn = simulate(jax.random.key(0), system, nb.policies.PRBS(system), (jnp.array([0.6]),), length).record
    return drawn.observations, drawn.designs


def by_hand(belief, observations, designs, capacity, cut):
    """Learn from a record one experiment at a time, as a live session does; at `cut` the state leaves as plain data."""
    start_key, steps_key = jax.random.split(KEY)
    keys = jax.random.split(steps_key, capacity)
    learner = learning.start(start_key, belief, observations[:, 0], cut)  # no room for more before it has grown
    gains = []

    @jax.jit
    def step(key, learner, t, u, y):
        return learning.step(
            key,
            belief,
            learner,
            t,
            faults.none(belief.system, learner.record.designs.shape[1]),
            design=lambda seen, before: (None, u),
            outcome=lambda state, given: y,
        )

    for t in range(designs.shape[1]):
        if t == cut:
            leaves, structure = jax.tree.flatten(learner)
            learner = jax.tree.unflatten(structure, [jnp.asarray(np.asarray(leaf)) for leaf in leaves])
            learner = learner._replace(record=learner.record.padded(capacity))
        learner, info, _ = step(keys[t], learner, jnp.int32(t), designs[:, t], observations[:, t + 1])
        gains.append(float(info.gain[0]))
    return learner, gains


@pytest.mark.slow
@pytest.mark.parametrize("belief", [IBIS(Leak(), 64, 2), Exact(LinearLeak())], ids=["ibis", "exact"])
def test_steps_from_outside_are_those_of_the_posterior(belief):
    observations, designs = record_of(belief.system, 6)
    whole = nb.posterior(KEY, belief.system, observations, designs, belief=belief)
    learner, gains = by_hand(belief, observations, designs, inferring.SHORTEST, cut=3)
    np.testing.assert_allclose(gains, whole.gains[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(belief.moments(learner.belief)[0], whole.mean, rtol=1e-10)
    np.testing.assert_array_equal(learner.record.observations[:, :7], observations)
    np.testing.assert_array_equal(learner.record.designs[:, :6], designs)


def test_a_longer_buffer_changes_nothing():
    """The step knows no horizon: the room that is left after what is done does not enter."""
    belief = Exact(LinearLeak())
    observations, designs = record_of(belief.system, 4)
    tight, loose = (by_hand(belief, observations, designs, capacity, cut=2)[1] for capacity in (4, 32))
    np.testing.assert_allclose(tight, loose, rtol=1e-12)


def test_records_of_many_lengths_share_a_program():
    system = type("Leak", (Leak,), {})()
    observations, designs = record_of(system, 16)
    counts = []
    for length in (3, 7, 16, 2):
        nb.posterior(KEY, system, observations[:, : length + 1], designs[:, :length], particles=32)
        counts.append(inferring.read_on._cached._cache_size())
    assert len(set(counts)) == 1


def test_the_first_part_of_a_record_says_the_same_as_that_part_alone():
    system = Leak()
    observations, designs = record_of(system, 16)
    part = nb.posterior(KEY, system, observations[:, :6], designs[:, :5], particles=32)
    whole = nb.posterior(KEY, system, observations, designs, particles=32)
    np.testing.assert_array_equal(part.gains, whole.gains[:, :5])
