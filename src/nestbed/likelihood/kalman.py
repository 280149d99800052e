"""The likelihood of a system that is seen through sensors, or whose designs arrive late: the carry is a filter.

For each parameter vector the hidden state is a Gaussian (`gaussian.py`), with the designs that are still on their way.
A first observation that hangs on the parameters counts together with the one after it.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.likelihood import gaussian
from nestbed.likelihood.base import Record, components, named
from nestbed.likelihood.gaussian import Gaussian
from nestbed.likelihood.hidden import Hidden, Rig, chosen, first_tells
from nestbed.model import integration
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import kernels


class Filter(NamedTuple):
    """What the past says: the state, designs on their way, the latest first, and what is not counted yet."""

    state: Gaussian
    designs: tuple[Components, ...]
    ages: tuple[Any, ...]  # of those designs, in steps, where steps are uneven
    pending: Any  # deviance of the first observation; () where it hangs on no parameter


@dataclasses.dataclass(frozen=True)
class Kalman(Hidden):
    """p(y[t+1] | y[0..t], u[0..t], θ) by a Gaussian filter: exact where drift and sensors are linear in the state."""

    system: BaseSystem
    rough: bool = False
    given: bool = False
    memory: int = 0
    in_small_blocks = True

    def imagine(self, normals: Components, carry: Filter) -> Rig:
        """Draw the states from what the filter says of them."""
        factor = gaussian.factor(carry.state)
        drawn = zip(carry.state.mean, factor, strict=True)
        x = tuple(mean + sum(c * e for c, e in zip(row, normals, strict=False)) for mean, row in drawn)
        wide = [tuple(value + jnp.zeros_like(x[0]) for value in past) for past in carry.designs]
        return Rig(x, tuple(wide))

    def start(self, y: Components, theta: Components) -> Filter:
        """Return what the first observation says of the state."""
        state, deviance = self._first(y, theta)
        pending = deviance if first_tells(self.system) else ()
        return Filter(state, *self.at_rest(y[0]), pending)

    def first_expected(self, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of what each sensor shows at first."""
        rest = tuple(jnp.asarray(value) for value in self.system.rest_design)
        return gaussian.expected(self.system, gaussian.at_start(self.system, jnp.shape(theta[0])), rest, theta)

    def filtered(self, carry: Filter) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of each state."""
        return carry.state.mean, carry.state.variances

    def predict(self, carry: Filter, u: Components, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of what each sensor shows next."""

        def expected(carry: Filter, u: Components, theta: Components) -> Any:
            state, _, used = self._forward(carry, u, theta)
            return gaussian.expected(self.system, state, used, theta)

        return kernels.faster(expected)(carry, u, theta)

    def deviance(self, carry: Filter, u: Components, y: Components, theta: Components) -> tuple[Filter, Array]:
        """Return the filter after the observation, and what that says."""
        return self.innovations(carry, u, y, theta)[:2]

    def misfit(
        self, carry: Filter, u: Components, y: Components, theta: Components
    ) -> tuple[Filter, Any, tuple[Any, ...]]:
        """Return the filter after the observation; squares, and variances whose logarithms are to be added."""
        return kernels.faster(self._read)(carry, u, y, theta)[:3]

    def innovations(
        self, carry: Filter, u: Components, y: Components, theta: Components
    ) -> tuple[Filter, Array, Components, tuple[Any, ...]]:
        """Return the filter and the deviance, with each sensor's residual given the sensors before it."""

        def whole(carry: Filter, u: Components, y: Components, theta: Components) -> Any:
            after, squares, factors, *rest = self._read(carry, u, y, theta)
            return after, squares + sum(jnp.log(factor) for factor in factors), *rest

        return kernels.faster(whole)(carry, u, y, theta)

    def _read(self, carry: Filter, u: Components, y: Components, theta: Components) -> Any:
        state, carried, used = self._forward(carry, u, theta)
        exploded = self._explodes(carry, u, theta, state)
        state = state if exploded is False else chosen(exploded, carry.state, state)
        state, found = gaussian.corrected(self.system, state, used, theta, lambda i, *_: y[i], gaps=self.given)
        squares, factors = self.apart(found)
        squares = squares if exploded is False else jnp.where(exploded, jnp.inf, squares)  # nothing seen can come of it
        if self.given and not self.system.sensors:
            state = chosen(u[-1] == 0.0, gaussian.known(gaussian.at_start(self.system, jnp.shape(squares)), y), state)
        residuals, variances = tuple(each.residual for each in found), tuple(each.variance for each in found)
        if self.given and not first_tells(self.system):  # what a record begins with counts for nothing
            begins = u[-1] == 0.0
            squares = jnp.where(begins, 0.0, squares)
            residuals = tuple(jnp.where(begins, 0.0, residual) for residual in residuals)
            factors, variances = (
                tuple(jnp.where(begins, 1.0, value) for value in values) for values in (factors, variances)
            )
        if not isinstance(carry.pending, tuple):
            squares = squares + carry.pending
            carried = carried._replace(pending=jnp.zeros_like(squares))
        return carried._replace(state=state), squares, factors, residuals, variances

    def _explodes(self, carry: Filter, u: Components, theta: Components, state: Gaussian) -> Any:
        """Return where a step that is not Euler's leads to no state, though the drift has a number where it begins."""
        if self.system.one_euler_step:
            return False
        designs = u[: len(self.system.design_names)]
        wide = tuple(jnp.where(jnp.isinf(entry), entry, 0.0) for entry in state.covariance)
        return integration.explodes(self.system, carry.state.mean, designs, theta, (*state.mean, *wide))

    def sample(self, normals: Components, carry: Filter, u: Components, theta: Components) -> Components:
        """Return what sensors show next, by standard normal numbers and what the past says."""

        def shown(normals: Components, carry: Filter, u: Components, theta: Components) -> Components:
            state, _, used = self._forward(carry, u, theta)

            def drawn(i: int, expected: Any, variance: Any) -> Any:
                return expected + jnp.sqrt(variance) * normals[i]

            return tuple(each.value for each in gaussian.corrected(self.system, state, used, theta, drawn)[1])

        return kernels.faster(shown)(normals, carry, u, theta)

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
        return Gaussian(*jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape), tuple(state))), self.counted(
            found, self.log_normaliser
        )

    def _forward(self, carry: Filter, u: Components, theta: Components) -> tuple[Gaussian, Filter, Components]:
        """Return what is known before the sensors are read, the rest of the next carry, and the designs chosen."""
        length, lasts = None, u[-1]
        if self.given:
            u, length = u[:-1], jnp.where(lasts > 0.0, lasts, self.system.step)
        working, designs, ages = self.working(carry.designs, carry.ages, u, theta, length)
        state = gaussian.predicted(self.system, carry.state, working, theta, length, self.rough)
        if self.given:
            fresh = gaussian.at_start(self.system, jnp.shape(state.mean[0])), *self.at_rest(lasts)
            state, designs, ages = chosen(lasts == 0.0, fresh, (state, designs, ages))
        return state, Filter(carry.state, designs, ages, carry.pending), u

    def cause(self, record: Record, theta: Float[Array, " dtheta"], steps: int) -> str | None:
        """Return the first step at which the filter's state is not finite."""
        parameters = tuple(jnp.reshape(value, (1, 1)) for value in theta)
        carry, step = self.start(components(record.observations[:, 0]), parameters), jax.jit(self.deviance)
        for t in range(steps):
            u, y = components(record.designs[:, t]), components(record.observations[:, t + 1])
            before = np.array([float(value[0, 0]) for value in carry.state.mean])
            carry, _ = step(carry, u, y, parameters)
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
