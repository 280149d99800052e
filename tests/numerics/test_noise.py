"""The unrolled generator against jax's own and against theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError

KEY = jax.random.key(7)


def test_lane_zero_is_jax_threefry():
    high, low = noise.bits(KEY, (3, 50))
    expected = jax.random.bits(KEY, (3, 50), jnp.uint64)
    np.testing.assert_array_equal((high.astype(jnp.uint64) << 32) | low, expected)


def test_lanes_are_different_streams():
    draws = np.stack([noise.uniforms(KEY, (1000,), lane) for lane in range(20)])
    correlations = np.corrcoef(draws)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 5.0 / np.sqrt(1000)  # 190 of them: false alarm about 1e-4


@pytest.mark.parametrize("draw", [noise.uniforms, noise.rough_uniforms])
def test_uniforms(draw):
    values = np.asarray(draw(KEY, (333, 331), 5)).ravel()
    assert values.min() > 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-5


@pytest.mark.parametrize("draw", [noise.normals, noise.rough_normals])
def test_normals(draw):
    values = np.asarray(draw(KEY, (333, 331), 5)).ravel()
    assert values.dtype == np.float64
    assert stats.kstest(values, "norm").pvalue > 1e-5


def test_rough_normals_are_finite_and_symmetric_at_the_extremes(monkeypatch):
    words = jnp.array([[0, 2**32 - 1, 2**31, 2**31 - 1]], jnp.uint32)
    monkeypatch.setattr(noise, "bits", lambda key, shape, lane=0: (words, words))
    low, high, above, below = np.asarray(noise.rough_normals(KEY, (2, 4)))[0]
    assert np.isfinite([low, high]).all()
    assert (low, above) == (-high, -below)


@pytest.mark.parametrize("key", [jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0), jax.random.key(0)])
def test_any_single_key_is_taken(key):
    assert noise.as_key(key).shape == ()


@pytest.mark.parametrize("key", [0, None, jax.random.split(KEY, 3), np.zeros(5)])
def test_anything_else_is_refused(key):
    with pytest.raises(NestbedError, match="must be one jax key"):
        noise.as_key(key)
