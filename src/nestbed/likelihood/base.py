"""The one interface between a system and all that learns from it: how likely the next observation is.

A likelihood is a filter: its carry holds what the past says about the next observation under one parameter vector. For
a system whose states are all seen, that is the last state. Everything is written in components that broadcast: an
observation is a tuple of (N, 1) arrays, a parameter an (N, M) array, and a carry has the shape that it needs.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError

Carry = Any
"""What the past says about the next observation: a pytree of arrays that broadcast against the parameters."""
Truth = Any
"""What a simulated rig is, seen or not: a pytree of arrays of one shape."""


class Record(NamedTuple):
    """What was seen and done in each of N experiments' records: z₀:ₜ. (T1 stands for T + 1.)"""

    observations: Float[Array, "N T1 dy"]
    designs: Float[Array, "N T du"]

    def padded(self, capacity: int) -> "Record":
        """Return the same records in buffers with room for `capacity` experiments."""
        spare = capacity - self.designs.shape[1]
        if spare < 0:
            raise NestbedError(
                f"a record of {self.designs.shape[1]} experiments does not fit into {capacity}; give it more room."
            )
        return Record(*(jnp.pad(part, ((0, 0), (0, spare), (0, 0))) for part in self))


class Row(NamedTuple):
    """One component of the next observation where it is linear in θ: Normal(offset + h · θ + before · y, variance)."""

    offset: Float[Array, " N"]
    h: Float[Array, "N dtheta"]
    variance: Float[Array, " N"]
    before: tuple[Any, ...] = ()  # coefficients of the components before it; none where it is independent of them

    def given(self, earlier: Any) -> "Row":
        """Return the component once those before it are seen."""
        known = sum((weight * y for weight, y in zip(self.before, earlier, strict=False)), start=0.0)
        return self._replace(offset=self.offset + known, before=()) if self.before else self


