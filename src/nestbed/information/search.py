"""The search: many sequences at once in the unit box, moved by gradients through the simulator and by mutations.

Each round, sequences climb the expected gain for some steps of Adam, on new rigs at every step, so that no rig is
learned by heart; all are then scored on the same other rigs, and the better ones with children of theirs go on. A child
has stretches set to a limit, turned round, shifted in time or shaken, which finds other basins, and is all there is
where a drift has no gradient.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Shaped

from nestbed.information import effort, objective
from nestbed.information.objective import Situation
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import noise

STEPS = 40
"""Steps of Adam in a round."""
RIGS, LIMITED, JUDGES = 4, 16, 64
"""Rigs that a step climbs on, and where there are limits, and those that a round's sequences are scored on."""
TOGETHER = 16
"""Sequences that one program moves at a time."""
ENOUGH = 8e6
"""Operations of one sequence on a step's rigs above which less is done of all."""
LEAST_STEPS, LEAST_JUDGES = 4, 16
"""Steps of a round and rigs that score it, at least."""
FIRST_RATE, LAST_RATE = 0.15, 0.02
"""Length of a step in the unit box, in the first and in the last round."""
BETAS = (0.9, 0.99)


class Sequences(NamedTuple):
    """Inputs in the unit box, ±1, and what they were scored with."""

    unit: Shaped[Any, "K T du"]
    score: Shaped[Any, " K"]


class Walk(NamedTuple):
    """Where steps of Adam have led, and what was met on the way."""

    unit: Float[Array, "K T du"]
    score: Float[Array, " K"]  # gain less fine, on average over the steps
    information: Float[Array, "C d d"]  # of each sequence and rig, at the last step


def walk(
    key: jax.Array,
    system: BaseSystem,
    unit: Shaped[Any, "K T du"],
    target: Target | None,
    *,
    rate: float = 0.0,
    steps: int = 1,
    margin: float = 0.0,
    situation: Situation | None = None,
) -> Walk:
    """Take steps of Adam uphill, each on new rigs, the same for all sequences; with rate 0 they are only scored.

    It is the one program of a search, since compiling takes longer than running it.
    """
    numbers = jnp.array(rate, float), jnp.array(steps, int), jnp.array(margin, float)
    return _walk(key, system, jnp.array(unit, float), target, *numbers, situation)


def steps_uphill(
    key: jax.Array,
    system: BaseSystem,
    unit: Float[Array, "K T du"],
    target: Target | None,
    rate: Float[Array, ""],
    steps: Int[Array, ""],
    margin: Float[Array, ""],
    situation: Situation | None,
) -> Walk:
    """Do the same within a program."""
    size = rigs_per_step(system)

    def value(unit: Any, rigs: objective.Rigs) -> Any:
        gains, fine, information = objective.worth(system, rigs, unit, target, margin, situation)
        finite = jnp.isfinite(gains)
        told = jnp.where(finite.all(axis=1), jnp.mean(gains, axis=1) - fine, -jnp.inf)
        climbed = jnp.mean(jnp.where(finite, gains, 0.0), axis=1) - jnp.where(jnp.isfinite(fine), fine, 0.0)
        return jnp.sum(climbed), (told, information)

    adam = optax.scale_by_adam(*BETAS, eps=1e-9)

    def step(i: Int[Array, ""], so_far: Any) -> Any:
        unit, state, total, _ = so_far
        rigs = objective.draw(jax.random.fold_in(key, i), system, unit.shape[1], size, situation)
        gradient, (told, information) = jax.grad(value, has_aux=True)(unit, rigs)
        move, state = adam.update(jnp.where(jnp.isfinite(gradient), gradient, 0.0), state)
        return jnp.clip(unit + rate * move, -1.0, 1.0), state, total + told, information

    count, parameters = unit.shape[0], len(system.parameter_names)
    start = unit, adam.init(unit), jnp.zeros(count), jnp.zeros((count * size, parameters, parameters))
    unit, _, total, information = jax.lax.fori_loop(0, steps, step, start)
    return Walk(unit, total / steps, information)


_walk = eqx.filter_jit(steps_uphill)


def rigs_per_step(system: BaseSystem) -> int:
    """Return how many rigs a step is taken on: where there are limits, their spread must be seen too."""
    return LIMITED if system.limits else RIGS


def afforded(system: BaseSystem, horizon: int, usual: int, least: int) -> int:
    """Return how much of something is done: as usual, or less where it is much work, counted and not timed.

    Less by a root, since a round that takes fewer steps is one of fewer rounds: all of them take as long as before.
    """
    work = rigs_per_step(system) * effort.operations(system, horizon)
    return max(least, min(usual, round(usual * math.sqrt(ENOUGH / work))))


