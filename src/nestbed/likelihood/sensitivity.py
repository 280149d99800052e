"""How the density of whole histories changes with the parameters: its value, score and Fisher information."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

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
    return Local(log_density, -0.5 * jnp.stack(dropped, axis=-1), _symmetric(information, len(theta)))


class _Terms(NamedTuple):
    """What steps contribute, per element."""

    deviance: Any
    deviance_slopes: list[Any]  # along each coordinate
    information: dict[tuple[int, int], Any]  # lower triangle


def _of_all_steps(
    likelihood: Likelihood, record: Record, count: Int[Array, ""], theta: Components, slopes: Components
) -> _Terms:
    """Take all steps side by side, (C, T): each starts from what was seen."""
    seen = tuple(jnp.moveaxis(record.observations, -1, 0))
    carry = likelihood.start(tuple(y[:, :-1] for y in seen), theta)
    u, y = tuple(jnp.moveaxis(record.designs, -1, 0)), tuple(y[:, 1:] for y in seen)
    terms, _ = _terms(likelihood, carry, None, u, y, theta, slopes)
    filled = jnp.arange(record.designs.shape[1]) < count
    return jax.tree.map(lambda term: jnp.sum(jnp.where(filled, term, 0.0), axis=1), terms)


def _of_step_by_step(
    likelihood: Likelihood, record: Record, count: Int[Array, ""], theta: Components, slopes: Components
) -> _Terms:
    """Carry the past, and how it changes with the parameters, from step to step."""
    rows, size = record.designs.shape[0], len(theta)

    def start(direction: int) -> Any:
        return jax.jvp(
            lambda value: likelihood.start(components(record.observations[:, 0]), _with(theta, direction, value)),
            (theta[direction],),
            (slopes[direction],),
        )

    begun = [start(j) for j in range(size)]
    nothing = jnp.zeros((rows, 1))
    zero = _Terms(nothing, [nothing] * size, {(i, j): nothing for i in range(size) for j in range(i + 1)})

    def step(t: Int[Array, ""], so_far: Any) -> Any:
        carry, tangents, total = so_far
        u, y = components(record.designs[:, t]), components(record.observations[:, t + 1])
        terms, (carry, tangents) = _terms(likelihood, carry, tangents, u, y, theta, slopes)
        return carry, tangents, jax.tree.map(lambda sum, term: sum + term, total, terms)

    first = begun[0][0], [tangent for _, tangent in begun], zero
    _, _, total = jax.lax.fori_loop(0, count, step, first)
    return jax.tree.map(lambda term: term[:, 0], total)


def _terms(
    likelihood: Likelihood,
    carry: Carry,
    tangents: list[Carry] | None,
    u: Components,
    y: Components,
    theta: Components,
    slopes: Components,
) -> tuple[_Terms, Any]:
    """Return what one step (or many side by side) contributes, and the next carry with its tangents."""
    constant = likelihood.constant_noise

    def step(carry: Carry, theta: Components) -> Any:
        mean, variance = likelihood.predict(carry, u, theta)
        carry_next, deviance = likelihood.deviance(carry, u, y, theta)
        shape = jnp.shape(deviance)
        spread = () if constant else tuple(jnp.broadcast_to(v, shape) for v in variance)
        return carry_next, deviance, tuple(jnp.broadcast_to(m, shape) for m in mean), spread

    _, variance = likelihood.predict(carry, u, theta)
    slopes_of: list[Any] = []
    for j in range(len(theta)):
        if tangents is None:  # what was seen does not change with the parameters
            primal, tangent = jax.jvp(lambda value: step(carry, _with(theta, j, value)), (theta[j],), (slopes[j],))  # noqa: B023
        else:
            primal, tangent = jax.jvp(
                lambda carry, value: step(carry, _with(theta, j, value)),  # noqa: B023
                (carry, theta[j]),
                (tangents[j], slopes[j]),
            )
        slopes_of.append(tangent)
    information = {}
    for i in range(len(theta)):
        for j in range(i + 1):
            (_, _, means_i, spreads_i), (_, _, means_j, spreads_j) = slopes_of[i], slopes_of[j]
            term = sum(a * b / v for a, b, v in zip(means_i, means_j, variance, strict=True))
            if not constant:
                term += sum(0.5 * a * b / v**2 for a, b, v in zip(spreads_i, spreads_j, variance, strict=True))
            information[i, j] = term
    terms = _Terms(primal[1], [tangent[1] for tangent in slopes_of], information)
    return terms, (primal[0], [tangent[0] for tangent in slopes_of])


def _with(theta: Components, index: int, value: jax.Array) -> Components:
    return (*theta[:index], value, *theta[index + 1 :])


def _symmetric(lower: dict[tuple[int, int], Float[Array, " C"]], size: int) -> Float[Array, "C d d"]:
    rows = [[lower[max(i, j), min(i, j)] for j in range(size)] for i in range(size)]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
