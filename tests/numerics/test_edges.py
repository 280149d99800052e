"""Roots have the same values and slopes as before, and slopes at 0 too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestbed.numerics import edges

X = jnp.array([0.0, 1e-12, 0.25, 4.0])


def root(x):
    return jnp.sqrt(jnp.maximum(x, 0.0))


def power(x, p=0.5):
    return jnp.maximum(x, 0.0) ** p


def looped(x):
    return jax.lax.fori_loop(0, 2, lambda _, y: jax.lax.cond(y.sum() > 0.0, root, lambda z: z, y), x)


@pytest.mark.parametrize("function", [root, power, looped])
def test_values_are_the_same_and_slopes_are_everywhere(function):
    eased = edges.sloped(function)
    np.testing.assert_array_equal(eased(X), function(X))
    slopes = jax.jacobian(eased)(X)
    assert np.isfinite(slopes).all()
    assert slopes[0, 0] == 0.0
    inner = X[1:]
    np.testing.assert_allclose(jax.jacobian(eased)(inner), jax.jacobian(function)(inner), rtol=1e-12)
    assert not np.isfinite(jax.jacobian(function)(X)).all()  # what would be without


def test_slopes_of_slopes_and_both_directions_are_finite():
    eased = edges.sloped(lambda x: root(x) * jnp.sin(x))
    for slopes in (jax.jacfwd(jax.jacfwd(eased)), jax.jacrev(jax.jacfwd(eased)), jax.jacrev(jax.jacrev(eased))):
        assert np.isfinite(slopes(X)).all()


def test_exponents_have_slopes_too():
    value, slope = jax.value_and_grad(lambda p: edges.sloped(power)(X, p).sum())(0.5)
    assert value == power(X).sum()
    np.testing.assert_allclose(slope, jax.grad(lambda p: power(X[1:], p).sum())(0.5), rtol=1e-12)


def test_negative_numbers_have_no_root_as_before():
    assert np.isnan(edges.sloped(jnp.sqrt)(jnp.array(-1.0)))


def test_roots_are_found_among_equations():
    number = jax.ShapeDtypeStruct((), float)
    assert edges.has_roots(root, number)
    assert edges.has_roots(looped, jax.ShapeDtypeStruct((3,), float))
    assert not edges.has_roots(jnp.sin, number)
