"""What likelihoods of hidden states have in common: rigs that are simulated whole, and designs on their way."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.likelihood.base import Likelihood, Record, Row
from nestbed.likelihood.gaussian import Innovation
from nestbed.model import integration, sensors
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import dependence, noise, programs
from nestbed.numerics.noise import LOG_2PI

T = TypeVar("T")


class Rig(NamedTuple):
    """What a simulated rig is: its states, and designs on their way."""

    x: Components
    designs: tuple[Components, ...]


class Hidden(Likelihood):
    """A system that is seen through sensors, or whose designs arrive late.

    With `given`, records are as they were measured: NaN is no measurement, and designs have one more column, the time
    until the next observation, at most the system's step; where it is 0, a new record begins with that observation.
    """

    rough: bool  # whether gradients pass by how the drift carries noise
    given: bool
    memory: int  # designs of the past that are kept at least

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

    def begin(self, key: jax.Array, count: int, theta: Components) -> tuple[Rig, Float[Array, "N dy"]]:
        """Draw start states, and what sensors show of them."""
        state_key, sensor_key = jax.random.split(key)
        x = tuple(self.system.sample_start(state_key, count).T)
        rest = tuple(jnp.full(count, value) for value in self.system.rest_design)
        normals = noise.normals(sensor_key, (len(self.system.observation_names), count))
        y = self.measured(tuple(normals), x, rest, theta)
        return Rig(x, (rest,) * self.kept), jnp.stack([jnp.broadcast_to(value, (count,)) for value in y], axis=-1)

    def experiment(self, normals: Components, truth: Rig, u: Components, theta: Components) -> tuple[Rig, Components]:
        """Return the next states, and what sensors show of them."""
        working, designs, _ = self.working(truth.designs, (), u, theta, None)
        at = theta if self.system.carries_noise else None
        size = len(self.system.state)
        entering = integration.noise(self.system, truth.x, working, theta, self.rough, at=at)
        moved = zip(self.system.mean(truth.x, working, theta), entering.correlated(normals[:size]), strict=True)
        x = tuple(mean + e for mean, e in moved)
        return Rig(x, designs), self.measured(normals[size:], x, u, theta)

    def states(self, truth: Rig) -> Components:
        """Return the states."""
        return truth.x

    def measured(self, normals: Components, x: Components, u: Components, theta: Components) -> Components:
        """Return what sensors show of states, by standard normal numbers."""
        shown = zip(
            sensors.seen(self.system, x, theta), sensors.variances(self.system, x, u, theta), normals, strict=True
        )
        return tuple(value + jnp.sqrt(variance) * e for value, variance, e in shown)

    def sample_start(self, key: jax.Array, count: int) -> Float[Array, "N dy"]:
        """Draw the first observation, over prior and start."""
        theta_key, start_key = jax.random.split(key)
        return self.begin(start_key, count, self.system.parameters.draw(theta_key, (count,)))[1]

    def at_rest(self, like: Array) -> tuple[tuple[Components, ...], tuple[Any, ...]]:
        """Return the designs on their way where nothing was done yet, and their ages."""
        nothing = jnp.zeros_like(like)
        rest = tuple(nothing + value for value in self.system.rest_design)
        return (rest,) * self.kept, tuple(nothing + age + 1.0 for age in range(self.kept)) if self.given else ()

    def working(
        self, past: tuple[Components, ...], ages: tuple[Any, ...], u: Components, theta: Components, length: Any | None
    ) -> tuple[Components, tuple[Components, ...], tuple[Any, ...]]:
        """Return the designs at work within a step, and those on their way after it with their ages."""
        if not self.kept:
            return u, (), ()
        known = tuple(float(age) for age in range(1 + len(past))) if length is None else (0.0, *ages)
        lasts = 1.0 if length is None else length / self.system.step
        working = sensors.arriving(self.system, (u, *past), known, theta, lasts)
        after = () if length is None else tuple(age + length / self.system.step for age in known[:-1])
        return working, (u, *past)[: self.kept], after

    @property
    def kept(self) -> int:
        """How many designs of the past are kept."""
        return max(sensors.memory(self.system), self.memory if self.system.delay else 0)

    def counted(self, found: list[Innovation], constant: float = 0.0) -> Any:
        """Return the deviance of innovations, but for the constant part; of those that were measured."""
        squares, variances = self.apart(found, constant)
        return squares + sum(jnp.log(variance) for variance in variances)

    def apart(self, found: list[Innovation], constant: float = 0.0) -> tuple[Any, tuple[Any, ...]]:
        """Return the same as a sum, and variances whose logarithms are still to be added to it."""
        squares: Any = constant
        for each in found:
            one = each.residual**2 * each.precision + (LOG_2PI if self.given else 0.0)
            squares = squares + (one if each.measured is True else jnp.where(each.measured, one, 0.0))
        variances = (
            each.variance if each.measured is True else jnp.where(each.measured, each.variance, 1.0) for each in found
        )
        return squares, tuple(variances)

    @property
    def log_normaliser(self) -> float:
        """The constant part of −2 log p; nothing where what is measured changes."""
        return 0.0 if self.given else len(self.system.observation_names) * LOG_2PI

    @property
    def constant_noise(self) -> bool:
        """Never: what is known of the state changes."""
        return False

    def linear(self, carry: Any, u: Components) -> Iterator[Row]:
        """Raise: what is seen is not linear in the parameters."""
        raise NotImplementedError

    def check_record(self, record: Record) -> None:
        """Do nothing: the noise of sensors hides the rounding of states."""


@programs.cached(maxsize=64)
def first_tells(system: BaseSystem) -> bool:
    """Return whether the first observation hangs on the parameters."""
    start = tuple(jnp.asarray(mean) for mean, _ in sensors.start(system))
    rest = tuple(jnp.asarray(value) for value in system.rest_design)
    found = dependence.slopes(
        lambda theta: (*sensors.seen(system, start, theta), *sensors.variances(system, start, rest, theta)),
        len(system.parameter_names),
    )
    return any(slope != dependence.ZERO for row in found for slope in row)


def chosen(condition: Any, new: T, old: T) -> T:
    """Return one of two trees, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
