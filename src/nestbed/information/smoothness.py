"""Whether the gain of inputs has slopes that gradients through a simulator find: with contacts it may not."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.information import effort, objective
from nestbed.likelihood.simulation import play
from nestbed.model import predictive
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import noise

PLACES, POINTS = 512, 64
"""Ways between places where the prior predictive leads, and points on each."""
JUMP, SOME = 0.05, 0.02
"""Share of its whole range that a drift changes by without a slope where it jumps, and share of the ways that tell."""
SHAKEN, SHRUNK = 0.1, 0.8
"""Standard deviation that inputs are shaken by, in the unit box, once shrunk so that limits do not matter."""
PAIRS, FEWEST, TOGETHER = 2048, 256, 32
"""Antithetic pairs of shaken inputs, at least where they are much work, and how many are tried at once."""
ENOUGH = 5e5
"""Operations of one record's gain above which fewer pairs are tried."""
SURE, OFF = 5.0, 0.3
"""Standard errors, and share of the slope, by which both ways must differ to be called different."""


def smooth(key: jax.Array, system: BaseSystem, unit: Float[Array, "T du"], target: Target | None) -> bool:
    """Return whether slopes through the simulator are those of the gain: nothing jumps, or it does no harm."""
    return not jumps(system) or slopes_agree(key, system, unit, target)


def jumps(system: BaseSystem) -> bool:
    """Return whether drift or diffusion, or how they change with the parameters, jump between places rigs get to."""
    seen = predictive.visited(system)
    size = seen.x[0].shape[0]
    one, other = np.random.default_rng(0).permutation(size)[: 2 * min(PLACES, size // 2)].reshape(2, -1)
    ends = [tuple(value[rows] for value in (*seen.x, *seen.u)) for rows in (one, other)]
    theta = tuple(value[one] for value in seen.theta)
    whole, followed = (np.asarray(part) for part in _ways(system, ends[0], ends[1], theta))
    finite = np.isfinite(whole) & np.isfinite(followed)
    span = np.nanquantile(np.abs(np.where(finite, whole, np.nan)), 0.9, axis=1, keepdims=True)
    missed = finite & (np.abs(whole - followed) > JUMP * span) & (span > 0.0)
    return bool(missed.mean(axis=1).max() > SOME)


@eqx.filter_jit
def _ways(system: BaseSystem, start: Any, end: Any, theta: Any) -> Any:
    """Return how far drift, diffusion and their slopes by the parameters go on ways, and what slopes make of it."""
    count = len(system.state)

    def outputs(place: Any) -> Any:
        def rates(theta: Any) -> Any:
            x, u = place[:count], place[count:]
            found = tuple(system.rates(x, u, theta))
            if callable(system.diffusion):
                found += tuple(jnp.sqrt(v) for v in system.variance(x, u, theta))
                found += tuple(jax.tree.leaves(system.shared_variance(x, u, theta)))
            return jnp.stack([jnp.broadcast_to(rate, place[0].shape) for rate in found])

        rows = [rates(theta)]
        for i in range(len(theta)):
            along = tuple(jnp.where(i == j, jnp.ones_like(value), 0.0) for j, value in enumerate(theta))
            rows.append(jax.jvp(rates, (theta,), (along,))[1])
        return jnp.concatenate(rows)

    way = tuple(jnp.asarray(b - a) for a, b in zip(start, end, strict=True))

    def slope(share: Any) -> Any:
        place = tuple(a + share * step for a, step in zip(start, way, strict=True))
        return jax.jvp(outputs, (place,), (way,))[1]

    middles = (jnp.arange(POINTS) + 0.5) / POINTS
    followed = jnp.mean(jax.lax.map(slope, middles), axis=0)
    first, last = (outputs(tuple(jnp.asarray(value) for value in place)) for place in (start, end))
    return last - first, followed


def slopes_agree(key: jax.Array, system: BaseSystem, unit: Float[Array, "T du"], target: Target | None) -> bool:
    """Return whether the gain of shaken inputs has one slope, found in two ways.

    By the gradients of shaken inputs, and by how gains go with the shaking itself, which needs none; along two
    directions: where gradients lead, and where gains do. Each direction is found from one half of the pairs and judged
    by the other.
    """
    work = effort.operations(system, unit.shape[0])
    pairs = max(FEWEST, min(PAIRS, round(PAIRS * ENOUGH / work) // TOGETHER * TOGETHER))
    keys = jax.random.split(key, pairs // TOGETHER)
    gradients, changes = (np.asarray(part) for part in _slopes(keys, system, jnp.asarray(unit), target))
    half = pairs // 2
    for values in (gradients, changes):
        direction = np.nanmean(values[:half], axis=0)
        length = np.linalg.norm(direction)
        if not length > 0.0:
            continue
        both = [rows[half:] @ (direction / length) for rows in (gradients, changes)]
        apart = both[0] - both[1]
        apart = apart[np.isfinite(apart)]
        if not len(apart):
            return False
        error = apart.std() / np.sqrt(len(apart))
        size = max(abs(np.nanmean(rows)) for rows in both)
        if abs(apart.mean()) > max(SURE * error, OFF * size):
            return False
    return True


@eqx.filter_jit
def _slopes(keys: jax.Array, system: BaseSystem, unit: Float[Array, "T du"], target: Target | None) -> Any:
    """Return the slope of the gain for each pair, by its gradients and by what the shaking changes: (pairs, T · du)."""
    horizon, channels = unit.shape
    known = objective.precision(system)

    def one(key: jax.Array) -> Any:
        rig_key, record_key, shake_key = jax.random.split(key, 3)
        shaking = noise.normals(shake_key, (TOGETHER, horizon, channels))
        rigs = objective.draw(rig_key, system, 0, TOGETHER)

        def gains(unit: Float[Array, "K T du"]) -> Float[Array, " K"]:
            record = play(record_key, system, objective.applied(system, unit), rigs.theta).record
            found = objective.information(system, rigs.w, record)
            return objective.about(found, known, objective.slopes(system, rigs.w, target))

        def end(sign: Float[Array, ""]) -> Any:
            found, back = jax.vjp(gains, jnp.clip(SHRUNK * unit + sign * SHAKEN * shaking, -1.0, 1.0))
            return found, back(jnp.ones_like(found))[0]

        values, slopes = jax.lax.map(end, jnp.array([-1.0, 1.0]))
        change = (0.5 * (values[1] - values[0]) / SHAKEN)[:, None, None] * shaking
        return tuple(part.reshape(TOGETHER, -1) for part in (jnp.mean(slopes, axis=0), change))

    return tuple(part.reshape(-1, horizon * channels) for part in jax.lax.map(one, keys))
