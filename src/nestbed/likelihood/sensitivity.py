"""How the density of whole histories changes with the parameters: its value, score and Fisher information."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.likelihood.base import Carry, Likelihood, Record, components
from nestbed.model.prior import Components


class Local(NamedTuple):
    """A log-density around one parameter vector per record, in d coordinates w."""

    log_density: Float[Array, " C"]
    score: Float[Array, "C d"]  # its gradient
    information: Float[Array, "C d d"]  # expected curvature of its negative: symmetric, not negative


def of_histories(
    likelihood: Likelihood, record: Record, count: Int[Array, ""], theta: Components, slopes: Components
) -> Local:
    """Return log p(y[1..count] | θ) around each record's θ, one (C, 1) array per parameter; slopes are dθ/dw.

    For Gaussian observations the information of a step is Σ ∂μ ∂μᵀ / v + ½ ∂log v ∂log vᵀ, summed over components;
    where those of one step are dependent, that is an approximation.
    """
    of_all = _of_all_steps if likelihood.markov else _of_step_by_step
    deviance, dropped, information = of_all(likelihood, record, count, theta, slopes)
    log_density = -0.5 * (deviance + count * likelihood.log_normaliser)
    return Local(log_density, -0.5 * dropped.T, information)


class _Terms(NamedTuple):
    """What steps contribute, per record."""

    deviance: Any  # (C)
    deviance_slopes: Any  # (d, C), along each coordinate
    information: Any  # (C, d, d)


def _of_all_steps(
    likelihood: Likelihood, record: Record, count: Int[Array, ""], theta: Components, slopes: Components
) -> _Terms:
    """Take all steps side by side, (C, T): each starts from what was seen."""
    seen = tuple(jnp.moveaxis(record.observations, -1, 0))
    carry = likelihood.start(tuple(y[:, :-1] for y in seen), theta)
    u, y = tuple(jnp.moveaxis(record.designs, -1, 0)), tuple(y[:, 1:] for y in seen)
    filled = jnp.arange(record.designs.shape[1]) < count
    terms, _ = _terms(likelihood, carry, None, u, y, theta, slopes, filled)
    return terms


def _of_step_by_step(
    likelihood: Likelihood, record: Record, count: Int[Array, ""], theta: Components, slopes: Components
) -> _Terms:
    """Carry the past, and how it changes with the parameters, from step to step."""
    rows, size = record.designs.shape[0], len(theta)
    first = components(record.observations[:, 0])
    carry, push = jax.linearize(lambda theta: likelihood.start(first, theta), theta)
    tangents = jax.vmap(push)(_directions(slopes))
    zero = _Terms(jnp.zeros(rows), jnp.zeros((size, rows)), jnp.zeros((rows, size, size)))

    def step(t: Int[Array, ""], so_far: Any) -> Any:
        carry, tangents, total = so_far
        u, y = components(record.designs[:, t]), components(record.observations[:, t + 1])
        terms, (carry, tangents) = _terms(likelihood, carry, tangents, u, y, theta, slopes, jnp.ones(1, bool))
        return carry, tangents, jax.tree.map(lambda sum, term: sum + term, total, terms)

    _, _, total = jax.lax.fori_loop(0, count, step, (carry, tangents, zero))
    return total


def _directions(slopes: Components) -> Components:
    """Return each coordinate's change of the parameters: one array per parameter, coordinates leading."""
    unit = jnp.eye(len(slopes))
    return tuple(unit[:, j, None, None] * slope for j, slope in enumerate(slopes))


def _terms(
    likelihood: Likelihood,
    carry: Carry,
    tangents: Carry | None,
    u: Components,
    y: Components,
    theta: Components,
    slopes: Components,
    filled: Bool[Array, " T"],
) -> tuple[_Terms, Any]:
    """Return what one step (or many side by side) contributes, and the next carry with its tangents."""
    constant = likelihood.constant_noise

    def step(carry: Carry, theta: Components) -> Any:
        mean, variance = likelihood.predict(carry, u, theta)
        carry_next, deviance = likelihood.deviance(carry, u, y, theta)
        shape = jnp.shape(deviance)
        if not constant:
            _, variance = likelihood.decorrelated(carry, u, theta, mean)
        spread = () if constant else tuple(jnp.broadcast_to(v, shape) for v in variance)
        return carry_next, deviance, tuple(jnp.broadcast_to(m, shape) for m in mean), spread

    directions = _directions(slopes)
    if tangents is None:  # what was seen does not change with the parameters
        primal, push = jax.linearize(lambda theta: step(carry, theta), theta)
        carry_slopes, *rest = jax.vmap(push)(directions)
    else:
        primal, push = jax.linearize(step, carry, theta)
        carry_slopes, *rest = jax.vmap(push)(tangents, directions)
    deviance_slopes, means, spreads = jax.tree.map(lambda slope: jnp.where(filled, slope, 0.0), rest)
    means, variance = likelihood.decorrelated(carry, u, theta, tuple(means))
    scaled = [slope / jnp.sqrt(v) for slope, v in zip(means, variance, strict=True)]
    if not constant:
        scaled += [math.sqrt(0.5) * slope / v for slope, v in zip(spreads, variance, strict=True)]
    information = sum(jnp.einsum("ict,jct->cij", slope, slope) for slope in scaled)
    deviance = jnp.sum(jnp.where(filled, primal[1], 0.0), axis=-1)
    return _Terms(deviance, jnp.sum(deviance_slopes, axis=-1), information), (primal[0], carry_slopes)
