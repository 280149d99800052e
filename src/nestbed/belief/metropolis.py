"""Random-walk Metropolis moves of parameter particles, in unconstrained coordinates with the exact target there."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import particles
from nestbed.likelihood import history
from nestbed.likelihood.base import Carry, Likelihood
from nestbed.model.prior import Components
from nestbed.numerics import noise


class Chain(NamedTuple):
    """Particles on the move: M for each of C trajectories."""

    position: Components
    carry: Carry  # of the likelihood
    log_posterior: Float[Array, "C M"]  # unnormalised
    accepted: Float[Array, " C"]  # acceptance rates, summed over moves
    faulty: Bool[Array, " C"]  # whether a proposal's likelihood was NaN
    fault_theta: Float[Array, "C dtheta"]  # the parameters of such a proposal


class Walk(NamedTuple):
    """A Gaussian random walk with the particles' own covariance."""

    scale: float = 1.0  # in units of the particles' standard deviation
    floor: float = 1e-3  # least standard deviation along any direction, in units of the prior's

    def propose(self, steps: Float[Array, "d C M"], position: Components, units: tuple[float, ...]) -> Components:
        """Return one proposal per particle; narrow directions are widened so that collapsed particles spread again."""
        size = len(position)
        values, vectors = jnp.linalg.eigh(covariance(position, units))
        factor = self.scale * vectors * jnp.sqrt(jnp.maximum(values, self.floor**2))[:, None, :]
        return tuple(
            z + unit * sum(factor[:, i, j, None] * steps[j] for j in range(size))
            for i, (z, unit) in enumerate(zip(position, units, strict=True))
        )


def covariance(position: Components, units: tuple[float, ...]) -> Float[Array, "C d d"]:
    """Return the particles' covariance, each coordinate in its own unit, from one pass over them."""
    size, count = len(position), position[0].shape[1]
    pairs = [(i, j) for i in range(size) for j in range(i + 1)]
    shifted = [(z - z[:, :1]) / unit for z, unit in zip(position, units, strict=True)]
    terms = (*shifted, *(shifted[i] * shifted[j] for i, j in pairs))
    sums = jax.lax.reduce(
        terms, (0.0,) * len(terms), lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), (1,)
    )
    mean, square = [s / count for s in sums[:size]], dict(zip(pairs, sums[size:], strict=True))
    rows = [[square[max(i, j), min(i, j)] / count - mean[i] * mean[j] for j in range(size)] for i in range(size)]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def start(position: Components, carry: Carry, log_posterior: Float[Array, "C M"]) -> Chain:
    """Return a chain that has not moved."""
    rows = log_posterior.shape[0]
    nothing = jnp.zeros(rows), jnp.zeros(rows, bool), jnp.zeros((rows, len(position)))
    return Chain(position, carry, log_posterior, *nothing)


class Draws(NamedTuple):
    """The random numbers of moves, the moves on the leading axis."""

    steps: Float[Array, "moves d C M"]
    thresholds: Float[Array, "moves C M"]


def draw(key: jax.Array, lane: Any, moves: int, position: Components) -> Draws:
    """Draw all random numbers at once, from `lane` and the next one of the key.

    A step's normal numbers are of single precision: symmetric, which is all that Metropolis asks, and cheaper. The
    thresholds err by 2⁻³³ in the probability of acceptance.
    """
    size, shape = len(position), position[0].shape
    steps = noise.rough_normals(key, (moves, size, *shape), lane)
    return Draws(steps, noise.rough_uniforms(key, (moves, *shape), lane + 1))


def move(
    draws: Draws, likelihood: Likelihood, walk: Walk, chain: Chain, table: history.Table, count: Int[Array, ""]
) -> Chain:
    """Propose, and accept by the ratio of posterior densities after `count` experiments."""
    prior = likelihood.system.parameters
    proposal = walk.propose(draws.steps, chain.position, prior.scales)
    theta = prior.constrain(proposal)
    carry, log_likelihood = history.log_likelihood(likelihood, table, count, theta)
    log_posterior = prior.log_density(proposal) + log_likelihood
    chance = jnp.exp(log_posterior - chain.log_posterior)
    accept = draws.thresholds < chance  # never where NaN
    faulty = jnp.any(jnp.isnan(log_posterior), axis=-1)
    return Chain(
        tuple(jnp.where(accept, new, old) for new, old in zip(proposal, chain.position, strict=True)),
        jax.tree.map(lambda new, old: _accepted(accept, new, old), carry, chain.carry),
        jnp.where(accept, log_posterior, chain.log_posterior),
        chain.accepted + jnp.mean(accept, axis=-1),
        chain.faulty | faulty,
        jax.lax.cond(
            jnp.any(faulty), lambda: particles.first_where(jnp.isnan(log_posterior), theta), lambda: chain.fault_theta
        ),
    )


def _accepted(accept: Bool[Array, "C M"], new: Float[Array, "C K *k"], old: Float[Array, "C K *k"]) -> Any:
    """Return the carry of the moved particles; one that is the same for all particles is that of any proposal."""
    chosen = accept.reshape(accept.shape + (1,) * (new.ndim - 2))
    return jnp.where(chosen, new, old) if new.shape[:2] == accept.shape else new
