"""Fast sine, cosine and logarithm against NumPy's, which are right to the last digit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestbed.numerics import elementary

DRAW = np.random.default_rng(0)
ANGLES = np.concatenate([DRAW.normal(0.0, 1.0, 50_000) * np.exp(DRAW.uniform(-20.0, 16.0, 50_000)), [0.0]])
POSITIVE = np.concatenate([np.exp(DRAW.uniform(-700.0, 700.0, 50_000)), 1.0 + DRAW.uniform(-0.5, 1.0, 50_000), [1.0]])
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, np.finfo(float).tiny, np.finfo(float).max])


def off(found, exact):
    """Return by how many units in the last place results are off, at most."""
    return np.max(np.abs(np.asarray(found) - exact) / np.spacing(np.abs(exact)))


@pytest.mark.parametrize(("fast", "exact"), [(elementary.sin, np.sin), (elementary.cos, np.cos)])
def test_angles(fast, exact):
    """To two units in the last place; near its zeros a sine has the digits that its angle has."""
    found, true = np.asarray(jax.jit(fast)(ANGLES)), exact(ANGLES)
    assert np.all(np.abs(found - true) <= 2 * np.spacing(np.abs(true)) + 1e-25 * np.abs(ANGLES))


def test_logarithms():
    assert off(jax.jit(elementary.log)(POSITIVE), np.log(POSITIVE)) <= 2


def test_special_values():
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.isnan(elementary.sin(SPECIAL)), np.isnan(np.sin(SPECIAL)))
        np.testing.assert_array_equal(np.isnan(elementary.cos(SPECIAL)), np.isnan(np.cos(SPECIAL)))
        np.testing.assert_allclose(elementary.log(SPECIAL), np.log(SPECIAL), rtol=1e-15)


def test_the_logarithm_of_a_product_is_the_sum_of_logarithms():
    """Of products that no double holds, too."""
    factors = np.exp(DRAW.normal(0.0, 40.0, (300, 50)) + DRAW.uniform(-300.0, 300.0, 50))

    @jax.jit
    def logarithm(factors):
        def step(t, so_far):
            product, counted = elementary.multiplied(so_far[0], factors[t])
            return product, so_far[1] + counted

        begun = jnp.ones(factors.shape[1]), jnp.zeros(factors.shape[1])
        product, counted = jax.lax.fori_loop(0, factors.shape[0], step, begun)
        return jnp.log(product) + counted

    np.testing.assert_allclose(logarithm(factors), np.log(factors).sum(axis=0), rtol=1e-12, atol=1e-10)
    special = np.ones((4, 6))
    special[1] = [np.nan, np.inf, 0.0, -1.0, 1e-320, 2.0]
    special[3] = [1.0, 2.0, 3.0, -1.0, 1e300, 0.5]
    np.testing.assert_array_equal(logarithm(special), [np.nan, np.inf, -np.inf, np.nan, -np.inf, 0.0])


def test_huge_angles_stay_within_bounds():
    """They have no digits left, but neither sine nor cosine is ever beyond 1."""
    huge = DRAW.normal(0.0, 1.0, 10_000) * np.exp(DRAW.uniform(16.0, 700.0, 10_000))
    for fast in (elementary.sin, elementary.cos):
        assert np.max(np.abs(fast(huge))) <= 1.0


@pytest.mark.parametrize(
    ("fast", "slow"), [(elementary.sin, jnp.sin), (elementary.cos, jnp.cos), (elementary.log, jnp.log)]
)
def test_slopes_of_any_order(fast, slow):
    for x in (0.3, 1.7, 40.0):
        for order in range(1, 4):
            a, b = fast, slow
            for _ in range(order):
                a, b = jax.grad(a), jax.grad(b)
            np.testing.assert_allclose(a(x), b(x), rtol=1e-13)
