"""Places of a posterior: aliases are counted, and one that is wide, bent, skewed or heavy-tailed is one."""

import numpy as np
import pytest

from nestbed.faces.places import places, sentence

DRAW = np.random.default_rng(3)
ONE = {
    "normal": lambda: DRAW.standard_normal(512),
    "heavy tails": lambda: DRAW.standard_t(4, 512),
    "skewed": lambda: np.exp(DRAW.standard_normal(512)),
    "bent": lambda: DRAW.standard_normal(512) ** 2,
    "even": lambda: DRAW.random(512),
    "few": lambda: DRAW.standard_normal(20),
    "all the same": lambda: np.ones(512),
}


@pytest.mark.parametrize("shape", ONE)
def test_one_place_is_one(shape):
    """100 clouds of each shape, weighted unevenly."""
    for _ in range(100):
        values = ONE[shape]()
        weights = DRAW.gamma(2.0, size=len(values))
        assert len(places(values, weights)) == 1


@pytest.mark.parametrize("count", [2, 4, 19])
def test_narrow_places_are_counted_with_their_shares(count):
    centres = np.arange(count) * 3.0
    values = np.repeat(centres, 25) + 0.002 * DRAW.standard_normal(25 * count)
    found = places(values, np.ones(len(values)))
    assert len(found) == count
    np.testing.assert_allclose([place.share for place in found], 1.0 / count)
    np.testing.assert_allclose([place.mean for place in found], centres, atol=0.01)
    told = sentence("omega", found)
    assert f"omega is in one of {count} places apart" in told
    assert ("others may have been missed" in told) == (count > 6)


def test_one_place_is_not_told():
    assert sentence("omega", places(DRAW.standard_normal(99), np.ones(99))) == ""
