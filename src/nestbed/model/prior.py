"""The prior over named parameters, in the constrained coordinates users see and the unconstrained ones filters use."""

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.model import factors
from nestbed.model.factors import Components, Factor, Moments
from nestbed.numerics.errors import NestbedError

__all__ = ["Components", "Prior"]

T = TypeVar("T")


class Prior:
    """Independent NumPyro distributions by parameter name, or by a tuple of names of parameters known together."""

    def __init__(self, distributions: Mapping[Any, Any]):
        if not isinstance(distributions, Mapping) or not distributions:
            raise NestbedError(
                f"prior is {distributions!r}, but it must be a dictionary of NumPyro distributions by parameter "
                'name, as in {"mass": dist.LogNormal(0.0, 0.1)}.'
            )
        self.factors: tuple[Factor, ...] = tuple(factors.of(key, d) for key, d in distributions.items())
        self.names: tuple[str, ...] = tuple(name for factor in self.factors for name in factor.names)
        self.transforms = tuple(transform for factor in self.factors for transform in factor.transforms)
        self._check_names()
        with jax.ensure_compile_time_eval():
            draws = self.sample(jax.random.key(0), (4096,))
            spread = [jnp.diff(jnp.quantile(z, jnp.array([0.16, 0.84])))[0] / 2 for z in draws]
            density = [f.log_density(part) for f, part in zip(self.factors, self.by_factor(draws), strict=True)]
            self.draws = self.constrain(draws)  # of the parameters themselves
            self.middle: Components = tuple(jnp.median(value) for value in self.draws)
        for name, scale in zip(self.names, spread, strict=True):
            if not scale > 0:
                raise NestbedError(f"the prior of {name!r} has no spread; make a known value a constant of the system.")
        for (name, distribution), values in zip(distributions.items(), density, strict=True):
            if not jnp.isfinite(values).all():
                raise NestbedError(
                    f"the prior of {name!r}, a {type(distribution).__name__} with {_arguments(distribution)}, has no "
                    "finite density where it was drawn; correct its parameters, such as a scale that must be positive."
                )
        with jax.ensure_compile_time_eval():
            self.centre = tuple(float(z) for z in self.unconstrain(self.middle))  # the same, unconstrained
        self.scales = tuple(float(s) for s in spread)  # about the standard deviation of each unconstrained coordinate

    def _check_names(self) -> None:
        for name in self.names:
            if self.names.count(name) > 1:
                raise NestbedError(
                    f"the prior names {name!r} twice, in {self.names}; give each parameter one distribution, its own "
                    "or one that it shares with others."
                )

    @property
    def independent(self) -> bool:
        """Whether each parameter has a distribution of its own."""
        return not any(factor.together for factor in self.factors)

    def divisible(self, free: tuple[bool, ...]) -> bool:
        """Return whether the distribution of the free parameters given the others is known."""
        groups = zip(self.factors, self.by_factor(free), strict=True)
        return all(factor.divisible or len(set(kept)) == 1 for factor, kept in groups)

    def by_factor(self, values: tuple[T, ...]) -> tuple[tuple[T, ...], ...]:
        """Return what there is of every parameter, grouped by the distributions that these have."""
        ends = np.cumsum([len(factor.names) for factor in self.factors])
        return tuple(values[end - len(f.names) : end] for f, end in zip(self.factors, ends, strict=True))

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw unconstrained coordinates, one array of `shape` per parameter."""
        keys = jax.random.split(key, len(self.factors))
        return tuple(z for k, factor in zip(keys, self.factors, strict=True) for z in factor.sample(k, shape))

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw parameters themselves, one array of `shape` for each."""
        keys = jax.random.split(key, len(self.factors))
        return tuple(value for k, factor in zip(keys, self.factors, strict=True) for value in factor.draw(k, shape))

    def constrain(self, position: Components) -> Components:
        """Map unconstrained coordinates to parameters."""
        return tuple(transform(z) for transform, z in zip(self.transforms, position, strict=True))

    def unconstrain(self, theta: Components) -> Components:
        """Map parameters to unconstrained coordinates."""
        return tuple(transform.inv(value) for transform, value in zip(self.transforms, theta, strict=True))

    def log_density(self, position: Components) -> jax.Array:
        """Return the log-density of unconstrained coordinates (the Jacobian included)."""
        terms = [f.log_density(part) for f, part in zip(self.factors, self.by_factor(position), strict=True)]
        return sum(terms[1:], start=terms[0])

    @functools.cached_property
    def moments(self) -> Moments:
        """The mean and covariance of unconstrained coordinates, and their entropy; NaN where not known well."""
        centres, scales = self.by_factor(self.centre), self.by_factor(self.scales)
        with jax.ensure_compile_time_eval():
            found = [f.moments(*at) for f, *at in zip(self.factors, centres, scales, strict=True)]
        means, blocks, entropies = zip(*found, strict=True)
        return np.concatenate(means), self.blocks(blocks), float(np.array(entropies).sum())

    @functools.cached_property
    def correlation(self) -> np.ndarray:
        """The correlation of unconstrained coordinates; by draws, the far ones pulled in, where it is not known."""
        if self.independent:
            return np.eye(len(self.names))
        with jax.ensure_compile_time_eval():
            rows = np.stack([np.asarray(z) for z in self.unconstrain(self.draws)])
        scaled = (rows - np.array(self.centre)[:, None]) / np.array(self.scales)[:, None]
        drawn = np.atleast_2d(np.corrcoef(np.clip(scaled, -FAR, FAR)))
        deviations = np.sqrt(np.diagonal(self.moments[1]))
        known = self.moments[1] / (deviations[:, None] * deviations)
        same = self.blocks([np.ones((len(f.names),) * 2) for f in self.factors]) > 0.0
        found = np.where(same, np.where(np.isfinite(known), known, drawn), 0.0)
        np.fill_diagonal(found, 1.0)
        return found

    @functools.cached_property
    def curvature(self) -> np.ndarray:
        """The precision that parameters known together have, in units of `scales`; 0 for those known by themselves."""
        if self.independent:
            return np.zeros((len(self.names),) * 2)
        deviations = np.sqrt(np.diagonal(self.moments[1])) / np.array(self.scales)
        deviations = np.where(np.isfinite(deviations), deviations, 1.0)
        whole = np.linalg.inv(self.correlation) / (deviations[:, None] * deviations)
        shape = [np.full((len(f.names),) * 2, f.together) for f in self.factors]
        return np.where(self.blocks(shape) > 0.0, whole, 0.0)

    @property
    def precision(self) -> np.ndarray:
        """The same with 1 for those known by themselves."""
        return self.curvature + np.diag(np.diagonal(self.curvature) == 0.0)

    def blocks(self, blocks: Any) -> np.ndarray:
        """Return a matrix with these on its diagonal."""
        found, start = np.zeros((len(self.names),) * 2), 0
        for block in blocks:
            end = start + len(block)
            found[start:end, start:end] = block
            start = end
        return found


FAR = 4.0
"""Spreads from the middle beyond which draws count as being that far."""


def _arguments(distribution: Any) -> str:
    return " ".join(", ".join(f"{name} = {value}" for name, value in distribution.get_args().items()).split())
