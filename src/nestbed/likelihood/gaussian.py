"""One step of a Gaussian filter of hidden states (extended Kalman), in components that broadcast.

Drift and sensors are linearised where the filter believes the state to be: exact for systems that are linear in their
state. Sensors are taken in one after the other, so that nothing is inverted, each may be missing, and what they show is
decorrelated on the way. Slopes that are known to be 0 or 1 cost nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nestbed.model import integration, sensors
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import dependence, kernels, programs, tangents
from nestbed.numerics.dependence import ZERO, minus, plus, times

FEW = 2
"""States up to which it is faster to compute F P again for each entry of F P Fᵀ than to store it."""


class Gaussian(NamedTuple):
    """What is known of the states: their means, and the lower triangle of their covariance, row by row."""

    mean: Components
    covariance: tuple[Any, ...]

    def entry(self, i: int, j: int) -> Any:
        """Return one entry of the covariance."""
        return self.covariance[place(i, j)]

    @property
    def variances(self) -> tuple[Any, ...]:
        """The diagonal of the covariance."""
        return tuple(self.entry(i, i) for i in range(len(self.mean)))


def place(i: int, j: int) -> int:
    """Return where an entry of a symmetric matrix stands in its lower triangle."""
    row, column = max(i, j), min(i, j)
    return row * (row + 1) // 2 + column


class Innovation(NamedTuple):
    """What one sensor showed beside what was expected of it, given the past and the sensors before it."""

    value: Any
    residual: Any
    variance: Any
    precision: Any  # 1 / variance; 0 where it showed nothing
    measured: Any  # whether it showed anything; True: it always does


def at_start(system: BaseSystem, shape: tuple[int, ...]) -> Gaussian:
    """Return what is known of the states before anything is seen."""
    moments = sensors.start(system)
    size = len(moments)
    triangle = [(i, j) for i in range(size) for j in range(i + 1)]
    return Gaussian(
        tuple(jnp.full(shape, mean) for mean, _ in moments),
        tuple(jnp.full(shape, moments[i][1] if i == j else 0.0) for i, j in triangle),
    )


def known(state: Gaussian, x: Components) -> Gaussian:
    """Return states as they were seen, without noise; those that are NaN as they were."""
    missing = [jnp.isnan(value) for value in x]
    pairs = [(i, j) for i in range(len(x)) for j in range(i + 1)]
    return Gaussian(
        tuple(jnp.where(gone, m, value) for gone, m, value in zip(missing, state.mean, x, strict=True)),
        tuple(jnp.where(missing[i] & missing[j], state.entry(i, j), 0.0) for i, j in pairs),
    )


def predicted(
    system: BaseSystem, known: Gaussian, u: Components, theta: Components, length: Any | None, rough: bool
) -> Gaussian:
    """Return what is known of the states one step later: P ← F P Fᵀ + Q."""
    size = len(known.mean)
    shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*known.mean, *u, *theta)))
    x = tuple(jnp.broadcast_to(value, shape) for value in known.mean)
    if integration.stiff(system):
        changes, jacobian = integration.change_and_slopes(system, x, u, theta, length)
    else:
        changes, jacobian = _linearised(lambda x: integration.change(system, x, u, theta, length), x, shape)
    mean, jacobian = kernels.once((tuple(now + change for now, change in zip(x, changes, strict=True)), jacobian))
    along = [[plus(entry, float(i == j)) for j, entry in enumerate(row)] for i, row in enumerate(jacobian)]
    at = theta if system.carries_noise else None
    comes = integration.noise(system, x, u, theta, rough, length=length, at=at).covariance
    moved = [
        [plus(*(times(along[i][k], known.entry(k, j)) for k in range(size))) for j in range(size)] for i in range(size)
    ]
    moved = kernels.once(moved) if size > FEW else moved
    covariance = tuple(
        jnp.broadcast_to(plus(*(times(moved[i][k], along[j][k]) for k in range(size)), comes[i][j]), shape)
        for i in range(size)
        for j in range(i + 1)
    )
    return Gaussian(mean, kernels.once(covariance))


def corrected(
    system: BaseSystem,
    known: Gaussian,
    u: Components,
    theta: Components,
    value_of: Callable[[int, Any, Any], Any],
    *,
    gaps: bool = False,
) -> tuple[Gaussian, list[Innovation]]:
    """Return what is known of the states once sensors are read, and what each reading said beyond the past.

    `value_of` gives a sensor's value from its number, its expected value and its variance: what was measured, or a
    draw. With `gaps`, NaN is no measurement.
    """
    values, slopes = shown(system, known, theta)
    noise = sensors.variances(system, known.mean, u, theta)
    size, now, found = len(known.mean), known, []
    for i, (expected, slope, own) in enumerate(zip(values, slopes, noise, strict=True)):
        if i:  # what the sensors before have told about this one
            told = [times(h, after - before) for h, after, before in zip(slope, now.mean, known.mean, strict=True)]
            expected = plus(expected, *told)
        shared, variance = _spread(now, slope, own)
        value = value_of(i, expected, variance)
        measured: Any = ~jnp.isnan(value) if gaps else True
        if isinstance(own, float) and own == ZERO:  # it tells nothing new of a state that is known already
            measured &= variance > 0.0
        residual, precision = value - expected, 1.0 / variance
        if measured is not True:
            residual, precision = jnp.where(measured, residual, 0.0), jnp.where(measured, precision, 0.0)
        gain = [times(c, precision) for c in shared]
        now = Gaussian(
            tuple(plus(m, times(g, residual)) for m, g in zip(now.mean, gain, strict=True)),
            tuple(minus(now.entry(j, k), times(gain[j], shared[k])) for j in range(size) for k in range(j + 1)),
        )
        found.append(Innovation(value, residual, variance, precision, measured))
    return now, found


def expected(
    system: BaseSystem, known: Gaussian, u: Components, theta: Components
) -> tuple[Components, tuple[Any, ...]]:
    """Return the mean and the variance of what each sensor will show, whatever the others do."""
    values, slopes = shown(system, known, theta)
    noise = sensors.variances(system, known.mean, u, theta)
    return values, tuple(_spread(known, slope, own)[1] for slope, own in zip(slopes, noise, strict=True))


def shown(system: BaseSystem, known: Gaussian, theta: Components) -> tuple[Components, list[list[Any]]]:
    """Return what sensors show of the mean, and how that changes with the states."""
    shape = jnp.shape(known.mean[0])
    return _linearised(lambda x: sensors.seen(system, x, theta), known.mean, shape)


def _spread(known: Gaussian, slope: list[Any], own: Any) -> tuple[list[Any], Any]:
    """Return the covariance of one sensor's value with each state, and its variance."""
    size = len(known.mean)
    shared = [plus(*(times(slope[k], known.entry(j, k)) for k in range(size))) for j in range(size)]
    return shared, plus(*(times(h, c) for h, c in zip(slope, shared, strict=True)), own)


