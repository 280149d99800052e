"""How what is seen hangs on the parameters, where that is linear: what an exact belief conditions on.

Where all states are seen, one step's features say it. Where states are hidden, and linear together with the parameters,
a filter of them has means that are linear in the parameters and covariances that hang on none: it runs at the prior's
mean and a standard deviation from it along each parameter, and differences of these are the slopes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.likelihood import Kalman, Observed, gaussian
from nestbed.likelihood.base import Carry, Row, components
from nestbed.likelihood.hidden import first_tells
from nestbed.model import linearity
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError


class Reading(NamedTuple):
    """What one component of an observation showed, and its distribution given those before it."""

    row: Row
    value: Float[Array, " N"]
    measured: Any = True  # whether it showed anything; where not, the row's h is 0
    counts: Any = True  # whether it belongs to the evidence: a first observation that tells nothing does not


class Form(ABC):
    """What is linear in the parameters, with a carry that holds what it takes of the past."""

    @abstractmethod
    def start(self, first: Float[Array, "N dy"]) -> Carry:
        """Return the carry after the first observation."""

    @abstractmethod
    def waiting(self, carry: Carry) -> tuple[Reading, ...]:
        """Return readings of the first observation that tell of the parameters and are not counted yet."""

    @abstractmethod
    def rows(self, carry: Carry, u: Components) -> list[Row]:
        """Return the components of the next observation, before any is seen."""

    @abstractmethod
    def read(self, carry: Carry, u: Components, y: Float[Array, "N dy"]) -> tuple[list[Reading], Carry]:
        """Return what the next observation shows, component by component, and the carry after it."""


@dataclass(frozen=True)
class Seen(Form):
    """All states are seen: the carry is the last of them."""

    likelihood: Observed

    def start(self, first: Float[Array, "N dy"]) -> Components:
        """Return the states that were seen."""
        return components(first)

    def waiting(self, carry: Components) -> tuple[Reading, ...]:
        """Return nothing: states at first hang on no parameter."""
        return ()

    def rows(self, carry: Components, u: Components) -> list[Row]:
        """Return the features of a step."""
        return list(self.likelihood.linear(carry, u))

    def read(self, carry: Components, u: Components, y: Float[Array, "N dy"]) -> tuple[list[Reading], Components]:
        """Return each state given those before it."""
        rows = enumerate(self.rows(carry, u))
        return [Reading(row.given(y.T), y[:, i]) for i, row in rows], components(y)


class Filters(NamedTuple):
    """Filters at the prior's mean and beside it, and readings of the first observation that wait to be counted."""

    at: Any  # the carry of a Gaussian filter, (N, 1 + number of parameters)
    waiting: tuple[Reading, ...]


