"""What rounding makes of residuals: a sensor in coarse steps errs alike from one sample to the next while little moves.

Filters take rounding for noise of its own at each sample (`sensors.py`). Posteriors are hardly the worse for it, but
residuals of the model itself then look correlated, off or small. How much so is simulated: along what was expected of
a sensor, a value wanders as far as the filter says, is rounded, and followed by the filter's own gain. Without rounding
that gives independent standard normal numbers.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.evaluation.records import Measured
from nestbed.model import sensors
from nestbed.model.system import BaseSystem

COARSE = 0.1
"""Share of a sensor's variance that rounding must have to be looked at."""
REPLICATES = 400
"""Simulated records."""

Replicates = Callable[[str], Float[np.ndarray, "T B"] | None]
"""Residuals that rounding alone makes of a sensor's readings, by its name; None where it hardly does anything."""


def nothing(name: str) -> None:
    """Return that no sensor rounds."""


def replicates(system: BaseSystem, result: Any, records: Sequence[Measured]) -> Replicates:
    """Return residuals that the model's own records would have, simulated when they are asked for.

    `result` is the posterior of the records, with the course of hidden states.
    """
    if result.course is None or not any(system.resolution.values()):
        return nothing

    @functools.cache
    def of(name: str) -> Float[np.ndarray, "T B"] | None:
        i, step = system.observation_names.index(name), float(system.resolution.get(name, 0.0))
        own = _variances(system, result)[i]
        means, spreads = result.course.expected[:, i], result.course.expected_sd[:, i] ** 2
        if not step**2 / 12.0 > COARSE * float(np.median(spreads)):
            return None
        draw, found, row = np.random.default_rng(0), [], 0
        for record in records:
            rows = slice(row, row + len(record.observations))
            known = np.isfinite(record.observations[:, i])
            found.append(_simulated(draw, means[rows], spreads[rows], own[rows], step, known)[1:])
            row = rows.stop
        return np.concatenate(found)

    return of


def _variances(system: BaseSystem, result: Any) -> list[Float[np.ndarray, " T1"]]:
    """Return the variance of each sensor's noise along the course, rounding included."""
    x, rest = tuple(jnp.asarray(result.course.states.T)), tuple(jnp.asarray(value) for value in system.rest_design)
    theta = tuple(jnp.asarray(result.mean))
    return [np.broadcast_to(np.asarray(v), x[0].shape) for v in sensors.variances(system, x, rest, theta)]


def _simulated(
    draw: np.random.Generator, means: Any, spreads: Any, own: Any, step: float, known: Any
) -> Float[np.ndarray, "T1 B"]:
    """Simulate one record's residuals; `own` is the part of the spreads that is the sensor's noise."""
    open_ = np.maximum(spreads - own, 0.0)  # what the filter leaves open of the value itself
    gain = np.where(known, open_ / spreads, 0.0)
    moves = np.sqrt(np.maximum(np.append(open_[1:], 0.0) - (1.0 - gain) * open_, 0.0))
    noise = np.sqrt(np.maximum(own - step**2 / 12.0, 0.0))
    value, followed = np.sqrt(open_[0]) * draw.standard_normal(REPLICATES), np.zeros(REPLICATES)
    found = np.full((len(means), REPLICATES), np.nan)
    for t in range(len(means)):
        shown = step * np.round((means[t] + value + noise[t] * draw.standard_normal(REPLICATES)) / step) - means[t]
        if known[t]:
            found[t] = (shown - followed) / np.sqrt(spreads[t])
        followed = followed + gain[t] * (shown - followed)
        value = value + moves[t] * draw.standard_normal(REPLICATES)
    return found
