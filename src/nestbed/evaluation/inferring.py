"""Given records, read experiment by experiment: the learning step, and what mends a belief that fails on the way.

Mending takes a program of its own, which is compiled only where a belief needs it: there the reading pauses.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import faults, learning
from nestbed.belief.base import Belief
from nestbed.belief.learning import Learner
from nestbed.likelihood.base import Record
from nestbed.numerics import interrupts

SHORTEST = 16
"""Experiments that a record's buffers hold at least; longer ones hold a power of two, so that few programs do."""


class Reading(NamedTuple):
    """How far records have been read, and what they have said so far."""

    learner: Learner
    done: Int[Array, ""]  # experiments
    log_predictive: Float[Array, "N T"]
    gains: Float[Array, "N T"]
    residuals: Float[Array, "N T dy"]
    unfit: Bool[Array, " N"]  # records whose belief is to be mended before the next experiment
    fault: faults.Fault


def roomy(record: Record) -> Record:
    """Return records in buffers that those of many lengths share."""
    return record.padded(max(SHORTEST, 1 << (record.designs.shape[1] - 1).bit_length()))


def read(key: jax.Array, belief: Belief, record: Record, gain: str) -> Reading:
    """Read whole records, and mend beliefs where they fail and, in the end, where they have overlooked something."""
    begin_key, steps_key = jax.random.split(key)
    count = jnp.asarray(record.designs.shape[1])
    record = roomy(record)
    reading = _begun(begin_key, belief, record)
    while True:
        interrupts.check()
        reading = read_on(steps_key, belief, record, count, gain, reading)
        if int(reading.fault.step) >= 0:
            return reading
        if not bool(reading.unfit.any()):
            return _looked_over(jax.random.fold_in(key, 1), belief, count, reading)
        mend_key = belief.mending_key(_keys(steps_key, record)[reading.done - 1])
        reading = _mended(mend_key, belief, gain, reading)


@eqx.filter_jit
def _begun(key: jax.Array, belief: Belief, record: Record) -> Reading:
    """Return a reading of the first observations."""
    records, capacity = record.designs.shape[:2]
    learner = learning.start(key, belief, record.observations[:, 0], capacity)
    nothing = jnp.zeros((records, capacity))
    residuals = jnp.zeros((*nothing.shape, record.observations.shape[-1]))
    fault = faults.none(belief.system, capacity, belief.likelihood.inputs)
    return Reading(learner, jnp.zeros((), jnp.int32), nothing, nothing, residuals, jnp.zeros(records, bool), fault)


@eqx.filter_jit
def read_on(
    key: jax.Array, belief: Belief, record: Record, count: Int[Array, ""], gain: str, reading: Reading
) -> Reading:
    """Do the learning step for experiment after experiment, up to `count` or until a belief is to be mended."""
    keys = _keys(key, record)

    def experiment(reading: Reading) -> Reading:
        learner, t, log_predictive, gains, residuals, unfit, fault = reading
        surprise = belief.surprise(learner.belief, record.designs[:, t], record.observations[:, t + 1])
        learner, info, fault = learning.step(
            keys[t],
            belief,
            learner,
            t,
            fault,
            design=lambda y, u_previous: (None, record.designs[:, t]),
            outcome=lambda state, u: record.observations[:, t + 1],
            gain=gain,
        )
        fault = faults.in_weights(fault, info.gain, info.evidence, belief, info.before, learner.record, t)
        log_predictive = log_predictive.at[:, t].set(info.evidence.log_predictive)
        gains, residuals = gains.at[:, t].set(info.gain), residuals.at[:, t].set(surprise)
        found = belief.unfit(learner.belief, t + 1)
        unfit = jnp.zeros_like(unfit) if found is None else found
        return Reading(learner, t + 1, log_predictive, gains, residuals, unfit, fault)

    begun = reading._replace(unfit=jnp.zeros_like(reading.unfit))
    return jax.lax.while_loop(lambda now: (now.done < count) & ~now.unfit.any(), experiment, begun)


def _keys(key: jax.Array, record: Record) -> jax.Array:
    return jax.random.split(key, record.designs.shape[1])


def _mended(key: jax.Array, belief: Belief, gain: str, reading: Reading) -> Reading:
    """Return a reading whose beliefs that failed with the last outcome are mended, and that outcome judged by them."""
    learner, t = reading.learner, reading.done - 1
    state, rise, info = mend(key, belief, learner, reading.done, reading.unfit)
    fault = faults.in_rejuvenation(reading.fault, info, learner.record, reading.done)
    evidence = belief.recalled(state)
    gained = jnp.where(reading.unfit, evidence.gain(belief.likelihood, gain), reading.gains[:, t])
    fault = faults.in_weights(fault, gained, evidence, belief, state, learner.record, t)
    return reading._replace(
        learner=learner._replace(belief=state),
        log_predictive=reading.log_predictive.at[:, t].add(rise),
        gains=reading.gains.at[:, t].set(gained),
        fault=fault,
    )


def _looked_over(key: jax.Array, belief: Belief, count: Int[Array, ""], reading: Reading) -> Reading:
    """Return a reading with no part of a posterior overlooked; what is found counts as the last outcome's evidence."""
    look_key, mend_key = jax.random.split(key)
    if not belief.looks(reading.learner.belief):
        return reading
    overlooked = _overlooked(look_key, belief, reading.learner, count)
    if not bool(overlooked.any()):
        return reading
    state, rise, _ = mend(mend_key, belief, reading.learner, count, overlooked)
    return reading._replace(
        learner=reading.learner._replace(belief=state),
        log_predictive=reading.log_predictive.at[:, count - 1].add(rise),
    )


@eqx.filter_jit
def _overlooked(key: jax.Array, belief: Belief, learner: Learner, count: Int[Array, ""]) -> Bool[Array, " N"]:
    return belief.overlooked(key, learner.belief, learner.record, count)


@eqx.filter_jit
def mend(key: jax.Array, belief: Belief, learner: Learner, count: Int[Array, ""], chosen: Bool[Array, " N"]) -> Any:
    """Mend the beliefs of chosen records, by one program whatever they lack."""
    return belief.mended(key, learner.belief, learner.record, count, chosen)
