"""The likelihood of a system that is seen through sensors, or whose designs arrive late: the carry is a filter.

For each parameter vector the hidden state is a Gaussian (`gaussian.py`), with the designs that are still on their way.
A first observation that hangs on the parameters counts together with the one after it.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.likelihood import gaussian
from nestbed.likelihood.base import Likelihood, Record, Row, components, named
from nestbed.likelihood.gaussian import Gaussian, Innovation
from nestbed.model import integration, sensors
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import dependence, noise, programs
from nestbed.numerics.noise import LOG_2PI

T = TypeVar("T")


class Filter(NamedTuple):
    """What the past says: the state, designs on their way, the latest first, and what is not counted yet."""

    state: Gaussian
    designs: tuple[Components, ...]
    ages: tuple[Any, ...]  # of those designs, in steps, where steps are uneven
    pending: Any  # deviance of the first observation; () where it hangs on no parameter


class Rig(NamedTuple):
    """What a simulated rig is: its states, and designs on their way."""

    x: Components
    designs: tuple[Components, ...]


@dataclasses.dataclass(frozen=True)
class Kalman(Likelihood):
    """p(y[t+1] | y[0..t], u[0..t], θ) by a Gaussian filter: exact where drift and sensors are linear in the state.

    With `given`, records are as they were measured: NaN is no measurement, and designs have one more column, the time
    until the next observation, at most the system's step; where it is 0, a new record begins with that observation.
    """

    system: BaseSystem
    rough: bool = False  # whether gradients pass by how the drift carries noise
    given: bool = False
    memory: int = 0  # designs of the past that are kept at least

    @property
    def normals(self) -> int:
        """One for each state and each sensor."""
        return len(self.system.state) + len(self.system.observation_names)

    @property
    def inputs(self) -> int:
        """Those of the design, and the time until the next observation."""
        return len(self.system.design_names) + self.given

    @property
    def long_step(self) -> bool:
        """Always: several filter steps in one program would compute much of each other again."""
        return True

    # Simulated rigs

    def begin(self, key: jax.Array, count: int, theta: Components) -> tuple[Rig, Float[Array, "N dy"]]:
        """Draw start states, and what sensors show of them."""
        state_key, sensor_key = jax.random.split(key)
        x = tuple(self.system.sample_start(state_key, count).T)
        rest = tuple(jnp.full(count, value) for value in self.system.rest_design)
        normals = noise.normals(sensor_key, (len(self.system.observation_names), count))
        y = self._measured(tuple(normals), x, rest, theta)
        return Rig(x, (rest,) * self._kept), jnp.stack([jnp.broadcast_to(value, (count,)) for value in y], axis=-1)

    def experiment(self, normals: Components, truth: Rig, u: Components, theta: Components) -> tuple[Rig, Components]:
        """Return the next states, and what sensors show of them."""
        working, designs, _ = self._working(truth.designs, (), u, theta, None)
        at = theta if self.system.carries_noise else None
        size = len(self.system.state)
        entering = integration.noise(self.system, truth.x, working, theta, self.rough, at=at)
        moved = zip(self.system.mean(truth.x, working, theta), entering.correlated(normals[:size]), strict=True)
        x = tuple(mean + e for mean, e in moved)
        return Rig(x, designs), self._measured(normals[size:], x, u, theta)

    def states(self, truth: Rig) -> Components:
        """Return the states."""
        return truth.x

    def imagine(self, normals: Components, carry: Filter) -> Rig:
        """Draw the states from what the filter says of them."""
        factor = _factor(carry.state)
        drawn = zip(carry.state.mean, factor, strict=True)
        x = tuple(mean + sum(c * e for c, e in zip(row, normals, strict=False)) for mean, row in drawn)
        wide = [tuple(value + jnp.zeros_like(x[0]) for value in past) for past in carry.designs]
        return Rig(x, tuple(wide))

    def _measured(self, normals: Components, x: Components, u: Components, theta: Components) -> Components:
        shown = zip(
            sensors.seen(self.system, x, theta), sensors.variances(self.system, x, u, theta), normals, strict=True
        )
        return tuple(value + jnp.sqrt(variance) * e for value, variance, e in shown)

    # The filter

    def sample_start(self, key: jax.Array, count: int) -> Float[Array, "N dy"]:
        """Draw the first observation, over prior and start."""
        theta_key, start_key = jax.random.split(key)
        return self.begin(start_key, count, self.system.parameters.draw(theta_key, (count,)))[1]

    def start(self, y: Components, theta: Components) -> Filter:
        """Return what the first observation says of the state."""
        state, deviance = self._first(y, theta)
        pending = deviance if _first_tells(self.system) else ()
        return Filter(state, *self._at_rest(y[0]), pending)

    def _at_rest(self, like: Array) -> tuple[tuple[Components, ...], tuple[Any, ...]]:
        """Return the designs on their way where nothing was done yet, and their ages."""
        nothing = jnp.zeros_like(like)
        rest = tuple(nothing + value for value in self.system.rest_design)
        return (rest,) * self._kept, tuple(nothing + age + 1.0 for age in range(self._kept)) if self.given else ()

    def first_expected(self, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of what each sensor shows at first."""
        rest = tuple(jnp.asarray(value) for value in self.system.rest_design)
        return gaussian.expected(self.system, gaussian.at_start(self.system, jnp.shape(theta[0])), rest, theta)

    def filtered(self, carry: Filter) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of each state."""
        return carry.state.mean, carry.state.variances

    def predict(self, carry: Filter, u: Components, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of what each sensor shows next."""
        state, _, used = self._forward(carry, u, theta)
        return gaussian.expected(self.system, state, used, theta)

    def deviance(self, carry: Filter, u: Components, y: Components, theta: Components) -> tuple[Filter, Array]:
        """Return the filter after the observation, and what that says."""
        return self.innovations(carry, u, y, theta)[:2]

    def innovations(
        self, carry: Filter, u: Components, y: Components, theta: Components
    ) -> tuple[Filter, Array, Components, tuple[Any, ...]]:
        """Return the same, with each sensor's residual given the sensors before it."""
        state, carried, used = self._forward(carry, u, theta)
        state, found = gaussian.corrected(self.system, state, used, theta, lambda i, *_: y[i], gaps=self.given)
        deviance = self._counted(found)
        if self.given and not self.system.sensors:
            state = _chosen(u[-1] == 0.0, gaussian.known(gaussian.at_start(self.system, jnp.shape(deviance)), y), state)
        if self.given and not _first_tells(self.system):
            deviance = jnp.where(u[-1] == 0.0, 0.0, deviance)
        if not isinstance(carry.pending, tuple):
            deviance = deviance + carry.pending
            carried = carried._replace(pending=jnp.zeros_like(deviance))
        residuals, variances = tuple(each.residual for each in found), tuple(each.variance for each in found)
        return carried._replace(state=state), deviance, residuals, variances

    def sample(self, normals: Components, carry: Filter, u: Components, theta: Components) -> Components:
        """Return what sensors show next, by standard normal numbers and what the past says."""
        state, _, used = self._forward(carry, u, theta)

        def drawn(i: int, expected: Any, variance: Any) -> Any:
            return expected + jnp.sqrt(variance) * normals[i]

        return tuple(each.value for each in gaussian.corrected(self.system, state, used, theta, drawn)[1])

    def outstanding(self, carry: Filter) -> Any:
        """Return the log-density of a first observation that is not counted yet, but for a constant."""
        return 0.0 if isinstance(carry.pending, tuple) else -0.5 * carry.pending

    def _first(self, y: Components, theta: Components) -> tuple[Gaussian, Array]:
        shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*y, *theta)))
        rest = tuple(jnp.asarray(value) for value in self.system.rest_design)
        state = gaussian.at_start(self.system, shape)
        if not self.system.sensors:  # states are what was seen of them, wherever they were expected
            return gaussian.known(state, y), jnp.zeros(shape)
        state, found = gaussian.corrected(self.system, state, rest, theta, lambda i, *_: y[i], gaps=self.given)
        return Gaussian(*jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape), tuple(state))), self._counted(
            found, self.log_normaliser
        )

    def _counted(self, found: list[Innovation], constant: float = 0.0) -> Any:
        """Return the deviance of innovations, but for the constant part; of those that were measured."""
        total: Any = constant
        for each in found:
            one = each.residual**2 / each.variance + jnp.log(each.variance) + (LOG_2PI if self.given else 0.0)
            total = total + (one if each.measured is True else jnp.where(each.measured, one, 0.0))
        return total

    def _forward(self, carry: Filter, u: Components, theta: Components) -> tuple[Gaussian, Filter, Components]:
        """Return what is known before the sensors are read, the rest of the next carry, and the designs chosen."""
        length, lasts = None, u[-1]
        if self.given:
            u, length = u[:-1], jnp.where(lasts > 0.0, lasts, self.system.step)
        working, designs, ages = self._working(carry.designs, carry.ages, u, theta, length)
        state = gaussian.predicted(self.system, carry.state, working, theta, length, self.rough)
        if self.given:
            fresh = gaussian.at_start(self.system, jnp.shape(state.mean[0])), *self._at_rest(lasts)
            state, designs, ages = _chosen(lasts == 0.0, fresh, (state, designs, ages))
        return state, Filter(carry.state, designs, ages, carry.pending), u

    def _working(
        self, past: tuple[Components, ...], ages: tuple[Any, ...], u: Components, theta: Components, length: Any | None
    ) -> tuple[Components, tuple[Components, ...], tuple[Any, ...]]:
        """Return the designs at work within a step, and those on their way after it with their ages."""
        if not self._kept:
            return u, (), ()
        known = tuple(float(age) for age in range(1 + len(past))) if length is None else (0.0, *ages)
        working = sensors.arriving(self.system, (u, *past), known, theta)
        after = () if length is None else tuple(age + length / self.system.step for age in known[:-1])
        return working, (u, *past)[: self._kept], after

    @property
    def _kept(self) -> int:
        return max(sensors.memory(self.system), self.memory if self.system.delay else 0)

    @property
    def log_normaliser(self) -> float:
        """The constant part of −2 log p; nothing where what is measured changes."""
        return 0.0 if self.given else len(self.system.observation_names) * LOG_2PI

    @property
    def constant_noise(self) -> bool:
        """Never: what is known of the state changes."""
        return False

    def linear(self, carry: Filter, u: Components) -> Iterator[Row]:
        """Raise: what is seen is not linear in the parameters."""
        raise NotImplementedError

    def check_record(self, record: Record) -> None:
        """Do nothing: the noise of sensors hides the rounding of states."""

    def cause(self, record: Record, theta: Float[Array, " dtheta"], steps: int) -> str | None:
        """Return the first step at which the filter's state is not finite."""
        parameters = tuple(jnp.reshape(value, (1, 1)) for value in theta)
        carry = self.start(components(record.observations[:, 0]), parameters)
        for t in range(steps):
            u, y = components(record.designs[:, t]), components(record.observations[:, t + 1])
            before = np.array([float(value[0, 0]) for value in carry.state.mean])
            carry, _ = self.deviance(carry, u, y, parameters)
            if not np.isfinite([float(value[0, 0]) for value in carry.state.mean]).all():
                names, system = self.system.design_names, self.system
                return (
                    f"the state of {system.name} is not finite after step {t}, with the parameters "
                    f"{named(system.parameter_names, np.asarray(theta))}, the state before it "
                    f"{named(system.state_names, before)} and the design "
                    f"{named(names, np.asarray(record.designs[0, t, : len(names)]))}; make the drift and what sensors "
                    "show finite wherever the prior and the designs can lead, or narrow the prior."
                )
        return None


@programs.cached(maxsize=64)
def _first_tells(system: BaseSystem) -> bool:
    """Return whether the first observation hangs on the parameters."""
    start = tuple(jnp.asarray(mean) for mean, _ in sensors.start(system))
    rest = tuple(jnp.asarray(value) for value in system.rest_design)
    found = dependence.slopes(
        lambda theta: (*sensors.seen(system, start, theta), *sensors.variances(system, start, rest, theta)),
        len(system.parameter_names),
    )
    return any(slope != dependence.ZERO for row in found for slope in row)


def _chosen(condition: Any, new: T, old: T) -> T:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _factor(state: Gaussian) -> list[list[Any]]:
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
