"""How the density of whole histories changes with the parameters: its value, score and Fisher information."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.likelihood.base import Carry, Likelihood, Record, components
from nestbed.model.prior import Components


class Past(NamedTuple):
    """What went before, for one parameter vector per record: a carry, and its slopes along each coordinate."""

    carry: Carry
    tangents: Carry


class Local(NamedTuple):
    """A log-density around one parameter vector per record, in d coordinates w."""

    log_density: Float[Array, " C"]
    score: Float[Array, "C d"]  # its gradient
    information: Float[Array, "C d d"]  # expected curvature of its negative: symmetric, not negative


def of_histories(
    likelihood: Likelihood,
    record: Record,
    count: Int[Array, ""],
    theta: Components,
    slopes: Components,
    *,
    past: Past | None = None,
    reversible: bool = False,
) -> Local:
    """Return log p(y[1..count] | θ) around each record's θ, one (C, 1) array per parameter; slopes are dθ/dw.

    Records may go on from a `past` other than their first observation, where the likelihood has a carry of its own.
    Where it is `reversible`, gradients can go back through it, and all steps are taken whatever the count.

    For Gaussian observations the information of a step is Σ ∂μ ∂μᵀ / v + ½ ∂log v ∂log vᵀ, summed over components;
    where those of one step are dependent, that is an approximation.
    """
    likelihood = likelihood.smooth
    if likelihood.markov:
        deviance, dropped, information = _of_all_steps(likelihood, record, count, theta, slopes)
    else:
        begun = _begun(likelihood, record, theta, slopes) if past is None else past
        _, terms = _of_step_by_step(likelihood, record, count, theta, slopes, begun, reversible)
        deviance, dropped, information = terms
    log_density = -0.5 * (deviance + count * likelihood.log_normaliser)
    return Local(log_density, -0.5 * dropped.T, information)


def past(likelihood: Likelihood, record: Record, count: Int[Array, ""], theta: Components, slopes: Components) -> Past:
    """Return what the first `count` experiments of records leave behind."""
    likelihood = likelihood.smooth
    begun = _begun(likelihood, record, theta, slopes)
    return _of_step_by_step(likelihood, record, count, theta, slopes, begun, reversible=False)[0]


def _begun(likelihood: Likelihood, record: Record, theta: Components, slopes: Components) -> Past:
    """Return what the first observations leave behind."""
    first = components(record.observations[:, 0])
    carry, push = jax.linearize(lambda theta: likelihood.start(first, theta), theta)
    return Past(carry, jax.vmap(push)(_directions(slopes)))


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
    return _terms(likelihood, carry, u, y, theta, slopes, filled)


def _of_step_by_step(
    likelihood: Likelihood,
    record: Record,
    count: Int[Array, ""],
    theta: Components,
    slopes: Components,
    begun: Past,
    reversible: bool,
) -> tuple[Past, _Terms]:
    """Carry the past, and how it changes with the parameters, from step to step."""
    rows, size = record.designs.shape[0], len(theta)
    zero = _Terms(jnp.zeros(rows), jnp.zeros((size, rows)), jnp.zeros((rows, size, size)))

    def step(so_far: Any, t: Any) -> Any:
        past, total = so_far
        u, y = components(record.designs[:, t]), components(record.observations[:, t + 1])
        terms, past = _innovation_terms(likelihood, past, u, y, theta, slopes)
        return past, jax.tree.map(lambda sum, term: sum + term, total, terms)

    def counted(so_far: Any, t: Int[Array, ""]) -> Any:
        after = step(so_far, t)
        return jax.tree.map(lambda new, old: jnp.where(t < count, new, old), after, so_far), None

    if reversible:
        return jax.lax.scan(jax.checkpoint(counted), (begun, zero), jnp.arange(record.designs.shape[1]))[0]
    return jax.lax.fori_loop(0, count, lambda t, so_far: step(so_far, t), (begun, zero))


def _innovation_terms(
    likelihood: Likelihood, past: Past, u: Components, y: Components, theta: Components, slopes: Components
) -> tuple[_Terms, Past]:
    """Return what one observation contributes, and what is the past from then on.

    With the observation held, decorrelated residuals change with the parameters by what the mean does, and by what the
    coupling does to what was seen, which on average is the part of the information that is in the coupling.
    """

    def step(carry: Carry, theta: Components) -> Any:
        carry_next, deviance, residuals, variances = likelihood.innovations(carry, u, y, theta)
        shape = jnp.shape(deviance)
        full = [tuple(jnp.broadcast_to(value, shape) for value in part) for part in (residuals, variances)]
        return carry_next, deviance, *full

    (carry_next, deviance, _, variances), push = jax.linearize(step, past.carry, theta)
    carry_slopes, deviance_slopes, means, spreads = jax.vmap(push)(past.tangents, _directions(slopes))
    scaled = [slope / jnp.sqrt(v) for slope, v in zip(means, variances, strict=True)]
    scaled += [math.sqrt(0.5) * slope / v for slope, v in zip(spreads, variances, strict=True)]
    information = sum(slope[:, None, :, 0] * slope[None, :, :, 0] for slope in scaled)
    terms = _Terms(deviance[:, 0], deviance_slopes[..., 0], jnp.moveaxis(jnp.asarray(information), -1, 0))
    return terms, Past(carry_next, carry_slopes)


def _directions(slopes: Components) -> Components:
    """Return each coordinate's change of the parameters: one array per parameter, coordinates leading."""
    unit = jnp.eye(len(slopes))
    return tuple(unit[:, j, None, None] * slope for j, slope in enumerate(slopes))


def _terms(
    likelihood: Likelihood,
    carry: Carry,
    u: Components,
    y: Components,
    theta: Components,
    slopes: Components,
    filled: Bool[Array, " T"],
) -> _Terms:
    """Return what many steps side by side contribute; what was seen does not change with the parameters."""
    constant = likelihood.constant_noise

    def step(theta: Components) -> Any:
        mean, variance = likelihood.predict(carry, u, theta)
        _, deviance = likelihood.deviance(carry, u, y, theta)
        shape = jnp.shape(deviance)
        if not constant:
            _, variance = likelihood.decorrelated(carry, u, theta, mean)
        spread = () if constant else tuple(jnp.broadcast_to(v, shape) for v in variance)
        return deviance, tuple(jnp.broadcast_to(m, shape) for m in mean), spread

    primal, push = jax.linearize(step, theta)
    rest = jax.vmap(push)(_directions(slopes))
    deviance_slopes, means, spreads = jax.tree.map(lambda slope: jnp.where(filled, slope, 0.0), rest)
    means, variance = likelihood.decorrelated(carry, u, theta, tuple(means))
    scaled = [slope / jnp.sqrt(v) for slope, v in zip(means, variance, strict=True)]
    if not constant:
        scaled += [math.sqrt(0.5) * slope / v for slope, v in zip(spreads, variance, strict=True)]
    information = sum(jnp.einsum("ict,jct->cij", slope, slope) for slope in scaled)
    deviance = jnp.sum(jnp.where(filled, primal[0], 0.0), axis=-1)
    return _Terms(deviance, jnp.sum(deviance_slopes, axis=-1), information)
