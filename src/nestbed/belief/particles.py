"""Weighted parameter particles: what all beliefs that are made of them do alike."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtri
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief.base import SURPRISE, Evidence
from nestbed.likelihood.base import Carry, Likelihood, components
from nestbed.model.prior import Components, Prior
from nestbed.numerics import noise, resampling

LEAST_TAIL = -690.0
"""Log-probability below which outcomes are all as surprising: 37 standard deviations off."""
T = TypeVar("T")
Cloud = Any
"""A named tuple with the fields of `Particles`, and perhaps more."""


class Particles(NamedTuple):
    """M weighted parameter particles for each of N records, one (N, M) array per parameter."""

    position: Components  # unconstrained coordinates
    theta: Components  # the same particles as parameters
    carry: Carry  # of the likelihood: (N, M) leaves, or (N, 1) where it hangs on no parameter
    log_weights: Float[Array, "N M"]  # normalised
    log_posterior: Float[Array, "N M"]  # unnormalised, given the whole record so far
    ess: Float[Array, " N"]

    @property
    def unconstrained(self) -> tuple[Array, Array]:
        """The weighted mean and covariance of unconstrained coordinates."""
        return weighted(self.log_weights, self.position)


def evenly(prior: Prior, position: Components, carry: Carry, log_posterior: Float[Array, "C M"]) -> Particles:
    """Return particles of equal weight."""
    rows, size = log_posterior.shape
    uniform = jnp.full((rows, size), -jnp.log(float(size)))
    theta = prior.constrain(position)
    return Particles(position, theta, carry, uniform, log_posterior, jnp.full(rows, float(size)))


def sample(key: jax.Array, likelihood: Likelihood, state: Cloud, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
    """Draw a particle by its weight, then the observation it predicts."""
    uniforms = noise.uniforms(key, (u.shape[0], 1))
    chosen = resampling.categorical(uniforms, state.log_weights + likelihood.outstanding(state.carry))[:, None]
    theta, carry = take((state.theta, state.carry), chosen)
    normals = noise.normals(key, (u.shape[0], len(likelihood.system.observation_names)), lane=1)
    return jnp.concatenate(likelihood.sample(components(normals), carry, components(u), theta), axis=1)


def reweight(
    likelihood: Likelihood, state: Cloud, u: Float[Array, "N du"], y: Float[Array, "N dy"]
) -> tuple[Any, Evidence]:
    """Reweight by the outcome's density; the gain's terms follow from the weights before and after."""
    carry, log_density = likelihood.advance(state.carry, components(u), components(y), state.theta)
    log_weights = state.log_weights + log_density
    top = jnp.max(log_weights, axis=-1)
    weights = jnp.exp(log_weights - top[:, None])
    total = jnp.sum(weights, axis=-1)
    log_predictive = jnp.log(total) + top
    # α + β of log f and log predictive both less the top: neither loses digits to the size of log f
    above = jnp.sum(jnp.where(weights > 0, weights * (log_density - top[:, None]), 0.0), axis=-1)
    squares = weights * jnp.minimum(weights, 1.0)  # the minimum keeps XLA from a second, slower exponential
    updated = state._replace(
        carry=carry,
        log_weights=log_weights - log_predictive[:, None],
        log_posterior=state.log_posterior + log_density,
        ess=total**2 / jnp.sum(squares, axis=-1),
    )
    return updated, Evidence(above / total - jnp.log(total), log_predictive, math.log(log_weights.shape[1]) + SURPRISE)


def surprise(
    likelihood: Likelihood, state: Cloud, u: Float[Array, "N du"], y: Float[Array, "N dy"]
) -> Float[Array, "N dy"]:
    """Return where outcomes lie in the mixture of what particles predict, as standard normal numbers."""
    log_weights = state.log_weights + likelihood.outstanding(state.carry)
    log_weights -= jax.nn.logsumexp(log_weights, axis=-1, keepdims=True)
    means, variances = likelihood.predict(state.carry, components(u), state.theta)
    found = []
    for value, mean, variance in zip(components(y), means, variances, strict=True):
        off = (value - mean) / jnp.sqrt(variance)
        below, above = (jax.nn.logsumexp(log_weights + log_ndtr(side), axis=-1) for side in (off, -off))
        tail = ndtri(jnp.exp(jnp.maximum(jnp.minimum(below, above), LEAST_TAIL)))
        found.append(jnp.where(below < above, tail, -tail))
    return jnp.stack(found, axis=-1)


def foretold(
    likelihood: Likelihood, state: Cloud, u: Float[Array, "N du"]
) -> tuple[Float[Array, "N dy"], Float[Array, "N dy"], Float[Array, " N"]]:
    """Return the mean and the standard deviation of each component of the next outcome, over all particles.

    Also the log-density of what was seen and is counted only with that outcome.
    """
    weighted = state.log_weights + likelihood.outstanding(state.carry)
    outstanding = jax.nn.logsumexp(weighted, axis=-1)
    weights = jnp.exp(weighted - outstanding[:, None])
    found = []
    for mean, variance in zip(*likelihood.predict(state.carry, components(u), state.theta), strict=True):
        middle = jnp.sum(weights * mean, axis=-1, keepdims=True)
        spread = jnp.sum(weights * (variance + (mean - middle) ** 2), axis=-1)
        found.append((middle[:, 0], jnp.sqrt(spread)))
    means, deviations = (jnp.stack(part, axis=-1) for part in zip(*found, strict=True))
    return means, deviations, outstanding


def expected_gains(
    key: jax.Array, likelihood: Likelihood, state: Cloud, u: Float[Array, "N C du"], outcomes: int
) -> Float[Array, "N C"]:
    """Average log f(y | θ) − log Σ W f(y | θ′) over outcomes y of particles θ, drawn alike for all designs."""
    rows = u.shape[0]
    offsets = noise.uniforms(key, (rows, outcomes))
    cdf = jnp.cumsum(jnp.exp(state.log_weights), axis=-1)
    targets = (jnp.arange(outcomes) + offsets) / outcomes * cdf[:, -1:]  # one in each of as many equal shares
    chosen = jnp.sum(cdf[:, None, :] <= targets[:, :, None], axis=-1)
    chosen = jnp.minimum(chosen, state.log_weights.shape[1] - 1)
    own, own_carry = take((state.theta, state.carry), chosen)
    normals = tuple(noise.normals(key, (len(likelihood.system.observation_names), rows, outcomes), lane=1))
    others, carry = jax.tree.map(lambda leaf: leaf[:, None, :], (state.theta, state.carry))

    def of(design: Float[Array, "N du"]) -> Float[Array, " N"]:
        given = components(design)
        y = likelihood.sample(normals, own_carry, given, own)
        wide_given, wide_y = (tuple(value[..., None] for value in values) for values in (given, y))
        _, density = likelihood.advance(carry, wide_given, wide_y, others)
        _, likely = likelihood.advance(own_carry, given, y, own)
        mixture = density + state.log_weights[:, None, :]
        return jnp.mean(likely - jax.nn.logsumexp(mixture, axis=-1), axis=-1)

    return jax.lax.map(of, jnp.swapaxes(u, 0, 1)).T


def culprit(likelihood: Likelihood, state: Cloud, u: Float[Array, "N du"]) -> Float[Array, "N dtheta"]:
    """Return each record's first particle whose prediction is not finite."""
    mean, _ = likelihood.predict(state.carry, components(u), state.theta)
    finite = jnp.isfinite(sum(mean) + jnp.zeros_like(state.log_weights))
    return first_where(~finite, state.theta)


