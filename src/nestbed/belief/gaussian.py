"""The exact belief of a system that is linear in its parameters with Normal priors (`sec:conditionally_linear`).

The noise is independent between states, so each state of an outcome is conditioned on in turn by a scalar update:
no matrix is ever inverted, and sampling an outcome walks through the same updates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from nestbed import checks, noise
from nestbed.belief.base import Belief, Evidence, Record, State, Upkeep
from nestbed.errors import NestbedError
from nestbed.system import LOG_2PI, BaseSystem


class Normal(NamedTuple):
    """A Gaussian over the parameters: mean m and covariance P."""

    mean: Float[Array, "N dtheta"]
    covariance: Float[Array, "N dtheta dtheta"]


class Row(NamedTuple):
    """One state of the outcome given θ: Normal(offset + h · θ, variance)."""

    offset: Float[Array, " N"]
    h: Float[Array, "N dtheta"]
    variance: Float[Array, " N"]


@dataclass(frozen=True)
class Gaussian(Belief):
    """The exact Gaussian posterior."""

    system: BaseSystem
    kind = "exact"

    def __post_init__(self) -> None:
        system = self.system
        if not hasattr(system, "features"):
            raise NestbedError(
                f"{system.name} gives no features(x, u), so it is not known to be linear in its parameters and has no "
                "exact belief; use belief='ibis'."
            )
        for name, distribution in system.prior.items():
            if not isinstance(distribution, dist.Normal):
                raise NestbedError(
                    f"the prior of {name!r} in {system.name} is a {type(distribution).__name__}, but the exact belief "
                    "needs Normal priors; use belief='ibis'."
                )
        checks.linearity(system)

    def init(self, key: jax.Array, count: int) -> Normal:
        """Return the prior's mean and covariance, repeated."""
        priors = self.system.prior.values()
        mean = jnp.array([float(p.loc) for p in priors])
        covariance = jnp.diag(jnp.array([float(p.scale) ** 2 for p in priors]))
        return Normal(*(jnp.broadcast_to(a, (count, *a.shape)) for a in (mean, covariance)))

    def rejuvenate(
        self, key: jax.Array, state: State, record: Record, step: Int[Array, ""]
    ) -> tuple[State, Upkeep | None]:
        """Return the state as it is: nothing degenerates."""
        return state, None

    def sample(
        self, key: jax.Array, state: Normal, x: Float[Array, "N dx"], u: Float[Array, "N du"]
    ) -> Float[Array, "N dx"]:
        """Draw the outcome state by state, each given those before it."""
        normals = noise.normals(key, x.shape)
        outcome = []
        for i, row in enumerate(self._rows(x, u)):
            mean, variance = _predict(state, row)
            value = mean + jnp.sqrt(variance) * normals[:, i]
            state = _condition(state, row, value)
            outcome.append(value)
        return jnp.stack(outcome, axis=-1)

    def update(
        self, state: Normal, x: Float[Array, "N dx"], u: Float[Array, "N du"], following: Float[Array, "N dx"]
    ) -> tuple[Normal, Evidence]:
        """Condition on every state of the outcome; both terms of the gain in closed form."""
        entropy_drop = divergence = jnp.zeros(x.shape[0])
        posterior, predicted = state, []
        for i, row in enumerate(self._rows(x, u)):
            mean, variance = _predict(posterior, row)
            predicted.append(_log_normal(following[:, i] - mean, variance))
            entropy_drop += 0.5 * jnp.log(variance / row.variance)
            posterior = _condition(posterior, row, following[:, i])
        for i, row in enumerate(self._rows(x, u)):
            mean, variance = _predict(posterior, row)
            spread = (variance - row.variance) / row.variance  # hᵀ P h / σ²
            divergence += _log_normal(following[:, i] - mean, row.variance) - 0.5 * spread - predicted[i]
        return posterior, Evidence(divergence, sum(predicted[1:], start=predicted[0]), jnp.inf, entropy_drop)

    def expected_gains(
        self, key: jax.Array, state: Normal, x: Float[Array, "N dx"], u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Return the entropy that each design takes from the belief, which no outcome changes."""
        held, now = jax.tree.map(lambda leaf: jnp.repeat(leaf, u.shape[1], axis=0), (state, x))
        _, evidence = self.update(held, now, u.reshape(-1, u.shape[-1]), jnp.zeros_like(now))
        return evidence.gain(self.system, "closed_form").reshape(u.shape[:2])

    def culprit(
        self, state: Normal, x: Float[Array, "N dx"], u: Float[Array, "N du"], following: Float[Array, "N dx"]
    ) -> Float[Array, "N dtheta"]:
        """Return the mean: every parameter gives the same features."""
        return state.mean

    def kept(self, state: Normal) -> Normal:
        """Return the whole state: it is small."""
        return state

    def restored(self, kept: Normal) -> Normal:
        """Return what was kept."""
        return kept

    def moments(self, state: Normal) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return mean and covariance."""
        return state.mean, state.covariance

    def _rows(self, x: Float[Array, "N dx"], u: Float[Array, "N du"]) -> Iterator[Row]:
        system, count = self.system, x.shape[0]
        state, design = system.State(*x.T), system.Design(*u.T)
        zero = tuple(jnp.zeros(count) for _ in system.prior)
        features = system.features(state, design)  # type: ignore[attr-defined]
        means, variances = system.mean(state, design, zero), system.variance(state, design, zero)
        for offset, coefficients, variance in zip(means, features, variances, strict=True):
            h = jnp.stack([jnp.broadcast_to(c, (count,)) for c in coefficients], axis=-1) * system.step
            yield Row(jnp.broadcast_to(offset, (count,)), h, jnp.broadcast_to(variance, (count,)))


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
    return Normal(belief.mean + gain * (value - mean)[:, None], spread + noise_part)


def _log_normal(residual: Float[Array, " N"], variance: Float[Array, " N"]) -> Float[Array, " N"]:
    return -0.5 * (residual**2 / variance + jnp.log(variance) + LOG_2PI)
