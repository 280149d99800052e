"""Small symmetric systems, one for each of C records, by plain arithmetic.

LAPACK's batched routines share the threads that run programs; two programs that call them at once can wait for each
other for ever. These are a few fused loops over the records instead, and faster where d is small.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def cholesky(matrices: Float[Array, "C d d"]) -> Float[Array, "C d d"]:
    """Return the lower triangular L with L Lᵀ = A; NaN where A is not positive definite."""
    size = matrices.shape[-1]
    columns: list[Float[Array, "C d"]] = []
    for j in range(size):
        left = matrices[:, :, j]
        for column in columns:
            left = left - column * column[:, j, None]
        left = jnp.where(jnp.arange(size) < j, 0.0, left)
        columns.append(left / jnp.sqrt(left[:, j, None]))
    return jnp.stack(columns, axis=-1)


def inverse(factor: Float[Array, "C d d"]) -> Float[Array, "C d d"]:
    """Return the inverse of a lower triangular matrix."""
    size = factor.shape[-1]
    rows: list[Float[Array, "C d"]] = []
    for i in range(size):
        left = jnp.broadcast_to(jnp.eye(size)[i], factor.shape[:-1])
        for k, row in enumerate(rows):
            left = left - factor[:, i, k, None] * row
        rows.append(left / factor[:, i, i, None])
    return jnp.stack(rows, axis=-2)


def solve(factor: Float[Array, "C d d"], right: Float[Array, "C d"]) -> Float[Array, "C d"]:
    """Return x with L Lᵀ x = b."""
    size = factor.shape[-1]
    for i in range(size):
        value = right[:, i] / factor[:, i, i]
        below = jnp.where(jnp.arange(size) > i, factor[:, :, i], 0.0)
        right = (right - below * value[:, None]).at[:, i].set(value)
    for i in reversed(range(size)):
        value = right[:, i] / factor[:, i, i]
        above = jnp.where(jnp.arange(size) < i, factor[:, i, :], 0.0)
        right = (right - above * value[:, None]).at[:, i].set(value)
    return right
