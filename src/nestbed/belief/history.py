"""The log-likelihood of whole histories for every particle: the hot loop of every rejuvenation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestbed.prior import Components
from nestbed.system import BaseSystem

UNROLL = 8
"""Time steps per turn of the loop: fewer turns, and the particles stay in registers for longer."""

Table = Float[Array, "blocks unroll width C"]
"""Histories cut into blocks of `UNROLL` steps; a step's (state, design, next state) stand one after another."""


def tabulate(states: Float[Array, "C T1 dx"], designs: Float[Array, "C T du"]) -> Table:
    """Lay histories out time first and trajectories last, padded to whole blocks."""
    steps = jnp.concatenate([states[:, :-1], designs, states[:, 1:]], axis=-1)
    blocks = -(-steps.shape[1] // UNROLL)
    padded = jnp.pad(steps, ((0, 0), (0, blocks * UNROLL - steps.shape[1]), (0, 0)))
    return jnp.moveaxis(padded, 0, -1).reshape(blocks, UNROLL, steps.shape[2], steps.shape[0])


def log_likelihood(system: BaseSystem, table: Table, count: Int[Array, ""], theta: Components) -> Float[Array, "C M"]:
    """Return Σ log f over the first `count` steps, for trajectories (C) and their particles (C or 1, M)."""
    dx, du = len(system.state), len(system.designs.names)

    def block(i: Int[Array, ""], total: Float[Array, "C M"]) -> Float[Array, "C M"]:
        rows = table[i][..., None]
        for j in range(UNROLL):
            x, u, following = (tuple(part) for part in jnp.split(rows[j], (dx, dx + du)))
            deviance = system.deviance(x, u, theta, following)
            total += jnp.where(i * UNROLL + j < count, deviance, 0.0)  # rows past `count` are not filled yet
        return total

    blocks = (count + UNROLL - 1) // UNROLL
    deviances = jax.lax.fori_loop(0, blocks, block, jnp.zeros((table.shape[-1], theta[0].shape[-1])))
    return -0.5 * (deviances + count * system.log_volume)