def climb(
    key: jax.Array,
    judge_key: jax.Array,
    system: BaseSystem,
    unit: Shaped[Any, "K T du"],
    target: Target | None,
    rate: float,
    margin: float,
    situation: Situation | None = None,
) -> Sequences:
    """Move sequences uphill, and score where they come to, and where they were: the better of both is returned."""
    settings: Any = {"margin": margin, "situation": situation}
    horizon = np.shape(unit)[1]
    steps, rigs = (afforded(system, horizon, *each) for each in ((STEPS, LEAST_STEPS), (JUDGES, LEAST_JUDGES)))
    climbed = np.asarray(walk(key, system, unit, target, rate=rate, steps=steps, **settings).unit)
    before, after = (score(judge_key, system, rows, target, rigs, **settings) for rows in (unit, climbed))
    better = after > before
    return Sequences(np.where(better[:, None, None], climbed, unit), np.where(better, after, before))


def evolve(
    key: jax.Array,
    system: BaseSystem,
    sequences: Shaped[Any, "K T du"],
    target: Target | None,
    rounds: int,
    margin: float,
    situation: Situation | None = None,
) -> Float[np.ndarray, "K T du"]:
    """Return sequences, the best first, after rounds of which the better half goes on with a child each."""
    for turn in range(rounds):
        climb_key, judge_key, child_key = jax.random.split(jax.random.fold_in(key, turn), 3)
        rate = FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (turn / max(1, rounds - 1))
        climbed = climb(climb_key, judge_key, system, sequences, target, rate, margin, situation)
        elite = climbed.unit[np.argsort(-climbed.score, kind="stable")[: len(sequences) // 2]]
        sequences = np.concatenate([elite, np.asarray(mutate(child_key, jnp.asarray(elite)))])
    return np.asarray(sequences)


def score(
    key: jax.Array,
    system: BaseSystem,
    unit: Shaped[Any, "K T du"],
    target: Target | None,
    rigs: int,
    margin: float,
    situation: Situation | None = None,
) -> Float[np.ndarray, " K"]:
    """Return the expected gain of sequences on common rigs, less their fine; −∞ where it is not finite."""
    rows = np.asarray(unit)
    padded = np.resize(rows, (-(-len(rows) // TOGETHER) * TOGETHER, *rows.shape[1:]))
    steps = max(1, rigs // rigs_per_step(system))

    def some(part: np.ndarray) -> Any:
        return walk(key, system, part, target, steps=steps, margin=margin, situation=situation).score

    return np.concatenate([some(part) for part in np.split(padded, len(padded) // TOGETHER)])[: len(rows)]


def information(
    key: jax.Array, system: BaseSystem, unit: Shaped[Any, "K T du"], target: Target | None, rigs: int
) -> Float[np.ndarray, "K R d d"]:
    """Return what sequences tell about all parameters, on each of at least so many rigs, the same for all."""
    rows, size = np.asarray(unit), rigs_per_step(system)
    padded = np.resize(rows, (-(-len(rows) // TOGETHER) * TOGETHER, *rows.shape[1:]))

    def some(part: np.ndarray, i: int) -> np.ndarray:
        found = walk(jax.random.fold_in(key, i), system, part, target).information
        return np.asarray(found).reshape(TOGETHER, size, *found.shape[1:])

    parts = np.split(padded, len(padded) // TOGETHER)
    calls = range(-(-rigs // size))
    return np.concatenate([np.concatenate([some(part, i) for i in calls], axis=1) for part in parts])[: len(rows)]


@eqx.filter_jit
def mutate(key: jax.Array, unit: Float[Array, "K T du"], left: Int[Array, ""] | None = None) -> Float[Array, "K T du"]:
    """Return a child of each sequence; where only some steps are left, it differs in those."""
    count, rows, channels = unit.shape
    length = rows if left is None else jnp.clip(left, 1, rows)
    numbers = noise.uniforms(key, (8, count, 1, channels))
    time = jnp.arange(rows)[:, None]
    begin = jnp.floor(numbers[0] * length)
    width = jnp.floor(length ** numbers[1])
    inside = (time >= begin) & (time < begin + width)
    limit = jnp.where(numbers[2] < 0.5, -1.0, 1.0)
    shift = jnp.floor((2.0 * numbers[3, :, 0, 0] - 1.0) * 0.3 * length).astype(jnp.int32)
    shifted = jax.vmap(lambda parent, by: parent[(jnp.arange(rows) - by) % length])(unit, shift)
    shaken = unit + 0.7 * numbers[4] * noise.normals(key, unit.shape, 1)
    stretched = jax.vmap(lambda parent, by: parent[jnp.clip((jnp.arange(rows) * by).astype(jnp.int32), 0, length - 1)])(
        unit, 0.6 + 0.8 * numbers[5, :, 0, 0]
    )
    set_to, turned = jnp.where(inside, limit, unit), jnp.where(inside, -unit, unit)
    kind = numbers[6, :, :, :1]
    child = jnp.select(
        [kind < 0.35, kind < 0.6, kind < 0.75, kind < 0.85], [set_to, turned, shifted, stretched], shaken
    )
    return jnp.clip(child, -1.0, 1.0)
