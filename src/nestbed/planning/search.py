"""The search: many sequences at once in the unit box, moved by gradients through the simulator and by mutations.

Each round, sequences climb the expected gain for some steps of Adam, on new rigs at every step, so that no rig is
learned by heart; all are then scored on the same other rigs, and the better ones with children of theirs go on. A child
has stretches set to a limit, turned round, shifted in time or shaken, which finds other basins, and is all there is
where a drift has no gradient.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.planning import objective

STEPS = 40
"""Steps of Adam in a round."""
RIGS, JUDGES = 8, 64
"""Rigs that a step climbs on, and those that a round's sequences are scored on."""
FIRST_RATE, LAST_RATE = 0.15, 0.02
"""Length of a step in the unit box, in the first and in the last round."""
BETAS = (0.9, 0.99)


class Sequences(NamedTuple):
    """Inputs in the unit box, ±1, and what they were scored with."""

    unit: Shaped[Any, "K T du"]
    score: Shaped[Any, " K"]


@eqx.filter_jit
def climb(
    key: jax.Array,
    judge_key: jax.Array,
    system: BaseSystem,
    unit: Float[Array, "K T du"],
    target: tuple[bool, ...],
    rate: Float[Array, ""],
) -> Sequences:
    """Move sequences uphill, and score where they come to, and where they were: the better of both is returned."""

    def value(unit: Any, rigs: objective.Rigs) -> Any:
        return jnp.sum(_mean(objective.gains(system, rigs, system.designs.scale(unit), target)))

    adam = optax.scale_by_adam(*BETAS, eps=1e-9)

    def step(i: Int[Array, ""], so_far: Any) -> Any:
        unit, state = so_far
        rigs = objective.draw(jax.random.fold_in(key, i), system, unit.shape[1], RIGS)
        gradient = jax.grad(value)(unit, rigs)
        move, state = adam.update(jnp.where(jnp.isfinite(gradient), gradient, 0.0), state)
        return jnp.clip(unit + rate * move, -1.0, 1.0), state

    climbed, _ = jax.lax.fori_loop(0, STEPS, step, (unit, adam.init(unit)))
    both = score(judge_key, system, jnp.concatenate([unit, climbed]), target, JUDGES)
    before, after = jnp.split(both, 2)
    better = after > before
    return Sequences(jnp.where(better[:, None, None], climbed, unit), jnp.where(better, after, before))


def score(
    key: jax.Array, system: BaseSystem, unit: Float[Array, "K T du"], target: tuple[bool, ...], rigs: int
) -> Float[Array, " K"]:
    """Return the expected gain of sequences on common rigs; −∞ where one is not finite."""
    drawn = objective.draw(key, system, unit.shape[1], rigs)

    def some(unit: Float[Array, "T du"]) -> Float[Array, ""]:
        found = jnp.mean(objective.gains(system, drawn, system.designs.scale(unit)[None], target))
        return jnp.where(jnp.isfinite(found), found, -jnp.inf)

    return jax.lax.map(some, unit)


def _mean(gains: Float[Array, "K R"]) -> Float[Array, " K"]:
    return jnp.mean(jnp.where(jnp.isfinite(gains), gains, 0.0), axis=1)


@eqx.filter_jit
def mutate(key: jax.Array, unit: Float[Array, "K T du"]) -> Float[Array, "K T du"]:
    """Return a child of each sequence."""
    count, length, channels = unit.shape
    numbers = noise.uniforms(key, (8, count, 1, channels))
    time = jnp.arange(length)[:, None]
    begin = jnp.floor(numbers[0] * length)
    width = jnp.floor(length ** numbers[1])
    inside = (time >= begin) & (time < begin + width)
    limit = jnp.where(numbers[2] < 0.5, -1.0, 1.0)
    shift = jnp.floor((2.0 * numbers[3, :, 0, 0] - 1.0) * 0.3 * length).astype(jnp.int32)
    shifted = jax.vmap(lambda rows, by: rows[(jnp.arange(length) - by) % length])(unit, shift)
    shaken = unit + 0.7 * numbers[4] * noise.normals(key, unit.shape, 1)
    stretched = jax.vmap(lambda rows, by: rows[jnp.clip((jnp.arange(length) * by).astype(jnp.int32), 0, length - 1)])(
        unit, 0.6 + 0.8 * numbers[5, :, 0, 0]
    )
    set_to, turned = jnp.where(inside, limit, unit), jnp.where(inside, -unit, unit)
    kind = numbers[6, :, :, :1]
    child = jnp.select(
        [kind < 0.35, kind < 0.6, kind < 0.75, kind < 0.85], [set_to, turned, shifted, stretched], shaken
    )
    return jnp.clip(child, -1.0, 1.0)
