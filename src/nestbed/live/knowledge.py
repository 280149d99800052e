"""What a session knows by now, by name and in the parameters' own units."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.belief.base import Belief
from nestbed.evaluation.inference_data import inference_data
from nestbed.live.following import Following
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError


class Knowledge:
    """The posterior of the parameters after what was seen so far, and of hidden states."""

    def __init__(self, system: BaseSystem, now: Following):
        self.system, self.belief = system, jax.tree.map(lambda leaf: np.asarray(leaf)[0], now.learner.belief)
        self._now = now
        self._mean, self.covariance = (np.asarray(part)[0] for part in _moments(now.belief, now.learner.belief))

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each parameter."""
        return dict(zip(self.system.parameter_names, self._mean.tolist(), strict=True))

    @property
    def sd(self) -> dict[str, float]:
        """The standard deviation of each parameter."""
        return dict(zip(self.system.parameter_names, np.sqrt(np.diagonal(self.covariance)).tolist(), strict=True))

    @property
    def correlation(self) -> dict[tuple[str, str], float]:
        """The correlation of each pair of parameters."""
        sd = np.sqrt(np.diagonal(self.covariance))
        names = self.system.parameter_names
        return {
            (a, b): float(self.covariance[i, j] / (sd[i] * sd[j]))
            for i, a in enumerate(names)
            for j, b in enumerate(names)
            if i < j
        }

    @property
    def weights(self) -> Float[np.ndarray, " M"]:
        """The weight of each particle."""
        return np.exp(np.asarray(self.belief.log_weights))

    def quantiles(self, shares: Sequence[float]) -> dict[str, tuple[float, ...]]:
        """Return the values below which the parameter is with these probabilities, by name."""
        wanted = np.asarray(shares, float)
        if wanted.ndim != 1 or not ((wanted >= 0.0) & (wanted <= 1.0)).all():
            raise NestbedError(f"quantiles got {shares!r}; give a list of probabilities, such as [0.025, 0.975].")
        found = {}
        for name, values in zip(self.system.parameter_names, self.belief.theta, strict=True):
            order = np.argsort(np.asarray(values))
            share = np.cumsum(self.weights[order]) - 0.5 * self.weights[order]
            found[name] = tuple(np.interp(wanted, share, np.asarray(values)[order]).tolist())
        return found

    def predicted(self, u: Float[np.ndarray, " du"], shares: Sequence[float]) -> dict[str, tuple[float, ...]]:
        """Return the mean of what each sensor will show one step after a design, then its quantiles, by name."""
        row = u if self._now.even else np.append(u, self.system.step)
        found = _predicted(self._now.belief, self._now.learner.belief, jnp.asarray(row), jnp.asarray(shares))
        return {
            name: tuple(values.tolist())
            for name, values in zip(self.system.observation_names, np.asarray(found), strict=True)
        }

    def samples(self, key: jax.Array, count: int) -> dict[str, Float[np.ndarray, " count"]]:
        """Draw parameters, by name."""
        uniforms = np.asarray(noise.uniforms(noise.as_key(key), (count,)))
        chosen = np.minimum(np.searchsorted(np.cumsum(self.weights), uniforms), len(self.weights) - 1)
        pairs = zip(self.system.parameter_names, self.belief.theta, strict=True)
        return {name: np.asarray(values)[chosen] for name, values in pairs}

    def arviz(self, key: jax.Array, count: int = 1000) -> Any:
        """Return draws as ArviZ takes them, one chain; needs `pip install 'nestbed[arviz]'`."""
        return inference_data({"posterior": {name: drawn[None] for name, drawn in self.samples(key, count).items()}})

    @property
    def states(self) -> dict[str, tuple[float, float]]:
        """The mean and the standard deviation of each state now."""
        likelihood = self._now.belief.likelihood
        state: Any = self._now.learner.belief
        if likelihood.markov:
            return {
                name: (float(np.asarray(x)[0, 0]), 0.0) for name, x in zip(self.system.state, state.carry, strict=True)
            }
        means, variances = (
            [np.broadcast_to(np.asarray(value), state.log_weights.shape)[0] for value in part]
            for part in likelihood.filtered(state.carry)
        )
        found = {}
        for name, mean, variance in zip(self.system.state, means, variances, strict=True):
            middle = float(self.weights @ mean)
            found[name] = middle, float(np.sqrt(self.weights @ (variance + (mean - middle) ** 2)))
        return found


@eqx.filter_jit
def _moments(belief: Belief, state: Any) -> Any:
    return belief.moments(state)


HALVINGS, FAR = 48, 8.0
"""Halvings of where a quantile lies, and how many standard deviations from any particle's mean it is looked for."""


@eqx.filter_jit
def _predicted(
    belief: Belief, state: Any, row: Float[Array, " du"], shares: Float[Array, " S"]
) -> Float[Array, "dy S1"]:
    """Return means and quantiles of the mixture, over particles, of what each sensor will show."""
    designs = tuple(value[None, None] for value in row)
    means, variances = belief.likelihood.predict(state.carry, designs, state.theta)
    weights = jnp.exp(state.log_weights)[0]

    def of(mean: Any, variance: Any) -> Float[Array, " S1"]:
        mean, sd = (jnp.broadcast_to(value, (1, len(weights)))[0] for value in (mean, jnp.sqrt(variance)))

        def halved(_: Any, ends: Any) -> Any:
            low, high = ends
            middle = 0.5 * (low + high)
            below = jax.scipy.stats.norm.cdf(middle[:, None], mean, sd) @ weights < shares
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        ends = jnp.min(mean - FAR * sd), jnp.max(mean + FAR * sd)
        low, high = jax.lax.fori_loop(0, HALVINGS, halved, tuple(jnp.broadcast_to(end, shares.shape) for end in ends))
        return jnp.concatenate([(weights @ mean)[None], 0.5 * (low + high)])

    return jnp.stack([of(mean, variance) for mean, variance in zip(means, variances, strict=True)])
