"""Resampling against Bayes' rule: expected offspring are N times the weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nestbed.numerics import resampling, weights

WEIGHTS = jnp.array([0.05, 0.3, 0.0, 0.15, 0.5])
LOGS = jnp.log(WEIGHTS)
UNIFORMS = jax.random.uniform(jax.random.key(0), (20_000, 5))


def check_unbiased(resample, uniforms):
    """Offspring counts over many draws: every z-score below 5 (false alarm under 3e-6)."""
    ancestors = np.asarray(jax.vmap(lambda u: resample(u, LOGS))(uniforms))
    counts = (ancestors[:, :, None] == np.arange(5)).sum(1)
    expected = 5 * np.asarray(WEIGHTS)
    error = counts.std(0, ddof=1) / np.sqrt(len(counts)) + 1e-12
    assert (np.abs(counts.mean(0) - expected) < 5 * error).all()


def test_systematic_is_unbiased():
    check_unbiased(resampling.systematic, UNIFORMS[:, :1])


def test_multinomial_is_unbiased():
    check_unbiased(resampling.multinomial, UNIFORMS)


@pytest.mark.parametrize("resample", [resampling.systematic, resampling.multinomial])
def test_mutant_biased_by_one_is_caught(resample):
    uniforms = UNIFORMS[:, :1] if resample is resampling.systematic else UNIFORMS
    with pytest.raises(AssertionError):
        check_unbiased(lambda u, logs: (resample(u, logs) + 1) % 5, uniforms)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-30, 5), min_size=7, max_size=7), st.floats(0, 1, exclude_max=True))
def test_systematic_gives_floor_or_ceiling(logs, uniform):
    normal, _ = weights.normalise(jnp.array(logs))
    ancestors = np.asarray(resampling.systematic(jnp.array([uniform]), normal))
    counts, expected = np.bincount(ancestors, minlength=7), 7 * np.exp(np.asarray(normal))
    assert (np.abs(counts - expected) < 1 + 1e-9).all()
    assert (np.diff(ancestors) >= 0).all()


def test_systematic_agrees_with_its_definition():
    logs, _ = weights.normalise(jax.random.normal(jax.random.key(1), (40, 100)))
    offset = jax.random.uniform(jax.random.key(2), (40, 1))
    got = resampling.systematic(offset, logs)
    for row in range(40):
        points = (np.arange(100) + float(offset[row, 0])) / 100
        np.testing.assert_array_equal(got[row], np.searchsorted(np.cumsum(np.exp(logs[row])), points, side="right"))


def test_conditional_keeps_the_first_slot():
    ancestors = jax.vmap(lambda u: resampling.conditional(u, LOGS))(UNIFORMS[:100])
    assert (ancestors[:, 0] == 0).all()
    assert len(np.unique(ancestors[:, 1])) > 1


@pytest.mark.parametrize("count", [5, 32, 33, 100])
def test_pick_follows_the_weights(count):
    """Chi-squared over 20000 picks, false alarm 1e-5."""
    logs, _ = weights.normalise(1.5 * jax.random.normal(jax.random.key(3), (count,)))
    picks = resampling.categorical(UNIFORMS[:, :1], jnp.broadcast_to(logs, (20_000, count)))
    counts, expected = np.bincount(picks, minlength=count), 20_000 * np.exp(np.asarray(logs))
    common = expected > 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    keep = wanted > 0
    statistic = np.sum((observed[keep] - wanted[keep]) ** 2 / wanted[keep])
    assert stats.chi2.sf(statistic, keep.sum() - 1) > 1e-5


def test_pick_never_takes_a_particle_without_weight():
    logs = jnp.broadcast_to(jnp.log(jnp.array([0.0] * 40 + [0.5, 0.5] + [0.0] * 7)), (1000, 49))
    picks = resampling.categorical(UNIFORMS[:1000, :1], logs)
    assert set(np.unique(picks)) == {40, 41}


def test_effective_sample_size():
    logs, _ = weights.normalise(jnp.zeros(10))
    assert weights.effective_sample_size(logs) == pytest.approx(10)
    assert weights.effective_sample_size(jnp.log(jnp.array([1.0, 0.0]))) == pytest.approx(1)