def factor(state: Gaussian) -> list[list[Any]]:
    """Return the lower Cholesky factor of a covariance, 0 where nothing is unknown."""
    rows: list[list[Any]] = []
    for i in range(len(state.mean)):
        row: list[Any] = []
        for j in range(i):
            rest = state.entry(i, j) - sum(a * b for a, b in zip(row, rows[j], strict=False))
            row.append(jnp.where(rows[j][j] > 0.0, rest / jnp.where(rows[j][j] > 0.0, rows[j][j], 1.0), 0.0))
        own = jnp.maximum(state.entry(i, i) - sum(value**2 for value in row), 0.0)
        row.append(jnp.where(own > 0.0, jnp.sqrt(jnp.where(own > 0.0, own, 1.0)), 0.0))
        rows.append(row)
    return rows


def _linearised(
    function: Callable[[Components], Components], x: Components, shape: tuple[int, ...]
) -> tuple[Components, list[list[Any]]]:
    """Return a function's values, all of one shape, and its slopes."""
    return tangents.linearised(
        lambda x: tuple(jnp.broadcast_to(jnp.asarray(value, float), shape) for value in function(x)), x
    )


@programs.cached(maxsize=64)
def sensors_are_linear(system: BaseSystem) -> bool:
    """Return whether what sensors show is linear in the states, and their noise the same for all, by its equations."""
    size = len(system.state)
    middle, rest = system.parameters.middle, tuple(jnp.asarray(value) for value in system.rest_design)

    def slopes(x: Components) -> Components:
        push = jax.linearize(lambda x: sensors.seen(system, x, middle), x)[1]
        units = [tuple(jnp.asarray(float(i == j)) for i in range(size)) for j in range(size)]
        noise = sensors.variances(system, x, rest, middle)
        return (*(slope for unit in units for slope in push(unit)), *(jnp.asarray(value) for value in noise))

    return all(slope == ZERO for row in dependence.slopes(slopes, size) for slope in row)
