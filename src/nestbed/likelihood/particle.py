"""The likelihood of hidden states by a particle filter for each parameter vector: the reference for Gaussian filters.

Where sensors are linear in the state, each particle is drawn from the Gaussian that one step and the readings leave of
it and weighted by how likely the readings were (the fully adapted filter); else it is drawn from the step alone and
weighted by what the readings say of it (the bootstrap filter). Random numbers are the same for all parameters, so that
these differ by what they say and not by luck. Fits and gradients go by the Gaussian filter. It costs as many Gaussian
steps as there are state particles.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestbed.likelihood import gaussian
from nestbed.likelihood.base import Record
from nestbed.likelihood.gaussian import Gaussian, Innovation
from nestbed.likelihood.hidden import Hidden, Rig, chosen, first_tells
from nestbed.likelihood.kalman import Kalman
from nestbed.model import integration, sensors
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, resampling

SEED = 20_240
"""Of the random numbers that all filters share."""


class Swarm(NamedTuple):
    """State particles of equal weight, (N, M, J) each, designs on their way, and how many steps were done."""

    x: Components
    designs: tuple[Components, ...]
    ages: tuple[Any, ...]
    pending: Any
    done: Int[Array, "N 1"]


@dataclasses.dataclass(frozen=True)
class Particle(Hidden):
    """p(y[t+1] | y[0..t], u[0..t], θ), unbiased, by `system.state_particles` particles."""

    system: BaseSystem
    rough: bool = False
    given: bool = False
    memory: int = 0
    stream: Any = None  # of its random numbers; None: one for all

    @property
    def smooth(self) -> Kalman:
        """The Gaussian filter."""
        return Kalman(self.system, self.rough, self.given, self.memory)

    def imagine(self, normals: Components, carry: Swarm) -> Rig:
        """Draw one of the state particles."""
        size = carry.x[0].shape[-1]
        index = jnp.clip((jax.scipy.special.ndtr(normals[0]) * size).astype(int), 0, size - 1)[..., None]
        x = tuple(jnp.take_along_axis(value, index, axis=-1)[..., 0] for value in carry.x)
        wide = [tuple(value + jnp.zeros_like(x[0]) for value in past) for past in carry.designs]
        return Rig(x, tuple(wide))

    def start(self, y: Components, theta: Components) -> Swarm:
        """Draw states from what the first observation leaves of the start, taken to be Gaussian."""
        shape = (*jnp.broadcast_shapes(*(jnp.shape(value) for value in (*y, *theta))), self.system.state_particles)
        x, log_mean = self._first(y, theta, shape)
        pending = -2.0 * log_mean if first_tells(self.system) else ()
        return Swarm(x, *self.at_rest(y[0]), pending, jnp.zeros_like(y[0], int))

    def first_expected(self, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of what each sensor shows at first."""
        return self.smooth.first_expected(theta)

    def filtered(self, carry: Swarm) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of each state."""
        return tuple(jnp.mean(value, axis=-1) for value in carry.x), tuple(jnp.var(value, axis=-1) for value in carry.x)

    def predict(self, carry: Swarm, u: Components, theta: Components) -> tuple[Components, tuple[Any, ...]]:
        """Return the mean and the variance of what each sensor shows next."""
        state, _, used, wide = self._forward(carry, u, theta)
        means, variances = gaussian.expected(self.system, state, used, wide)
        middle = tuple(jnp.mean(value, axis=-1) for value in means)
        spread = tuple(
            jnp.mean(jnp.broadcast_to(v, jnp.shape(m)), axis=-1) + jnp.var(m, axis=-1)
            for v, m in zip(variances, means, strict=True)
        )
        return middle, spread

    def sample(self, normals: Components, carry: Swarm, u: Components, theta: Components) -> Components:
        """Return what sensors show next, by a Gaussian of the mean and the variance that particles predict."""
        pairs = zip(*self.predict(carry, u, theta), normals, strict=True)
        return tuple(mean + jnp.sqrt(variance) * e for mean, variance, e in pairs)

    def outstanding(self, carry: Swarm) -> Any:
        """Return the log-density of a first observation that is not counted yet."""
        return 0.0 if isinstance(carry.pending, tuple) else -0.5 * carry.pending

    def deviance(self, carry: Swarm, u: Components, y: Components, theta: Components) -> tuple[Swarm, Array]:
        """Return the particles after the observation, and how likely that was on average over them."""
        state, carried, used, wide = self._forward(carry, u, theta)
        x, log_mean = self._read(state, used, y, wide, carried.done)
        if self.given and not first_tells(self.system):
            log_mean = jnp.where(u[-1] == 0.0, 0.0, log_mean)
        deviance = -2.0 * log_mean - self.log_normaliser
        if not isinstance(carry.pending, tuple):
            deviance = deviance + carry.pending
            carried = carried._replace(pending=jnp.zeros_like(deviance))
        return carried._replace(x=x), deviance

    def _forward(
        self, carry: Swarm, u: Components, theta: Components
    ) -> tuple[Gaussian, Swarm, Components, Components]:
        """Return the Gaussian that a step makes of each particle, the rest of the next carry, designs, parameters."""
        length, lasts = None, u[-1]
        if self.given:
            u, length = u[:-1], jnp.where(lasts > 0.0, lasts, self.system.step)
        working, designs, ages = self.working(carry.designs, carry.ages, u, theta, length)
        wide, at_work, used = (tuple(value[..., None] for value in part) for part in (theta, working, u))
        long = None if length is None else length[..., None]
        changes = integration.change(self.system, carry.x, at_work, wide, long)
        at = wide if self.system.carries_noise else None
        comes = integration.noise(self.system, carry.x, at_work, wide, self.rough, length=long, at=at).covariance
        shape = carry.x[0].shape
        covariance = tuple(
            jnp.broadcast_to(jnp.asarray(comes[i][j], float), shape) for i in range(len(comes)) for j in range(i + 1)
        )
        state = Gaussian(tuple(x + change for x, change in zip(carry.x, changes, strict=True)), covariance)
        if self.given:
            fresh = gaussian.at_start(self.system, shape), *self.at_rest(lasts)
            state = chosen(lasts[..., None] == 0.0, fresh[0], state)
            designs, ages = chosen(lasts == 0.0, fresh[1:], (designs, ages))
        return state, Swarm(carry.x, designs, ages, carry.pending, carry.done + 1), used, wide

    def _first(self, y: Components, theta: Components, shape: tuple[int, ...]) -> tuple[Components, Array]:
        rest = tuple(jnp.asarray(value) for value in self.system.rest_design)
        state = gaussian.at_start(self.system, shape)
        if not self.system.sensors:
            wide = tuple(jnp.broadcast_to(value[..., None], shape) for value in y)
            return gaussian.known(state, wide).mean, jnp.zeros(shape[:-1])
        wide = tuple(value[..., None] for value in theta)
        return self._read(state, rest, y, wide, jnp.zeros_like(y[0], int))

    def _read(
        self, state: Gaussian, u: Components, y: Components, theta: Components, done: Int[Array, "N 1"]
    ) -> tuple[Components, Array]:
        """Return particles once sensors are read, of equal weight, and the logarithm of their average weight."""
        wide = tuple(value[..., None] for value in y)
        shape = state.mean[0].shape
        normals, offset = self._numbers(done, shape)
        if gaussian.sensors_are_linear(self.system):
            after, found = gaussian.corrected(self.system, state, u, theta, lambda i, *_: wide[i], gaps=self.given)
            x = _drawn(normals, after, shape)
        else:
            x = _drawn(normals, state, shape)
            found = self._shown(x, u, wide, theta)
        log_weights = jnp.broadcast_to(-0.5 * (self.counted(found) + self.log_normaliser), shape)
        log_mean = jax.nn.logsumexp(log_weights, axis=-1) - math.log(shape[-1])
        shares = log_weights - log_mean[..., None] - math.log(shape[-1])
        ancestors = resampling.systematic(offset, shares)
        return tuple(jnp.take_along_axis(value, ancestors, axis=-1) for value in x), log_mean

    def _shown(self, x: Components, u: Components, y: Components, theta: Components) -> list[Innovation]:
        """Return what readings say of states that are known."""
        variances = sensors.variances(self.system, x, u, theta)
        rows = zip(y, sensors.seen(self.system, x, theta), variances, strict=True)
        found = []
        for value, seen, variance in rows:
            measured: Any = ~jnp.isnan(value) if self.given else True
            residual = jnp.where(measured, value - seen, 0.0)
            found.append(Innovation(value, residual, jnp.asarray(variance), 1.0 / jnp.asarray(variance), measured))
        return found

    def _numbers(self, done: Int[Array, "N 1"], shape: tuple[int, ...]) -> tuple[Components, Float[Array, "..."]]:
        """Return normal numbers for each state particle, and where resampling begins; the same for all parameters."""
        key = jax.random.fold_in(jax.random.key(SEED), jnp.max(done))
        key = key if self.stream is None else jax.random.fold_in(key, self.stream)
        normals = noise.normals(key, (len(self.system.state), *(1,) * (len(shape) - 1), shape[-1]))
        return tuple(normals), jnp.broadcast_to(noise.uniforms(key, (1,), 1), (*shape[:-1], 1))

    def cause(self, record: Record, theta: Float[Array, " dtheta"], steps: int) -> str | None:
        """Return what the Gaussian filter makes of it."""
        return self.smooth.cause(record, theta, steps)


def _drawn(normals: Components, state: Gaussian, shape: tuple[int, ...]) -> Components:
    """Return states drawn from Gaussians by standard normal numbers."""
    factor = gaussian.factor(Gaussian(*jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, shape), tuple(state))))
    rows = zip(state.mean, factor, strict=True)
    return tuple(mean + sum(c * e for c, e in zip(row, normals, strict=False)) for mean, row in rows)
