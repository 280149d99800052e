"""The exact belief of a system that is linear in its parameters with Normal priors (`sec:conditionally_linear`).

States may be hidden where they are linear together with the parameters (`linear.py`). Each component of an outcome is
conditioned on in turn, given those before it where they share noise, by a scalar update: no matrix is ever inverted,
and sampling an outcome walks through the same updates.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from nestbed.belief import linear
from nestbed.belief.base import Belief, Evidence, RejuvenationInfo, Settled
from nestbed.likelihood.base import Carry, Record, Row, components
from nestbed.model import predictive
from nestbed.model.factors import Gaussian
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.noise import LOG_2PI


class Normal(NamedTuple):
    """A Gaussian over the parameters, mean m and covariance P, and what the past says besides."""

    mean: Float[Array, "N dtheta"]
    covariance: Float[Array, "N dtheta dtheta"]
    carry: Carry  # of the linear form

    @property
    def theta(self) -> Components:
        """Points with this mean and covariance: what is linear in the parameters has its moments over them."""
        values, vectors = jnp.linalg.eigh(self.covariance)
        reach = jnp.swapaxes(vectors * jnp.sqrt(len(values) * jnp.maximum(values, 0.0)), -1, -2)
        return tuple(jnp.moveaxis(jnp.concatenate([self.mean + reach, self.mean - reach]), -1, 0))

    @property
    def log_weights(self) -> Float[Array, " points"]:
        """The logarithm of each point's weight."""
        return jnp.full(2 * self.mean.shape[-1], -math.log(2 * self.mean.shape[-1]))

    @property
    def unconstrained(self) -> tuple[Array, Array]:
        """The mean and the covariance of unconstrained coordinates, which the parameters are."""
        return self.mean, self.covariance


