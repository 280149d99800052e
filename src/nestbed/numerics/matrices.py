"""Small matrices, many at once: tuples of rows whose entries broadcast, or arrays with rows and columns in front.

A product of tuples is one straight program, the fastest to run for two or three rows; one of arrays is a short program
for any number of them, which compiles in no time.
"""

from typing import Any

import jax.numpy as jnp

Matrix = Any
"""Rows of entries (tuples), or an array (d, d, …)."""


def stacked(matrix: Matrix) -> Matrix:
    """Return a matrix as an array."""
    return jnp.stack([jnp.stack(row) for row in matrix])


def product(a: Matrix, b: Matrix) -> Matrix:
    """Return a b."""
    if isinstance(a, tuple):
        columns = tuple(zip(*b, strict=True))
        return tuple(tuple(_dot(row, column) for column in columns) for row in a)
    return _sum([a[:, k, None] * b[None, k] for k in range(len(a))])


def applied(matrix: Matrix, vector: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the product with a vector, component by component."""
    if isinstance(matrix, tuple):
        return tuple(_dot(row, vector) for row in matrix)
    return tuple(_sum([matrix[:, k] * value for k, value in enumerate(vector)]))


def transposed(matrix: Matrix) -> Matrix:
    """Return the transpose."""
    return tuple(zip(*matrix, strict=True)) if isinstance(matrix, tuple) else jnp.swapaxes(matrix, 0, 1)


def plus(a: Matrix, b: Matrix) -> Matrix:
    """Return a + b."""
    if isinstance(a, tuple):
        return tuple(tuple(x + y for x, y in zip(*rows, strict=True)) for rows in zip(a, b, strict=True))
    return a + b


def scaled(matrix: Matrix, share: Any) -> Matrix:
    """Return share · matrix."""
    if isinstance(matrix, tuple):
        return tuple(tuple(share * value for value in row) for row in matrix)
    return share * matrix


def rate(matrix: Matrix) -> Any:
    """Return about the size of the largest eigenvalue, in whatever units: from what their powers sum to."""
    square = product(matrix, matrix)
    rows = range(len(square))
    two = _sum([square[i][i] for i in rows])
    four = _sum([square[i][j] * square[j][i] for i in rows for j in rows])
    return jnp.maximum(jnp.sqrt(jnp.abs(two)), jnp.sqrt(jnp.sqrt(jnp.abs(four))))


def plus_identity(matrix: Matrix, share: Any) -> Matrix:
    """Return I + share · matrix."""
    if isinstance(matrix, tuple):
        rows = enumerate(matrix)
        return tuple(tuple(share * value + float(i == j) for j, value in enumerate(row)) for i, row in rows)
    return share * matrix + _identity(matrix)


def inverse(matrix: Matrix) -> Matrix:
    """Return the inverse: by cofactors up to three rows, by elimination with pivots for arrays."""
    if not isinstance(matrix, tuple):
        return _eliminated(matrix)
    if len(matrix) == 1:
        return ((1.0 / matrix[0][0],),)
    if len(matrix) == 2:
        (a, b), (c, d) = matrix
        share = 1.0 / (a * d - b * c)
        return (d * share, -b * share), (-c * share, a * share)
    one, two, three = matrix
    columns = _cross(two, three), _cross(three, one), _cross(one, two)
    return transposed(scaled(columns, 1.0 / _dot(one, columns[0])))


def _cross(a: Any, b: Any) -> tuple[Any, ...]:
    """Return the vector product of two rows of three."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _eliminated(matrix: Matrix) -> Matrix:
    """Return the inverse of an array, by Gauss and Jordan; rows change places so that no pivot is small."""
    count = len(matrix)
    rest = jnp.concatenate([matrix, jnp.broadcast_to(_identity(matrix), matrix.shape)], axis=1)
    for k in range(count):
        sizes = jnp.abs(rest[:, k]).at[:k].set(-1.0)
        number = jnp.arange(count).reshape(count, *(1,) * (sizes.ndim - 1))
        chosen = (number == jnp.argmax(sizes, axis=0))[:, None]
        pivot = jnp.sum(jnp.where(chosen, rest, 0.0), axis=0)
        rest = jnp.where(chosen, rest[k], rest)
        pivot = pivot / pivot[k]
        rest = (rest - rest[:, k, None] * pivot).at[k].set(pivot)
    return rest[:, count:]


def diagonal(entries: Any, like: Matrix) -> Matrix:
    """Return a matrix with these entries on its diagonal, of the shape of another."""
    if isinstance(like, tuple):
        zero = jnp.zeros_like(like[0][0])
        return tuple(
            tuple(entry + zero if i == j else zero for j in range(len(like))) for i, entry in enumerate(entries)
        )
    rows = [jnp.broadcast_to(entry, like.shape[2:]) for entry in entries]
    return _identity(like) * jnp.stack(rows)


def filled(rows: Any, like: Matrix) -> Matrix:
    """Return a matrix with these entries, of the shape of another."""
    if isinstance(like, tuple):
        zero = jnp.zeros_like(like[0][0])
        return tuple(tuple(entry + zero for entry in row) for row in rows)
    return stacked(tuple(tuple(jnp.broadcast_to(entry, like.shape[2:]) for entry in row) for row in rows))


def _identity(like: Matrix) -> Matrix:
    return jnp.eye(len(like)).reshape(len(like), len(like), *(1,) * (like.ndim - 2))


def _dot(a: Any, b: Any) -> Any:
    return _sum([x * y for x, y in zip(a, b, strict=True)])


def _sum(terms: list[Any]) -> Any:
    return sum(terms[1:], start=terms[0])
