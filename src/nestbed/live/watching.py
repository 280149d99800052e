"""Whether what is seen is what the model predicted: one sentence when a record becomes improbable.

Single readings are looked at as they come, and the record as a whole (`explaining.py`) each time it has become half as
long again. Half of the stated chance of a false alarm is spent on each: over all readings of the horizon, and over
all looks at it, so that a whole session of the model itself is called improbable with at most that probability, as far
as particles predict well.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import special

from nestbed.evaluation import explaining

FIRST, LONGER = 10, 1.5
"""Experiments before the record is looked at first, and how much longer it is at each next time."""


def looks(horizon: int) -> list[int]:
    """Return after how many experiments the record as a whole is looked at."""
    found, now = [], float(FIRST)
    while now < horizon:
        found.append(math.ceil(now))
        now *= LONGER
    return [*found, horizon]


def p_values(surprise: Float[np.ndarray, " dy"]) -> Float[np.ndarray, " dy"]:
    """Return how often chance alone brings readings as far off, on either side; NaN where nothing was measured."""
    return np.asarray(2.0 * special.ndtr(-np.abs(surprise)))


def sentence(names: Sequence[str], residuals: Float[np.ndarray, "T dy"], horizon: int, alarm: float) -> str:
    """Return what is improbable in the last experiment or in the record up to it, or nothing."""
    count = len(residuals)
    p = p_values(residuals[-1])
    level = 0.5 * alarm / (max(horizon, count) * len(names))
    if np.isfinite(p).any() and count > explaining.EARLY and np.nanmin(p) < level:
        i = int(np.nanargmin(p))
        return (
            f"experiment {count - 1}: {names[i]} is {abs(residuals[-1, i]):.1f} standard deviations from what was "
            f"predicted (p {p[i]:.1g}); check this reading and the design that was applied, or give what is no "
            "measurement as NaN."
        )
    times = looks(max(horizon, count))
    if count not in times:
        return ""
    found = explaining.explain(names, residuals, 0.5 * alarm / len(times))
    return "" if found.explains else f"after {count} experiments {found.sentence}"
