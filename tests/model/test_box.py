"""The design box: draws within it, scaling to and from ±1."""

import jax
import jax.numpy as jnp
import numpy as np

import nestbed as nb

BOX = nb.Box(flow=(-1.0, 3.0), valve=(10.0, 10.5))


def test_draws_fill_the_box_evenly():
    draws = np.asarray(BOX.sample(jax.random.key(0), (20_000,)))
    assert draws.shape == (20_000, 2)
    assert BOX.contains(draws, slack=0.0).all()
    error = np.array([4.0, 0.5]) / np.sqrt(12 * 20_000)
    assert (np.abs(draws.mean(axis=0) - [1.0, 10.25]) < 5 * error).all()


def test_scaling_there_and_back():
    unit = jnp.array([[-1.0, -1.0], [0.0, 0.5], [1.0, 1.0]])
    np.testing.assert_allclose(BOX.scale(unit), [[-1.0, 10.0], [1.0, 10.375], [3.0, 10.5]])
    np.testing.assert_allclose(BOX.unscale(BOX.scale(unit)), unit, atol=1e-12)


def test_clipping_and_what_is_inside():
    designs = np.array([[-2.0, 10.2], [0.0, 11.0], [np.nan, 10.0], [3.0 + 1e-7, 10.5]])
    np.testing.assert_array_equal(BOX.contains(designs), [[False, True], [True, False], [False, True], [True, True]])
    np.testing.assert_array_equal(BOX.clip(designs[:2]), [[-1.0, 10.2], [0.0, 10.5]])
    np.testing.assert_array_equal(BOX.clip([9.0, 0.0]), [3.0, 10.0])