class Likelihood(ABC):
    """p(y[t+1] | y[0..t], u[0..t], θ), for any shapes of observations and parameters that broadcast."""

    system: BaseSystem
    linear_in_parameters: ClassVar[bool] = False  # whether `linear` gives the density exactly, for any carry
    markov: ClassVar[bool] = False  # whether what the past says is only the last observation: `start` of it
    in_small_blocks: ClassVar[bool] = False  # whether histories are taken a few at a time: none hangs on any other

    @property
    def smooth(self) -> "Likelihood":
        """What stands for it where slopes are needed: itself, unless it draws at random."""
        return self

    @property
    def inputs(self) -> int:
        """How many numbers stand before an observation in a record: those of the design."""
        return len(self.system.design_names)

    @property
    def long_step(self) -> bool:
        """Whether a step is so much work that several of them in one program would take long to compile."""
        return False

    @property
    @abstractmethod
    def normals(self) -> int:
        """How many standard normal numbers one experiment on a simulated rig takes."""

    @abstractmethod
    def begin(self, key: jax.Array, count: int, theta: Components) -> tuple[Truth, Float[Array, "N dy"]]:
        """Start `count` rigs with parameters (N,) each; return what they really are, (N,) arrays, and what is seen."""

    @abstractmethod
    def experiment(
        self, normals: Components, truth: Truth, u: Components, theta: Components
    ) -> tuple[Truth, Components]:
        """Return what rigs are after one more experiment, and what is seen of them, by standard normal numbers."""

    @abstractmethod
    def states(self, truth: Truth) -> Components:
        """Return the states of rigs."""

    @abstractmethod
    def imagine(self, normals: Components, carry: Carry) -> Truth:
        """Draw what a rig may really be, by what the past says of it."""

    @abstractmethod
    def sample_start(self, key: jax.Array, count: int) -> Float[Array, "N dy"]:
        """Draw the first observation of `count` records, over the prior."""

    @abstractmethod
    def start(self, y: Components, theta: Components) -> Carry:
        """Return the carry after the first observation, before any design.

        Its leaves have the shapes that they keep: (N, 1, …) where they hang on no parameter, else (N, M, …).
        """

    @abstractmethod
    def predict(self, carry: Carry, u: Components, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of each component of the next observation."""

    @abstractmethod
    def deviance(self, carry: Carry, u: Components, y: Components, theta: Components) -> tuple[Carry, Array]:
        """Return the next carry and −2 log p(y | past, u, θ) but for the constant `log_normaliser`."""

    def misfit(
        self, carry: Carry, u: Components, y: Components, theta: Components
    ) -> tuple[Carry, Any, tuple[Any, ...]]:
        """Return the next carry, and the same as a sum and factors whose logarithms are still to be added to it."""
        return *self.deviance(carry, u, y, theta), ()

    @property
    @abstractmethod
    def log_normaliser(self) -> float:
        """The constant part of −2 log p: kept out of the hot loop."""

    @property
    @abstractmethod
    def constant_noise(self) -> bool:
        """Whether the noise of the next observation is the same for every past, design and parameter."""

    @abstractmethod
    def linear(self, carry: Carry, u: Components) -> Iterator[Row]:
        """Return the components of the next observation as linear functions of θ, for systems that have `features`."""

    @abstractmethod
    def check_record(self, record: Record) -> None:
        """Raise if observations are so large that doubles no longer hold the noise that information comes from."""

    @abstractmethod
    def cause(self, record: Record, theta: Float[Array, " dtheta"], steps: int) -> str | None:
        """Return why one record (N = 1) has no finite density within some steps, as a sentence; None if unknown."""

    def advance(self, carry: Carry, u: Components, y: Components, theta: Components) -> tuple[Carry, Array]:
        """Return the next carry and log p(y | past, u, θ), broadcast over everything."""
        carry, deviance = self.deviance(carry, u, y, theta)
        return carry, -0.5 * (deviance + self.log_normaliser)

    def condition(self, carry: Carry, u: Components, y: Components, theta: Components) -> Carry:
        """Return the next carry alone."""
        return self.deviance(carry, u, y, theta)[0]

    def decorrelated(
        self, carry: Carry, u: Components, theta: Components, residuals: Components
    ) -> tuple[Components, tuple[Any, ...]]:
        """Return residuals of the next observation made independent of each other, and their variances.

        Components are taken to be independent given the past; where they are not, this is to be overridden.
        """
        return residuals, self.predict(carry, u, theta)[1]

    def sample(self, normals: Components, carry: Carry, u: Components, theta: Components) -> Components:
        """Return the observation that standard normal numbers, one per component, lead to.

        Components are taken to be independent given the past; where they are not, this is to be overridden.
        """
        mean, variance = self.predict(carry, u, theta)
        return tuple(m + jnp.sqrt(v) * e for m, v, e in zip(mean, variance, normals, strict=True))

    def innovations(
        self, carry: Carry, u: Components, y: Components, theta: Components
    ) -> tuple[Carry, Array, Components, tuple[Any, ...]]:
        """Return the next carry, the deviance, and residuals that are independent of each other with their variances.

        All are functions of the parameters, whose slopes tell what an observation says about them.
        """
        carry_next, deviance = self.deviance(carry, u, y, theta)
        mean, _ = self.predict(carry, u, theta)
        residuals = tuple(value - expected for value, expected in zip(y, mean, strict=True))
        return carry_next, deviance, *self.decorrelated(carry, u, theta, residuals)

    def filtered(self, carry: Carry) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of each state by what the past says, where states are hidden."""
        raise NotImplementedError

    def first_expected(self, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of the first observation, where states are hidden."""
        raise NotImplementedError

    def outstanding(self, carry: Carry) -> Any:
        """Return the log-density of what was seen and is counted only with the next observation."""
        return 0.0

    def noise_entropy(self) -> float:
        """Return the entropy of one observation's noise, for constant noise only."""
        return 0.5 * (self.log_normaliser + len(self.system.observation_names))


def components(rows: Float[Array, "N d"]) -> Components:
    """Split (N, d) into d arrays of shape (N, 1), ready to broadcast against particles."""
    return tuple(rows[:, i, None] for i in range(rows.shape[1]))


def named(names: tuple[str, ...], values: np.ndarray) -> str:
    """Return values with their names, as in "angle = 0.1, velocity = 2"."""
    return ", ".join(f"{name} = {float(value):.6g}" for name, value in zip(names, values, strict=True))