def divergence(prior: Prior, state: Cloud, log_evidence: Float[Array, " N"]) -> Float[Array, " N"]:
    """Return E[log p(z | θ)] over the particles, less the log-evidence."""
    weights = jnp.exp(state.log_weights)
    log_likelihood = state.log_posterior - prior.log_density(state.position)
    return jnp.sum(jnp.where(weights > 0.0, weights * log_likelihood, 0.0), axis=-1) - log_evidence


def moments(state: Cloud) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
    """Return the weighted mean and covariance of the parameters."""
    return weighted(state.log_weights, state.theta)


def weighted(log_weights: Float[Array, "*N M"], values: Components) -> tuple[Array, Array]:
    """Return the weighted mean and covariance of values."""
    weights, rows = jnp.exp(log_weights), jnp.stack(values, axis=-1)
    mean = jnp.einsum("...m,...mi->...i", weights, rows)
    centred = rows - mean[..., None, :]
    return mean, jnp.einsum("...m,...mi,...mj->...ij", weights, centred, centred)


def take(tree: Any, index: Int[Array, "N K"]) -> Any:
    """Return the particles of these numbers; what is the same for all particles stays as it is."""

    def take(leaf: Array) -> Array:
        places = index.reshape(index.shape + (1,) * (leaf.ndim - 2))
        return leaf if leaf.shape[1] == 1 else jnp.take_along_axis(leaf, places, axis=1)

    return jax.tree.map(take, tree)


def by_chunks(
    chosen: Bool[Array, " N"],
    chunk: int,
    work: Callable[[Int[Array, ""], Int[Array, " C"], Int[Array, ""], Any], Any],
    start: Any,
) -> Any:
    """Do some work on the chosen records, a chunk at a time; the others cost nothing.

    `work` takes the chunk's number, its rows, how many of these are active (the rest are to be left as they were) and
    what was done so far.
    """
    amount = jnp.sum(chosen, dtype=jnp.int32)
    order = jnp.argsort(~chosen, stable=True).astype(jnp.int32)  # the chosen first
    order = jnp.pad(order, (0, -chosen.shape[0] % chunk))

    def turn(i: Int[Array, ""], so_far: Any) -> Any:
        rows = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
        return work(i, rows, jnp.minimum(amount - i * chunk, chunk), so_far)

    return jax.lax.fori_loop(0, (amount + chunk - 1) // chunk, turn, start)


def write(state: T, rows: Int[Array, " C"], fresh: T, active: Int[Array, ""]) -> T:
    """Put the first `active` fresh records in their rows, a row at a time: a scatter would go by elements."""

    def put(j: Int[Array, ""], state: T) -> T:
        return jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new[j], rows[j], 0), state, fresh
        )

    return jax.lax.fori_loop(0, active, put, state)


def first_where(condition: Bool[Array, "C M"], theta: Components) -> Float[Array, "C dtheta"]:
    """Return each row's first particle for which the condition holds (particle 0 if none)."""
    first = jnp.argmax(condition, axis=-1)[:, None]
    return jnp.concatenate([jnp.take_along_axis(value, first, axis=1) for value in theta], axis=1)
