"""The likelihood of a system whose states are all seen: the carry is the last state."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.likelihood.base import Likelihood, Record, Row, named
from nestbed.model import integration
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NonFiniteError
from nestbed.numerics.noise import LOG_2PI

TOO_ROUGH = 0.1
"""Rounding of a state, in units of its noise, that makes information up."""


@dataclass(frozen=True)
class Observed(Likelihood):
    """f(x[t+1] | x[t], u[t], θ): one noisy step of the system."""

    system: BaseSystem
    rough: bool = False  # whether gradients pass by how the drift carries noise
    markov = True

    @property
    def linear_in_parameters(self) -> bool:  # type: ignore[override]
        """Whether one step is linear in the parameters where the drift is: Euler's alone."""
        return self.system.one_euler_step

    @property
    def long_step(self) -> bool:
        """Whether it is not Euler's."""
        return not self.system.one_euler_step

    @property
    def normals(self) -> int:
        """One for each state."""
        return len(self.system.state)

    def begin(self, key: jax.Array, count: int, theta: Components) -> tuple[Components, Float[Array, "N dy"]]:
        """Draw start states, which are seen."""
        first = self.sample_start(key, count)
        return tuple(first.T), first

    def experiment(
        self, normals: Components, truth: Components, u: Components, theta: Components
    ) -> tuple[Components, Components]:
        """Return the next state, twice: it is seen."""
        x = self.sample(normals, truth, u, theta)
        return x, x

    def states(self, truth: Components) -> Components:
        """Return the states."""
        return truth

    def imagine(self, normals: Components, carry: Components) -> Components:
        """Return the state that was seen."""
        return carry

    def sample_start(self, key: jax.Array, count: int) -> Float[Array, "N dy"]:
        """Draw start states."""
        return self.system.sample_start(key, count)

    def start(self, y: Components, theta: Components) -> Components:
        """Return the state that was seen."""
        return y

    def predict(self, carry: Components, u: Components, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of the next state."""
        return self.system.mean(carry, u, theta), self._noise(carry, u, theta).marginal

    def decorrelated(
        self, carry: Components, u: Components, theta: Components, residuals: Components
    ) -> tuple[Components, tuple[Any, ...]]:
        """Return residuals free of what the noise of one state does to others within the step."""
        noise = self._noise(carry, u, theta)
        return noise.decorrelated(residuals), noise.variance

    def sample(self, normals: Components, carry: Components, u: Components, theta: Components) -> Components:
        """Return the next state that standard normal numbers lead to."""
        mean, noise = self.system.mean(carry, u, theta), self._noise(carry, u, theta)
        return tuple(m + e for m, e in zip(mean, noise.correlated(normals), strict=True))

    def deviance(
        self, carry: Components, u: Components, y: Components, theta: Components
    ) -> tuple[Components, jax.Array]:
        """Return the state that was seen, and its squared residuals in units of the noise.

        Infinite where the step explodes: nothing that is seen can come of it.
        """
        changes, noise = integration.change(self.system, carry, u, theta), self._noise(carry, u, theta)
        seen = [x_next - x for x_next, x in zip(y, carry, strict=True)]
        residuals = noise.decorrelated(tuple(moved - change for moved, change in zip(seen, changes, strict=True)))
        squares = sum(r**2 * (1.0 / v) for r, v in zip(residuals, noise.variance, strict=True))
        if self.long_step:
            squares = jnp.where(integration.explodes(self.system, carry, u, theta, changes), jnp.inf, squares)
        return y, squares if self.constant_noise else squares + sum(jnp.log(v) for v in noise.variance)

    def _noise(self, carry: Components, u: Components, theta: Components) -> integration.Noise:
        return integration.noise(self.system, carry, u, theta, self.rough)

    def condition(self, carry: Components, u: Components, y: Components, theta: Components) -> Components:
        """Return the state that was seen."""
        return y

    @property
    def log_normaliser(self) -> float:
        """The constant part of −2 log f."""
        constants = [math.log(v) for v in self._noise((), (), ()).variance] if self.constant_noise else []
        return len(self.system.state) * LOG_2PI + sum(constants)

    @property
    def constant_noise(self) -> bool:
        """Whether the diffusion is constant."""
        return self.system.constant_noise

    def linear(self, carry: Components, u: Components) -> Iterator[Row]:
        """Return each state as a linear function of the parameters."""
        system, count = self.system, carry[0].shape[0]
        state, design = (tuple(value.reshape(count) for value in values) for values in (carry, u))
        zero = tuple(jnp.zeros(count) for _ in system.parameter_names)
        features = system.features(system.State(*state), system.Design(*design))  # type: ignore[attr-defined]
        noise = self._noise(state, design, zero)
        means = noise.decorrelated(system.mean(state, design, zero))
        columns = [noise.decorrelated(column) for column in zip(*features, strict=True)]
        before = noise.coefficients
        for i, (offset, variance) in enumerate(zip(means, noise.variance, strict=True)):
            h = jnp.stack([jnp.broadcast_to(column[i], (count,)) for column in columns], axis=-1) * system.step
            given = before[i] if before else ()
            yield Row(jnp.broadcast_to(offset, (count,)), h, jnp.broadcast_to(variance, (count,)), given)

    def check_record(self, record: Record) -> None:
        """Raise if the rounding of a state is not small beside its noise."""
        system = self.system
        states, designs = (np.asarray(part) for part in record)
        designs = designs[:, : states.shape[1] - 1]
        noise = _noise(system, states[:, :-1], designs)
        with np.errstate(all="ignore"):
            rounding = np.spacing(np.abs(states[:, 1:]))
            lost = np.isfinite(states[:, 1:]) & (rounding > TOO_ROUGH * noise)
        if lost.any():
            row, t, i = min(np.argwhere(lost), key=lambda place: int(place[1]))
            large, sd = states[row, t + 1, i], float(np.broadcast_to(noise, lost.shape)[row, t, i])
            raise NonFiniteError(
                f"{system.state_names[i]} = {large:.3g} after step {t} of {system.name} is rounded by "
                f"{rounding[row, t, i]:.2g}, too much for its noise (sd {sd:.2g}), so nothing can be learned from it: "
                f"{_why_large(system, states[row, : t + 1], designs[row, : t + 1])}."
            )

    def cause(self, record: Record, theta: Float[Array, " dtheta"], steps: int) -> str | None:
        """Return the first drift that is not finite."""
        system = self.system
        states, designs, blamed = (np.asarray(part) for part in (record.observations[0], record.designs[0], theta))
        for t in range(steps):
            rates = system.rates(tuple(states[t]), tuple(designs[t]), tuple(blamed))
            for name, rate in zip(system.state_names, rates, strict=True):
                if not np.isfinite(rate):
                    return (
                        f"the drift of {name!r} in {system.name} is {float(rate)} at step {t}, with the parameters "
                        f"{named(system.parameter_names, blamed)}, the state {named(system.state_names, states[t])} "
                        f"and the design {named(system.design_names, designs[t])}; make the drift finite wherever the "
                        "prior and the designs can lead, or narrow the prior."
                    )
        return None


def _noise(system: BaseSystem, x: np.ndarray, u: np.ndarray) -> Any:
    """Return the sd of the noise of each state, at the prior's middle where it depends on the parameters."""
    if system.constant_noise:
        return np.sqrt(system.variance((), (), ()))
    return np.sqrt(np.asarray(_variances(system, jnp.asarray(x), jnp.asarray(u))))


@eqx.filter_jit
def _variances(system: BaseSystem, x: Float[Array, "N T dx"], u: Float[Array, "N T du"]) -> Float[Array, "N T dx"]:
    state, design = (tuple(jnp.moveaxis(part, -1, 0)) for part in (x, u))
    variances = integration.noise(system, state, design, system.parameters.middle).marginal
    return jnp.stack([jnp.broadcast_to(value, x.shape[:-1]) for value in variances], axis=-1)


def _why_large(system: BaseSystem, states: np.ndarray, designs: np.ndarray) -> str:
    """Say whether the step is too long for the drift or the drift grows by itself, from its linear part on the way."""
    theta = system.parameters.middle

    def rates(x: Any, u: Any) -> Any:
        return jnp.stack([jnp.asarray(rate, float) for rate in system.rates(tuple(x), tuple(u), theta)])

    for x, u in zip(states, designs, strict=True):
        slopes = np.asarray(jax.jacfwd(rates)(jnp.asarray(x), jnp.asarray(u)))
        if not np.isfinite(slopes).all():
            continue
        modes = np.linalg.eigvals(slopes)
        fast = modes[(modes.real < 0) & (np.abs(1.0 + system.step * modes) > 1.0)]
        if len(fast):
            limit = np.min(-2.0 * fast.real / np.abs(fast) ** 2)
            return (
                f"step = {system.step:g} is too long for its drift, which the explicit Euler step only follows below "
                f"{limit:.2g}; give the system integrator = 'exponential', or a shorter step and a longer horizon"
            )
        if np.any(modes.real > 0):
            return (
                f"its drift grows by itself, by exp({np.max(modes.real):.3g} t), so shorten the horizon, narrow the "
                "prior or stabilise the system"
            )
    return "check its units, its start and its step, or shorten the horizon"
