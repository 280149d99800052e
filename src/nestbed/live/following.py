"""The belief of one rig while its record grows: the learning step, one experiment at a time.

As long as samples come a step apart and none is missing, the record is that of the model. From the first gap or uneven
time on it is one of rows (`records.py`), and what was seen so far is gone through again in that form.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed import belief as beliefs
from nestbed.belief import learning, particles
from nestbed.belief.base import FAR, Belief
from nestbed.belief.learning import Learner
from nestbed.evaluation import records
from nestbed.likelihood.base import Record
from nestbed.model import sensors
from nestbed.model.system import BaseSystem

SHORTEST = 16
"""Rows that buffers have at least; they hold a power of two, so that few programs do."""
FINER = 2
"""How many times shorter than a step the time between samples is reckoned with at first, where designs arrive late."""


class Said(NamedTuple):
    """What one observation said."""

    surprise: Float[np.ndarray, " dy"]  # where it lay in what was predicted, as standard normal numbers
    gain: float  # in nats
    odds: float  # logarithm of how much likelier it is if anything may happen, with tails that never end
    possible: bool  # whether any parameters explain it, so that the belief has numbers still
    mean: Float[np.ndarray, " dy"]  # of what was predicted, over particles
    sd: Float[np.ndarray, " dy"]


class Following(NamedTuple):
    """A belief and the record that it knows, with the rows that are done."""

    belief: Belief
    learner: Learner
    rows: int
    even: bool  # whether every row is a step of the model, with nothing missing
    finer: int  # how many times shorter than a step a row may be without a delay being forgotten too early

    @property
    def room(self) -> int:
        """How many rows the buffers hold."""
        return int(self.learner.record.designs.shape[1])


def start(
    key: jax.Array,
    system: BaseSystem,
    particles: int,
    first: Float[np.ndarray, " dy"],
    room: int,
    *,
    even: bool,
    finer: int = FINER,
) -> Following:
    """Return what is known once the first observation is seen; NaN is not measured."""
    made = _made(system, particles, even, finer)
    learner = _start(key, made, jnp.asarray(first)[None], max(SHORTEST, 1 << (room - 1).bit_length()))
    return Following(made, learner, 0, even, finer)


def take_in(
    key: jax.Array, now: Following, u: Float[np.ndarray, " du"], y: Float[np.ndarray, " dy"], length: float
) -> tuple[Following, Said]:
    """Return what is known after one more observation, `length` after the one before; what it said.

    The key is that of the session: rows draw their random numbers by their number.
    """
    step = now.belief.system.step
    parts = 1 if now.even else max(1, math.ceil(length / step - records.ROUNDING))
    gain = 0.0
    for part in range(parts):
        row = (u if now.even else np.append(u, length / parts))[None]
        seen = (y if part == parts - 1 else np.full(len(y), np.nan))[None]
        now = _with_room(now)
        learner, gained, said = _take_in(key, now.belief, now.learner, np.int32(now.rows), row, seen)
        now = now._replace(learner=learner, rows=now.rows + 1)
        gain += float(gained)
    surprise, mean, sd, odds, possible = map(np.asarray, said)
    return now, Said(surprise, gain, float(odds), bool(possible), mean, sd)


def begin_again(key: jax.Array, now: Following, y: Float[np.ndarray, " dy"]) -> Following:
    """Return what is known once the rig was brought to its start again, where y is seen."""
    now = _with_room(now)
    row = np.append(np.array(now.belief.system.rest_design), 0.0)
    learner, *_ = _take_in(key, now.belief, now.learner, np.int32(now.rows), row[None], y[None])
    return now._replace(learner=learner, rows=now.rows + 1)


def _made(system: BaseSystem, particles: int, even: bool, finer: int) -> Belief:
    made = beliefs.make("guided", system, particles, 3)
    return made.of_given_records() if even else made.of_given_records(finer * sensors.memory(system))


def _with_room(now: Following) -> Following:
    if now.rows < now.room:
        return now
    return now._replace(learner=now.learner._replace(record=now.learner.record.padded(2 * now.room)))


@eqx.filter_jit
def _start(key: jax.Array, belief: Belief, first: Float[Array, "1 dy"], room: int) -> Learner:
    learner = learning.start(key, belief, first, room)
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), learner)  # types that steps keep


@eqx.filter_jit
def _take_in(key: jax.Array, belief: Belief, learner: Learner, t: Any, u: Any, y: Any) -> Any:
    """Return what is known after one more row, and what that said.

    What may happen beside the model is a Cauchy distribution about what was predicted: whatever the model, its own
    outcomes have odds of e^a or more for it with probability e^−a at most.
    """
    key, before = jax.random.fold_in(key, t), learner.belief
    surprise = belief.surprise(before, u, y)
    mean, sd, outstanding = particles.foretold(belief.likelihood, before, u)
    learner, _ = learning.rejuvenate(key, belief, learner, t)
    learner, evidence, _ = learning.observe(key, belief, learner, t, u, y)
    anything = jnp.nansum(-jnp.log(jnp.pi * sd) - jnp.log1p(((y - mean) / sd) ** 2), axis=-1) + outstanding
    whole = jnp.isfinite(jnp.max(learner.belief.log_weights)) & (jnp.abs(evidence.log_predictive[0]) <= FAR)
    odds = anything - evidence.log_predictive
    gain = evidence.gain(belief.likelihood, "general")
    return learner, gain[0], (surprise[0], mean[0], sd[0], odds[0], whole)


def rows_of(now: Following) -> Record:
    """Return the record so far, without the room that is left."""
    observations, designs = now.learner.record
    return Record(observations[:, : now.rows + 1], designs[:, : now.rows])


def expected(now: Following, u: Float[np.ndarray, " du"]) -> Float[np.ndarray, " dy"]:
    """Return what each sensor is expected to show one step after a design."""
    row = u if now.even else np.append(u, now.belief.system.step)
    return np.asarray(_expected(now.belief, now.learner.belief, jnp.asarray(row)))


@eqx.filter_jit
def _expected(belief: Belief, state: Any, row: Float[Array, " du"]) -> Float[Array, " dy"]:
    means, _ = belief.likelihood.predict(state.carry, tuple(value[None, None] for value in row), state.theta)
    return jnp.stack([jnp.sum(jnp.exp(state.log_weights) * mean) for mean in means])
