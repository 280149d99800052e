"""The log-likelihood of whole histories for every particle: the hot loop of every rejuvenation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestbed.likelihood.base import Carry, Likelihood, Record, components
from nestbed.model.prior import Components
from nestbed.numerics import elementary

UNROLL, WIDE = 8, 48
"""Time steps per turn of the loop: fewer turns, and the particles stay in registers for longer; and the numbers that a
turn reads at most, since long programs take long to compile."""
BLOCK = 512
"""Records times parameters of a small block."""


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
    taken = _in_small_blocks if likelihood.in_small_blocks else _side_by_side
    carry, deviances = taken(likelihood, table, count, theta)
    return carry, -0.5 * (deviances + count * likelihood.log_normaliser)


def _side_by_side(likelihood: Likelihood, table: Table, count: Int[Array, ""], theta: Components) -> tuple[Carry, Any]:
    """Take each step for all records and parameters, and sum deviances."""
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
    return jax.lax.fori_loop(0, blocks, block, _begun(likelihood, table.first, theta))


def _in_small_blocks(
    likelihood: Likelihood, table: Table, count: Int[Array, ""], theta: Components
) -> tuple[Carry, Any]:
    """Take all steps of some records and parameters, then of the next: what a step carries stays near the processor."""
    rows, particles = table.steps.shape[-1], theta[0].shape[-1]
    steps = table.steps.reshape(-1, *table.steps.shape[2:])
    across, columns = _even(particles, BLOCK)
    down, height = _even(rows, max(1, BLOCK // particles))
    if down * across == 1:
        return _step_by_step(likelihood, table.first, steps, count, theta)

    def place(i: Any) -> tuple[Any, Any]:
        return i // across * height, i % across * columns  # beyond the end it is moved back, and computed again

    def cut(i: Any) -> tuple[Components, Array, Components]:
        first, mine = (_part(values, place(i), (height, columns)) for values in (table.first, theta))
        return first, jax.lax.dynamic_slice_in_dim(steps, place(i)[0], height, axis=2), mine

    def block(i: Int[Array, ""], so_far: tuple[Carry, Any]) -> tuple[Carry, Any]:
        first, seen, mine = cut(i)
        found = _step_by_step(likelihood, first, seen, count, mine)
        return jax.tree.map(lambda whole, part: jax.lax.dynamic_update_slice(whole, part, place(i)), so_far, found)

    begun = jax.eval_shape(lambda: _begun(likelihood, cut(0)[0], cut(0)[2]))
    whole = jax.tree.map(lambda part: jnp.zeros((rows, particles if part.shape[1] > 1 else 1), part.dtype), begun)
    return jax.lax.fori_loop(0, down * across, block, whole)


def _step_by_step(
    likelihood: Likelihood, first: Components, steps: Array, count: Int[Array, ""], theta: Components
) -> tuple[Carry, Any]:
    """Take all steps; logarithms of variances are those of their product, of which one is taken in the end."""

    def step(t: Int[Array, ""], so_far: tuple[Carry, Any, Any]) -> tuple[Carry, Any, Any]:
        carry, total, product = so_far
        row = jax.lax.dynamic_index_in_dim(steps, t, keepdims=False)[..., None]
        u, y = (tuple(part) for part in jnp.split(row, (likelihood.inputs,)))
        carry, squares, factors = likelihood.misfit(carry, u, y, theta)
        for factor in factors:
            product, counted = elementary.multiplied(product, factor)
            squares = squares + counted
        return carry, total + squares, product

    begun, nothing = _begun(likelihood, first, theta)
    carry, total, product = jax.lax.fori_loop(0, count, step, (begun, nothing, jnp.ones_like(nothing)))
    return carry, total + jnp.log(product)


def _begun(likelihood: Likelihood, first: Components, theta: Components) -> tuple[Carry, Any]:
    """Return the carry before any step, and no deviance."""
    return likelihood.start(first, theta), jnp.zeros((first[0].shape[0], theta[0].shape[-1]))


def _even(total: int, most: int) -> tuple[int, int]:
    """Return how many parts to make of so many, all of one size, and that size."""
    parts = -(-total // most)
    return parts, -(-total // parts)


def _part(values: Components, at: tuple[Any, Any], size: tuple[int, int]) -> Components:
    """Return a block of arrays, all of an axis along which they are the same."""

    def cut(value: Array) -> Array:
        sizes = [min(length, most) for length, most in zip(value.shape, size, strict=True)]
        return jax.lax.dynamic_slice(value, at, sizes)

    return tuple(cut(value) for value in values)
