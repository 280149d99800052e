"""What a session knows by now, by name and in the parameters' own units."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

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
