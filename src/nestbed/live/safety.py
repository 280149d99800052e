"""Whether a design would lead beyond limits, by what is known, and the nearest one that would not.

Rigs are drawn from the belief: a particle by its weight, a state by its filter, noise for each step. A design is as
safe as the best way to go on from it: what moves cannot stop at once, so that after the design rest or the ends of the
box are tried, for some steps and then rest, and limits must be kept all along the best of these ways.

What may be risked in one experiment is its share of a whole session's, far less than some hundred rigs can show by
breaking limits: so how near they come is what counts, as the tail of its distribution over rigs (`tails.py`).
"""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.belief.base import Belief
from nestbed.live.following import Following
from nestbed.model import limits
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, tails

DRAWS = 2
"""Rigs drawn from each particle."""
AHEAD = 12
"""Steps that are looked ahead."""
TURNS = (1, 2, 4, 8, AHEAD)
"""Steps for which the ends of the box are tried before rest; all of them, where it is rest that breaks limits."""
ALONG = 12
"""Designs that are tried on the way from the wanted one to each other."""
CORNERS = 3
"""Designs of which every corner of the box is tried; of more, all ends at once."""


class Checked(NamedTuple):
    """A design that may go out."""

    u: Float[np.ndarray, " du"]
    wanted: float  # probability that the design which was wanted leads to a broken limit
    given: float  # the same of the one that is given
    charge: float  # probability that the one given breaks a limit within this experiment
    limit: str  # which one is broken most often by the one wanted; "" where there are no limits


def nearest_safe(
    key: jax.Array, now: Following, u: Float[np.ndarray, " du"], previous: Float[np.ndarray, " du"], risk: float
) -> Checked:
    """Return the design wanted, within box and slew, or the nearest that breaks limits with at most this probability.

    Where none does, the one that breaks them least often.
    """
    system = now.belief.system
    u = within(system, u, previous)
    if not system.limits:
        return Checked(u, 0.0, 0.0, 0.0, "")
    first = _chances(key, now, u[None])
    total, worst = float(first.total[0]), [*system.limits][int(np.argmax(first.each[0]))]
    if total <= risk:
        return Checked(u, total, total, float(first.at_once[0]), worst)
    others = candidates(system, u, previous)
    found = _chances(key, now, others)
    away = np.linalg.norm((others - u) / np.subtract(system.designs.high, system.designs.low), axis=1)
    safe = found.total <= risk
    order = np.where(safe, away, np.inf) if safe.any() else found.total + LITTLE * (found.beyond + LITTLE * away)
    best = int(np.argmin(order))
    return Checked(others[best], total, float(found.total[best]), float(found.at_once[best]), worst)


def within(system: BaseSystem, u: Any, previous: Any) -> Float[np.ndarray, "*C du"]:
    """Return the design nearest to u that box and slew allow."""
    return np.asarray(system.designs.clip(limits.slewed(system, jnp.asarray(u), jnp.asarray(previous))))


def candidates(system: BaseSystem, u: Any, previous: Any) -> Float[np.ndarray, "C du"]:
    """Return designs to choose from: on the ways from the wanted one to rest, to that before and to the box's ends."""
    shares = np.linspace(0.0, 1.0, ALONG + 1)[1:, None]
    ends = (np.array(system.rest_design), np.asarray(previous), *_ends(system))
    return within(system, np.concatenate([u + shares * (end - u) for end in ends]), previous)


def _ends(system: BaseSystem) -> list[Float[np.ndarray, " du"]]:
    low, high = np.array(system.designs.low), np.array(system.designs.high)
    if len(low) > CORNERS:
        return [low, high]
    return [np.where(side, high, low) for side in itertools.product((False, True), repeat=len(low))]


def _ways(system: BaseSystem) -> Float[np.ndarray, "W ahead du"]:
    """Return ways to go on after a design: rest, or an end of the box for some steps and then rest."""
    rest = np.array(system.rest_design)
    steps = np.arange(AHEAD)[:, None]
    turning = [np.where(steps < turn, end, rest) for end in _ends(system) for turn in TURNS]
    return np.stack([np.broadcast_to(rest, (AHEAD, len(rest))), *turning])


