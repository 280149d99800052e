"""Whether what is seen is what the model predicted: one sentence when a record becomes improbable.

Single readings are looked at as they come, and the record as a whole (`explaining.py`) each time it has become half as
long again. Half of the stated chance of a false alarm is spent on each: over all readings of the horizon, and over
all looks at it, so that a whole session of the model itself is called improbable with at most that probability, as far
as particles predict well. Those of the prior end before its tails do, so that the first readings must also have odds
against the model, by evidences that no particles bound: as rare under the model as e to minus them (`following.py`).
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import special

from nestbed.evaluation import explaining
from nestbed.live.following import Said
from nestbed.model.system import BaseSystem

FIRST, LONGER = 10, 1.5
"""Experiments before the record is looked at first, and how much longer it is at each next time."""

USUAL = 2.0
"""Deviations that first residuals may have whatever their odds: particles end further out."""
ASTRAY = 50.0
"""Odds against the model, in nats, beyond which the belief may have been led astray: a reading 10 deviations off."""
SUSPECTS = 3
"""Readings at most that are left out to see whether one of them did so."""
LARGEST = 690.0
"""Odds beyond which they are all alike: e to minus them is still a number."""


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


def borne_out(surprise: Float[np.ndarray, " dy"], done: int, odds: float) -> Float[np.ndarray, " dy"]:
    """Return residuals after `done` others, the first ones far off no further than the odds bear out."""
    if done >= explaining.EARLY or math.isnan(odds):
        return surprise
    most = max(USUAL, -float(special.ndtri(0.5 * math.exp(-min(max(odds, 0.0), LARGEST)))))
    return np.clip(surprise, -most, most)


def _level(
    residuals: Sequence[Float[np.ndarray, " dy"]] | Float[np.ndarray, "T dy"], horizon: int, alarm: float
) -> float:
    """Return how rare a single reading must be to be told."""
    return 0.5 * alarm / (max(horizon, len(residuals)) * len(residuals[0]))


def alarmed(residuals: Sequence[Float[np.ndarray, " dy"]], horizon: int, alarm: float) -> list[int]:
    """Return experiments with a reading so far off that it was told, the furthest off first."""
    if not residuals:
        return []
    p = np.nanmin(np.where(np.isnan(every := p_values(np.stack(residuals))), 1.0, every), axis=1)
    told = np.flatnonzero(p < _level(residuals, horizon, alarm))
    return [int(t) for t in told[np.argsort(p[told], kind="stable")]]


def impossible(system: BaseSystem, y: Float[np.ndarray, " dy"], said: Said) -> tuple[int, str]:
    """Return which reading no parameters explain, and the same as a sentence; "" if some do."""
    if said.possible or np.isnan(y).all():
        return 0, ""
    off = np.abs(y - said.mean) / said.sd
    i = int(np.argmax(np.where(np.isnan(y), -np.inf, np.nan_to_num(off))))
    return i, (
        f"{system.observation_names[i]} = {y[i]:g} is {off[i]:.2g} standard deviations from what was predicted, "
        f"{said.mean[i]:.3g}, and no parameters of {system.name} explain it; check its unit and sign and the design "
        "that was applied, or give it as not measured."
    )


def sentence(
    names: Sequence[str], residuals: Float[np.ndarray, "T dy"], horizon: int, alarm: float, odds: float = math.inf
) -> str:
    """Return what is improbable in the last experiment or in the record up to it, or nothing."""
    count = len(residuals)
    p = p_values(residuals[-1])
    level = _level(residuals, horizon, alarm)
    known = count > explaining.EARLY or odds > -math.log(level)
    if np.isfinite(p).any() and known and np.nanmin(p) < level:
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
