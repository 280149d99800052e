"""Random-walk Metropolis moves of parameter particles, in unconstrained coordinates with the exact target there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import history
from nestbed.prior import Components
from nestbed.system import BaseSystem


class Chain(NamedTuple):
    """Particles on the move: M for each of C trajectories."""

    position: Components
    log_likelihood: Float[Array, "C M"]
    accepted: Float[Array, " C"]  # mean acceptance so far, summed over moves
    faulty: Bool[Array, " C"]  # whether a proposal's likelihood was NaN
    fault_theta: Float[Array, "C dtheta"]  # the parameters of the first such proposal


def start(position: Components, log_likelihood: Float[Array, "C M"]) -> Chain:
    """Return a chain that has not moved."""
    rows = log_likelihood.shape[0]
    return Chain(
        position, log_likelihood, jnp.zeros(rows), jnp.zeros(rows, bool), jnp.zeros((rows, len(position)))
    )


def move(
    key: jax.Array, system: BaseSystem, chain: Chain, table: history.Table, count: Int[Array, ""], walk: "Walk"
) -> Chain:
    """Propose, and accept by the ratio of posterior densities after `count` experiments."""
    walk_key, accept_key = jax.random.split(key)
    prior = system.parameters
    proposal = walk.propose(walk_key, chain.position, prior.scales)
    theta = prior.constrain(proposal)
    log_likelihood = history.log_likelihood(system, table, count, theta)
    log_ratio = log_likelihood - chain.log_likelihood + prior.log_density(proposal) - prior.log_density(chain.position)
    accept = jax.random.uniform(accept_key, log_ratio.shape) < jnp.exp(log_ratio)  # False where NaN
    nan = jnp.isnan(log_likelihood)
    first = jnp.argmax(nan, axis=-1)[:, None]
    blamed = jnp.concatenate([jnp.take_along_axis(value, first, axis=1) for value in theta], axis=1)
    return Chain(
        tuple(jnp.where(accept, new, old) for new, old in zip(proposal, chain.position, strict=True)),
        jnp.where(accept, log_likelihood, chain.log_likelihood),
        chain.accepted + jnp.mean(accept, axis=-1),
        chain.faulty | jnp.any(nan, axis=-1),
        jnp.where(chain.faulty[:, None], chain.fault_theta, blamed),
    )


class Walk(NamedTuple):
    """A Gaussian random walk with the particles' own covariance."""

    scale: float  # in units of the particles' standard deviation
    floor: float  # least standard deviation along any direction, in units of the prior's

    def propose(self, key: jax.Array, position: Components, units: tuple[float, ...]) -> Components:
        """Return one proposal per particle; narrow directions are widened so that collapsed particles spread again."""
        size = len(position)
        centred = [(z - jnp.mean(z, axis=-1, keepdims=True)) / s for z, s in zip(position, units, strict=True)]
        covariance = jnp.stack([jnp.stack([jnp.mean(a * b, axis=-1) for b in centred], -1) for a in centred], -1)
        values, vectors = jnp.linalg.eigh(covariance)
        factor = vectors * jnp.sqrt(jnp.maximum(values, self.floor**2))[:, None, :]
        # float32 noise is symmetric, which is all that Metropolis asks, and three times cheaper
        noise = jax.random.normal(key, (size, *position[0].shape), jnp.float32).astype(jnp.float64)
        steps = [sum(factor[:, i, j, None] * noise[j] for j in range(size)) for i in range(size)]
        return tuple(z + self.scale * s * step for z, s, step in zip(position, units, steps, strict=True))