class Chances(NamedTuple):
    """Of each design, on the best of the ways to go on from it."""

    each: Float[Array, "C limits"]  # probability that a limit is broken
    total: Float[Array, " C"]  # that any is
    at_once: Float[Array, " C"]  # that any is within the first experiment
    beyond: Float[Array, " C"]  # how far and how long limits are exceeded, in units of their scale


def _chances(key: jax.Array, now: Following, designs: Float[np.ndarray, "C du"]) -> Chances:
    ways = jnp.asarray(_ways(now.belief.system))
    return jax.tree.map(np.asarray, _broken(key, now.belief, now.learner.belief, jnp.asarray(designs), ways))


@eqx.filter_jit
def _broken(
    key: jax.Array, belief: Belief, state: Any, designs: Float[Array, "C du"], ways: Float[Array, "W ahead du"]
) -> Chances:
    """Return how likely limits are broken after each design, on the best of the ways to go on."""
    likelihood, system = belief.likelihood, belief.system
    shape = (DRAWS, state.log_weights.shape[1])
    weights = (jnp.exp(state.log_weights) / DRAWS * jnp.ones(shape)).ravel()
    first, later = jax.random.split(key)
    truth = likelihood.imagine(tuple(noise.normals(first, (len(system.state), *shape))), state.carry)
    truth = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape), truth)
    normals = noise.normals(later, (1 + AHEAD, likelihood.normals, *shape))

    def of(u: Float[Array, " du"]) -> Chances:
        found = jax.lax.map(lambda way: along(jnp.concatenate([u[None], way])), ways)
        best = jnp.argmin(found.total + LITTLE * found.beyond)
        return jax.tree.map(lambda leaf: leaf[best], found)

    def along(inputs: Float[Array, "steps du"]) -> Chances:
        playable = system.designs.clip(limits.playable(system, inputs, inputs[0]))
        _, over = jax.lax.scan(experiment, truth, (playable, normals))  # steps, limits, rigs
        over = jnp.clip(over.reshape(*over.shape[:2], -1), -FARTHEST, FARTHEST)
        most, soon = jnp.max(over, axis=0), jnp.max(over[0], axis=0)
        beyond = jnp.sum(weights * jnp.sum(jnp.maximum(over, 0.0), axis=(0, 1)))
        each = tails.above_zero(weights, most)
        total = jnp.maximum(jnp.max(each), tails.above_zero(weights, jnp.max(most, axis=0)))
        return Chances(each, total, tails.above_zero(weights, soon), beyond)

    def experiment(before: Any, now: Any) -> Any:
        u, e = now
        design = tuple(jnp.full(shape, value) for value in u)
        after, _ = likelihood.experiment(tuple(e), before, design, state.theta)
        after = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape), after)
        ends = (likelihood.states(before), likelihood.states(after))
        return after, jnp.stack([_over(system, name, ends, design) for name in system.limits])

    return jax.lax.map(of, designs)


def _over(system: BaseSystem, name: str, ends: Any, u: Any) -> Float[Array, "..."]:
    """Return by how much a limit is exceeded within a step, in units of its scale; below 0 where it is kept.

    What a design does at once counts too, but not a state that was there before it.
    """
    low, high = limits.bounds(system, name)
    values = [limits.value(system, name, x, u) for x in (ends[1:] if name in system.state else ends)]
    over = [jnp.maximum(value - high, low - value) for value in values]
    most = jnp.maximum(over[0], over[-1]) / limits.scale(system, name)
    return jnp.where(jnp.isnan(most), jnp.inf, most)


FARTHEST = 2.0
"""Scales of a limit from it beyond which it does not matter how far a rig is."""
LITTLE = 1e-3
"""Probability that being beyond limits by their scale counts as much as: it tells apart what breaks them anyway."""