@dataclass(frozen=True)
class Exact(Settled):
    """The exact Gaussian posterior."""

    system: BaseSystem
    given: int | None = None
    kind = "exact"
    together = 8
    closed_form = True

    def __post_init__(self) -> None:
        system = self.system
        linear.check(system, self.given)
        for name, distribution in system.prior.items():
            if not isinstance(distribution, dist.Normal | dist.MultivariateNormal):
                raise NestbedError(
                    f"the prior of {name!r} in {system.name} is a {type(distribution).__name__}, but the exact belief "
                    "needs Normal priors; use belief='ibis'."
                )
        if not system.hidden and self.given is None:
            predictive.check_linearity(system)

    @classmethod
    def make(cls, system: BaseSystem, particles: int, moves: int) -> Belief:
        """Return the belief; it has no size."""
        return cls(system)

    @property
    def most(self) -> float:
        """No limit."""
        return math.inf

    @property
    def form(self) -> linear.Form:
        """How what is seen hangs on the parameters."""
        return linear.of(self.system, self.given, *self._prior)

    def of_given_records(self, remembered: int | None = None) -> Belief:
        """Return the same, or with a number that of gaps, uneven times and new beginnings."""
        return self if remembered is None else replace(self, given=remembered)

    def init(self, key: jax.Array, first: Float[Array, "N dy"]) -> Normal:
        """Return the prior's mean and covariance, repeated."""
        prior = (jnp.asarray(part) for part in self._prior)
        mean, covariance = (jnp.broadcast_to(a, (first.shape[0], *a.shape)) for a in prior)
        return self.begin(Normal(mean, covariance, ()), first)

    @property
    def _prior(self) -> tuple[np.ndarray, np.ndarray]:
        """The prior's mean and covariance."""
        prior = self.system.parameters
        parts = [(f.mean, f.covariance) if isinstance(f, Gaussian) else _alone(f.distribution) for f in prior.factors]
        means, blocks = zip(*parts, strict=True)
        return np.concatenate(means), prior.blocks(blocks)

    def begin(self, state: Normal, first: Float[Array, "N dy"]) -> Normal:
        """Return the prior with another first observation."""
        return state._replace(carry=self.form.start(first))

    def rejuvenate(
        self, key: jax.Array, state: Normal, record: Record, t: Int[Array, ""]
    ) -> tuple[Normal, RejuvenationInfo | None]:
        """Return the state as it is: nothing degenerates."""
        return state, None

    def sample(self, key: jax.Array, state: Normal, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
        """Draw the observation component by component, each given those before it."""
        normals = noise.normals(key, (u.shape[0], len(self.system.observation_names)))
        outcome: list[Float[Array, " N"]] = []
        form, state = self.form, self._aware(state)
        for i, row in enumerate(form.rows(state.carry, components(u))):
            row = row.given(outcome)
            mean, variance = _predict(state, row)
            value = mean + jnp.sqrt(variance) * normals[:, i]
            state = _condition(state, row, value)
            outcome.append(value)
        return jnp.stack(outcome, axis=-1)

    def update(self, state: Normal, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> tuple[Normal, Evidence]:
        """Condition on every component of the outcome; both terms of the gain in closed form."""
        read, carry = self.form.read(state.carry, components(u), y)
        readings = [*self.form.waiting(state.carry), *read]
        entropy_drop = divergence = log_predictive = jnp.zeros(u.shape[0])
        posterior, predicted = state, []
        for row, value, measured, counts in readings:
            mean, variance = _predict(posterior, row)
            predicted.append(_log_normal(value - mean, variance))
            log_predictive += _where(measured, _where(counts, predicted[-1]))
            entropy_drop += 0.5 * jnp.log(variance / row.variance)
            posterior = _condition(posterior, row, value)
        for (row, value, measured, _), before in zip(readings, predicted, strict=True):
            mean, variance = _predict(posterior, row)
            spread = (variance - row.variance) / row.variance  # hᵀ P h / σ²
            divergence += _where(measured, _log_normal(value - mean, row.variance) - 0.5 * spread - before)
        return posterior._replace(carry=carry), Evidence(
            divergence, log_predictive, self.most, entropy_drop=entropy_drop
        )

    def surprise(self, state: Normal, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> Float[Array, "N dy"]:
        """Return residuals in standard deviations of what was predicted, given the components before."""
        aware, found = self._aware(state), []
        for row, value, measured, _ in self.form.read(state.carry, components(u), y)[0]:
            mean, variance = _predict(aware, row)
            found.append(_where(measured, (value - mean) / jnp.sqrt(variance), jnp.nan))
        return jnp.stack(found, axis=-1)

    def _aware(self, state: Normal) -> Normal:
        """Return the belief with what the first observation says of the parameters, though it is not counted yet."""
        for row, value, *_ in self.form.waiting(state.carry):
            state = _condition(state, row, value)
        return state

    def expected_gains(
        self, key: jax.Array, state: Normal, u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Return the entropy that each design takes from the belief, which no outcome changes."""
        held = jax.tree.map(lambda leaf: jnp.repeat(leaf, u.shape[1], axis=0), state)
        flat = u.reshape(-1, u.shape[-1])
        _, evidence = self.update(held, flat, jnp.zeros((flat.shape[0], len(self.system.observation_names))))
        return evidence.gain(self.likelihood, "closed_form").reshape(u.shape[:2])

    def culprit(self, state: Normal, u: Float[Array, "N du"]) -> Float[Array, "N dtheta"]:
        """Return the mean: every parameter gives the same features."""
        return state.mean

    def compress(self, state: Normal) -> Normal:
        """Return the whole state: it is small."""
        return state

    def expand(self, compressed: Normal) -> Normal:
        """Return what was stored."""
        return compressed

    def divergence(self, state: Normal, log_evidence: Float[Array, " N"]) -> Float[Array, " N"]:
        """Return the divergence of two Gaussians."""
        mean, prior = self._prior
        shift, covariance, variance = state.mean - jnp.asarray(mean), state.covariance, jnp.asarray(np.diagonal(prior))
        if np.count_nonzero(prior) > len(mean):  # in coordinates that the prior does not correlate
            root = np.linalg.cholesky(prior)
            unit = jnp.asarray(np.linalg.inv(root / np.diagonal(root)))
            shift, covariance = shift @ unit.T, unit @ covariance @ unit.T
            variance = jnp.asarray(np.diagonal(root) ** 2)
        spread = jnp.sum(jnp.diagonal(covariance, axis1=1, axis2=2) / variance, axis=1)
        squares = jnp.sum(shift**2 / variance, axis=1)
        log_ratio = jnp.sum(jnp.log(variance)) - jnp.linalg.slogdet(covariance)[1]
        return 0.5 * (spread + squares - len(mean) + log_ratio)

    def moments(self, state: Normal) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return mean and covariance."""
        return state.mean, state.covariance


def _alone(distribution: dist.Normal) -> tuple[Any, Any]:
    return [float(distribution.loc)], [[float(distribution.scale) ** 2]]


def _where(condition: Any, value: Array, otherwise: float = 0.0) -> Array:
    """Return values where a condition holds, nothing computed where it always does."""
    return value if condition is True else jnp.where(condition, value, otherwise)


def _predict(belief: Normal, row: Row) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return the mean and the variance of one state of the outcome."""
    mean = row.offset + jnp.sum(row.h * belief.mean, axis=-1)
    variance = row.variance + jnp.einsum("ni,nij,nj->n", row.h, belief.covariance, row.h)
    return mean, variance


def _condition(belief: Normal, row: Row, value: Float[Array, " N"]) -> Normal:
    """Return the belief after seeing one state of the outcome (a scalar Kalman update)."""
    mean, variance = _predict(belief, row)
    reach = jnp.einsum("nij,nj->ni", belief.covariance, row.h)  # P h
    gain = reach / variance[:, None]
    # Joseph's form: a difference of products would cancel when the prior is vague
    rest = jnp.eye(row.h.shape[1]) - gain[:, :, None] * row.h[:, None, :]
    spread = jnp.einsum("nij,njk,nlk->nil", rest, belief.covariance, rest)
    noise_part = row.variance[:, None, None] * gain[:, :, None] * gain[:, None, :]
    return belief._replace(mean=belief.mean + gain * (value - mean)[:, None], covariance=spread + noise_part)


def _log_normal(residual: Float[Array, " N"], variance: Float[Array, " N"]) -> Float[Array, " N"]:
    return -0.5 * (residual**2 / variance + jnp.log(variance) + LOG_2PI)
