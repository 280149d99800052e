"""The log-likelihood of whole histories for every particle: the hot loop of every rejuvenation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestbed.likelihood.base import Carry, Likelihood, Record, components
from nestbed.model.prior import Components

UNROLL, WIDE = 8, 48
"""Time steps per turn of the loop: fewer turns, and the particles stay in registers for longer; and the numbers that a
turn reads at most, since long programs take long to compile."""


class Table(NamedTuple):
    """Histories laid out time first and records last, cut into blocks of a few steps."""

    first: Components  # observation before any design, (C, 1) for each component
    steps: Float[Array, "blocks unroll width C"]  # a step's design and the observation after it, one after another


def tabulate(record: Record) -> Table:
    """Lay histories out, padded to whole blocks."""
    steps = jnp.concatenate([record.designs, record.observations[:, 1:]], axis=-1)
    count, length, width = steps.shape
    unroll = max(1, min(UNROLL, WIDE // width))
    blocks = -(-length // unroll)
    padded = jnp.pad(steps, ((0, 0), (0, blocks * unroll - length), (0, 0)))
    return Table(
        components(record.observations[:, 0]), jnp.moveaxis(padded, 0, -1).reshape(blocks, unroll, width, count)
    )


def log_likelihood(
    likelihood: Likelihood, table: Table, count: Int[Array, ""], theta: Components
) -> tuple[Carry, Float[Array, "C M"]]:
    """Return the carry after `count` steps and Σ log p(y | past, u, θ), for records (C) and parameters (C or 1, M)."""
    du, unroll = likelihood.inputs, table.steps.shape[1]

    def block(i: Int[Array, ""], so_far: tuple[Carry, Any]) -> tuple[Carry, Any]:
        rows = table.steps[i][..., None]

        def step(j: Any, so_far: tuple[Carry, Any]) -> tuple[Carry, Any]:
            carry, total = so_far
            u, y = (tuple(part) for part in jnp.split(rows[j], (du,)))
            carry_next, deviance = likelihood.deviance(carry, u, y, theta)
            filled = i * unroll + j < count  # later rows are not filled yet
            carry = jax.tree.map(lambda new, old: jnp.where(filled, new, old), carry_next, carry)
            return carry, total + jnp.where(filled, deviance, 0.0)

        if likelihood.long_step:
            return jax.lax.fori_loop(0, unroll, step, so_far)
        for j in range(unroll):
            so_far = step(j, so_far)
        return so_far

    blocks = (count + unroll - 1) // unroll
    nothing = jnp.zeros((table.steps.shape[-1], theta[0].shape[-1]))
    carry, deviances = jax.lax.fori_loop(0, blocks, block, (likelihood.start(table.first, theta), nothing))
    return carry, -0.5 * (deviances + count * likelihood.log_normaliser)
