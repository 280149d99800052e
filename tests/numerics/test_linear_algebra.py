"""Factors and solutions against LAPACK's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestbed.numerics import linear_algebra


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_factors_inverses_and_solutions(size):
    random = np.random.default_rng(size)
    roots = random.normal(size=(7, size, size + 3))
    matrices, right = roots @ roots.transpose(0, 2, 1), random.normal(size=(7, size))
    factor = jax.jit(linear_algebra.cholesky)(matrices)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrices), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(jax.jit(linear_algebra.inverse)(factor), np.linalg.inv(factor), rtol=1e-8, atol=1e-8)
    found = jax.jit(linear_algebra.solve)(factor, right)
    np.testing.assert_allclose(found, np.linalg.solve(matrices, right[..., None])[..., 0], rtol=1e-7, atol=1e-8)


def test_what_is_not_positive_definite_has_no_factor():
    assert np.isnan(linear_algebra.cholesky(jnp.array([[[1.0, 2.0], [2.0, 1.0]]]))).any()
