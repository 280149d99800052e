"""Slopes by equations against those that jax pushes through, and what stays a number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestbed.numerics import tangents

SHAPE = (3, 4)
HELD = jnp.linspace(0.5, 2.0, 12).reshape(SHAPE)
X = tuple(jnp.linspace(low, low + 1.0, 12).reshape(SHAPE) for low in (0.1, 0.3, 0.7))


def scanned(x):
    end, _ = jax.lax.scan(lambda now, _: (now + 0.1 * jnp.sin(now) * x[1], None), x[0], length=3)
    return end, x[2]


FUNCTIONS = {
    "numbers": lambda x: (0.05 * x[1], 3.0 - (x[0] / 4.0 - x[2]), x[2], jnp.broadcast_to(7.0, SHAPE)),
    "held": lambda x: (HELD * x[0] - x[1] * HELD, x[0] / HELD + x[2] * x[2]),
    "bent": lambda x: (jnp.sin(x[0]) * jnp.exp(-x[1]), x[0] ** 2 / x[2], jnp.arctan2(x[1], x[1] + x[2]), x[1] ** x[2]),
    "chosen": lambda x: (jnp.where(x[0] > 0.5, x[1], 2.0), jnp.where(x[0] > 0.5, x[1] + 1.0, x[1]), jnp.abs(x[0])),
    "within calls": lambda x: jax.jit(lambda x: (jnp.tanh(x[0] * 2.0), jnp.maximum(x[1], 0.4), x[2] + x[2]))(x),
    "loops": scanned,
    "whole": lambda x: (jnp.floor(x[0]), x[1] * (x[0] > 0.5).astype(int).astype(float)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes(name):
    function = FUNCTIONS[name]
    values, slopes = jax.jit(lambda x: tangents.linearised(function, x))(X)
    wanted, push = jax.linearize(function, X)
    for j in range(len(X)):
        column = push(tuple(jnp.full(SHAPE, float(i == j)) for i in range(len(X))))
        for row, one in zip(slopes, column, strict=True):
            np.testing.assert_allclose(jnp.broadcast_to(row[j], SHAPE), one, rtol=1e-13, atol=1e-15)
    for value, one in zip(values, wanted, strict=True):
        np.testing.assert_allclose(value, one, rtol=1e-15)


def test_what_the_equations_tell_stays_a_number():
    found = []

    @jax.jit
    def look(x, held):
        found.extend(tangents.linearised(FUNCTIONS["numbers"], x)[1])
        chosen = jnp.where(held > 1.0, x[1], -x[1])
        found.extend(tangents.linearised(lambda x: (held * x[1], jnp.sin(x[0]), x[2] + chosen), x)[1])
        return x

    look(X, HELD)
    assert found[:4] == [[0.0, 0.05, 0.0], [-0.25, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    numbers = [[slope if isinstance(slope, float) else None for slope in row] for row in found[4:]]
    assert numbers == [[0.0, None, 0.0], [None, 0.0, 0.0], [0.0, 0.0, 1.0]]


def test_gradients_pass():
    def total(x):
        values, slopes = tangents.linearised(FUNCTIONS["bent"], x)
        return sum(jnp.sum(value) for value in values) + sum(jnp.sum(slope) for row in slopes for slope in row)

    def plain(x):
        values, push = jax.linearize(FUNCTIONS["bent"], x)
        return sum(jnp.sum(value) for value in values) + sum(
            jnp.sum(one) for j in range(3) for one in push(tuple(jnp.full(SHAPE, float(i == j)) for i in range(3)))
        )

    for one, other in zip(jax.grad(total)(X), jax.grad(plain)(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