@dataclass(frozen=True)
class Behind(Form):
    """States are hidden, and one Gaussian together with the parameters."""

    filter: Kalman
    mean: tuple[float, ...]  # of the prior
    sd: tuple[float, ...]

    @property
    def points(self) -> Components:
        """The parameters at which filters run, (1, 1 + number of parameters) each."""
        rows = np.concatenate([np.zeros((1, len(self.sd))), np.diag(self.sd)]) + np.array(self.mean)
        return tuple(jnp.asarray(column)[None] for column in rows.T)

    def start(self, first: Float[Array, "N dy"]) -> Filters:
        """Return what the first observation says of the states, and of the parameters where it tells of them."""
        y = components(first)
        begun = self.filter.start(y, self.points)
        if not first_tells(self.filter.system):
            return Filters(begun, ())
        system, gaps = self.filter.system, self.filter.given
        rest = tuple(jnp.asarray(value) for value in system.rest_design)
        unseen = gaussian.at_start(system, (first.shape[0], 1 + len(self.sd)))
        _, found = gaussian.corrected(system, unseen, rest, self.points, lambda i, *_: y[i], gaps=gaps)
        waiting = self._readings(first, [each.residual for each in found], [each.variance for each in found])
        return Filters(begun, tuple(_kept(each) for each in waiting))

    def waiting(self, carry: Filters) -> tuple[Reading, ...]:
        """Return those of the first observation until the next is read."""
        return carry.waiting

    def rows(self, carry: Filters, u: Components) -> list[Row]:
        """Return the components by what filters expect, and how each then moves with those before it."""
        count, size = u[0].shape[0], len(self.filter.system.observation_names)
        nothing = tuple(jnp.zeros((count, 1)) for _ in range(size))

        def residuals(y: Components) -> Any:
            return self.filter.innovations(carry.at, u, y, self.points)[2:]

        (found, variances), push = jax.linearize(residuals, nothing)
        moved = [push(tuple(jnp.full((count, 1), float(i == j)) for i in range(size)))[0] for j in range(size)]
        readings = self._readings(jnp.zeros((count, size)), found, variances)
        return [
            each.row._replace(before=tuple(-moved[j][i][:, 0] for j in range(i))) for i, each in enumerate(readings)
        ]

    def read(self, carry: Filters, u: Components, y: Float[Array, "N dy"]) -> tuple[list[Reading], Filters]:
        """Return what sensors show, each given those before it."""
        after, _, residuals, variances = self.filter.innovations(carry.at, u, components(y), self.points)
        found = self._readings(y, residuals, variances)
        if self.filter.given and not first_tells(self.filter.system):
            found = tuple(each._replace(counts=u[-1][:, 0] != 0.0) for each in found)
        counted = tuple(_counted(each) for each in carry.waiting)
        return list(found), Filters(after, counted)

    def _readings(self, y: Float[Array, "N dy"], residuals: Any, variances: Any) -> tuple[Reading, ...]:
        """Return readings by the residuals of all filters, (N, 1 + number of parameters) each."""
        found = []
        for i, (residual, variance) in enumerate(zip(residuals, variances, strict=True)):
            wide = jnp.broadcast_to(residual, (y.shape[0], 1 + len(self.sd)))
            spread = jnp.broadcast_to(variance, wide.shape)[:, 0]
            measured: Any = True
            value = y[:, i]
            if self.filter.given:  # a sensor without noise tells nothing new of a state that is known already
                measured = ~jnp.isnan(value) & (spread > 0.0)
                value, spread = jnp.where(measured, value, 0.0), jnp.where(measured, spread, 1.0)
                wide = jnp.where(measured[:, None], wide, 0.0)
            h = (wide[:, :1] - wide[:, 1:]) / jnp.asarray(self.sd)
            offset = value - wide[:, 0] - h @ jnp.asarray(self.mean)
            found.append(Reading(Row(offset, h, spread), value, measured))
        return tuple(found)


def _kept(reading: Reading) -> Reading:
    """Return a reading all of whose parts lead with N."""
    yes = jnp.ones_like(reading.value, bool)
    return reading._replace(measured=reading.measured & yes, counts=yes)


def _counted(reading: Reading) -> Reading:
    """Return a reading that says nothing any more."""
    row = reading.row._replace(h=jnp.zeros_like(reading.row.h))
    return reading._replace(row=row, measured=jnp.zeros_like(reading.measured))


def of(system: BaseSystem, given: int | None, mean: np.ndarray, covariance: np.ndarray) -> Form:
    """Return how what is seen of a system hangs on its parameters, of which the prior has a mean and a covariance."""
    if not system.hidden and given is None:
        return Seen(Observed(system))
    sd = np.sqrt(np.diagonal(covariance))
    return Behind(Kalman(system, given=given is not None, memory=given or 0), tuple(mean.tolist()), tuple(sd.tolist()))


def check(system: BaseSystem, given: int | None) -> None:
    """Raise where what is seen of a system is not linear in its parameters, saying why."""
    if not system.hidden and given is None:
        _check_seen(system)
    elif why := linearity.why_not_joint(system):
        unseen = "states behind sensors" if system.hidden else "several records, gaps or uneven times"
        raise NestbedError(
            f"{system.name} has no exact belief with {unseen}, for which states and parameters must be linear "
            f"together: {why}; use belief='guided'."
        )


def _check_seen(system: BaseSystem) -> None:
    if not Observed(system).linear_in_parameters:
        raise NestbedError(
            f"what is seen of {system.name} is not linear in its parameters, so it has no exact belief; use "
            "belief='ibis'."
        )
    if not hasattr(system, "features"):
        raise NestbedError(
            f"{system.name} gives no features(x, u), so it is not known to be linear in its parameters and has no "
            "exact belief; use belief='ibis'."
        )
